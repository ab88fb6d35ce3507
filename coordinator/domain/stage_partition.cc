#include "coordinator/domain/stage_partition.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace stagecoach {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Sums of the same unit times in another order differ in the last bits; smaller differences are ties.
constexpr double kRelativeTie = 1e-9;

// Time of stage [a, b) on worker i, infinite where memory forbids it.
class StageTimes {
 public:
  explicit StageTimes(const PartitionProblem& problem) : problem_(problem), units_(problem.cut_allowed.size()) {
    for (const PartitionWorker& worker : problem.workers) {
      std::vector<double> seconds(units_ + 1, 0);
      std::vector<uint64_t> bytes(units_ + 1, 0);
      for (size_t u = 0; u < units_; ++u) {
        seconds[u + 1] = seconds[u] + worker.unit_seconds[u];
        bytes[u + 1] = bytes[u] + worker.unit_bytes[u];
      }
      seconds_.push_back(std::move(seconds));
      bytes_.push_back(std::move(bytes));
    }
  }
  uint64_t Bytes(size_t worker, size_t a, size_t b) const {
    return bytes_[worker][b] - bytes_[worker][a] + problem_.workers[worker].fixed_bytes;
  }
  bool Fits(size_t worker, size_t a, size_t b) const {
    const uint64_t limit = problem_.workers[worker].memory_limit_bytes;
    return limit == 0 || Bytes(worker, a, b) <= limit;
  }
  double Seconds(size_t worker, size_t a, size_t b) const {
    return Fits(worker, a, b) ? seconds_[worker][b] - seconds_[worker][a] : kInfinity;
  }
  size_t units() const { return units_; }

 private:
  const PartitionProblem& problem_;
  const size_t units_;
  std::vector<std::vector<double>> seconds_;
  std::vector<std::vector<uint64_t>> bytes_;
};

absl::Status CheckShapes(const PartitionProblem& problem) {
  const size_t units = problem.cut_allowed.size();
  if (problem.workers.empty() || units == 0) return absl::InvalidArgumentError("nothing to cut, or no worker");
  for (const PartitionWorker& worker : problem.workers) {
    if (worker.unit_seconds.size() != units || worker.unit_bytes.size() != units) {
      return absl::InvalidArgumentError(absl::StrCat("worker ", worker.name, " has measurements of ",
                                                     worker.unit_seconds.size(), " units, the model has ", units));
    }
  }
  if (problem.workers.size() > MaxStages(problem.cut_allowed)) {
    return absl::InvalidArgumentError(absl::StrCat("the model can be cut into ", MaxStages(problem.cut_allowed),
                                                   " stages at most, there are ", problem.workers.size(), " workers"));
  }
  return absl::OkStatus();
}

std::string Gigabytes(uint64_t bytes) {
  return absl::StrCat(std::round(static_cast<double>(bytes) / 1e7) / 100, " GB");
}

absl::Status DoesNotFit(const PartitionProblem& problem) {
  uint64_t limits = 0, smallest = std::numeric_limits<uint64_t>::max();
  std::string tightest;
  for (const PartitionWorker& worker : problem.workers) {
    limits += worker.memory_limit_bytes;
    if (worker.memory_limit_bytes < smallest) smallest = worker.memory_limit_bytes, tightest = worker.name;
  }
  const auto& bytes = problem.workers[0].unit_bytes;
  const uint64_t needed = std::accumulate(bytes.begin(), bytes.end(), uint64_t{0});
  return absl::ResourceExhaustedError(
      absl::StrCat("the model does not fit: weights, gradients and optimizer state need ", Gigabytes(needed), ", the ",
                   problem.workers.size(), " workers have ", Gigabytes(limits), " in all (", tightest, " has ",
                   Gigabytes(smallest), "); add workers or memory, or use a smaller model"));
}

// best[i][u] = best value of covering units u.. with workers i..; combine folds one stage into the rest.
template <typename Combine>
std::vector<std::vector<double>> Solve(const PartitionProblem& problem, const StageTimes& times, Combine combine) {
  const size_t workers = problem.workers.size(), units = times.units();
  std::vector<std::vector<double>> best(workers + 1, std::vector<double>(units + 1, kInfinity));
  best[workers][units] = 0;
  for (size_t i = workers; i-- > 0;) {
    for (size_t a = 0; a < units; ++a) {
      for (size_t b = a + 1; b <= units; ++b) {
        if (b < units && !problem.cut_allowed[b]) continue;
        best[i][a] = std::min(best[i][a], combine(times.Seconds(i, a, b), best[i + 1][b]));
      }
    }
  }
  return best;
}

}  // namespace

uint32_t MaxStages(const std::vector<bool>& cut_allowed) {
  return 1 + static_cast<uint32_t>(std::count(cut_allowed.begin() + 1, cut_allowed.end(), true));
}

absl::StatusOr<Partition> PartitionStages(const PartitionProblem& problem) {
  RETURN_IF_ERROR(CheckShapes(problem));
  const StageTimes times(problem);
  const auto bottleneck = Solve(problem, times, [](double stage, double rest) { return std::max(stage, rest); });
  if (bottleneck[0][0] == kInfinity) return DoesNotFit(problem);
  // Second pass: of all cuts that reach the least bottleneck, the least sum of squares. One pass with pairs would be
  // wrong: a prefix may be slower than necessary without being the bottleneck.
  const double cap = bottleneck[0][0] * (1 + kRelativeTie);
  const auto squared = [cap](double stage, double rest) { return stage <= cap ? stage * stage + rest : kInfinity; };
  const auto squares = Solve(problem, times, squared);
  Partition partition;
  size_t a = 0;
  for (size_t i = 0; i < problem.workers.size(); ++i) {
    size_t b = a + 1;  // the earliest cut that is as good as the best
    while ((b < times.units() && !problem.cut_allowed[b]) ||
           squared(times.Seconds(i, a, b), squares[i + 1][b]) > squares[i][a] * (1 + kRelativeTie)) {
      ++b;
    }
    if (b < times.units()) partition.cuts.push_back(static_cast<uint32_t>(b));
    partition.stage_seconds.push_back(times.Seconds(i, a, b));
    partition.stage_bytes.push_back(times.Bytes(i, a, b));
    a = b;
  }
  partition.max_stage_seconds = *std::max_element(partition.stage_seconds.begin(), partition.stage_seconds.end());
  return partition;
}

absl::StatusOr<Partition> EvaluateCuts(const PartitionProblem& problem, const std::vector<uint32_t>& cuts) {
  RETURN_IF_ERROR(CheckShapes(problem));
  if (cuts.size() + 1 != problem.workers.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the record has ", cuts.size() + 1, " stages, there are ",
                                                   problem.workers.size(), " workers; use as many workers as stages"));
  }
  const StageTimes times(problem);
  Partition partition;
  partition.cuts = cuts;
  for (size_t i = 0; i < problem.workers.size(); ++i) {
    const size_t a = i == 0 ? 0 : cuts[i - 1], b = i < cuts.size() ? cuts[i] : times.units();
    if (b <= a || b > times.units() || (i < cuts.size() && !problem.cut_allowed[b])) {
      return absl::InvalidArgumentError(absl::StrCat("a cut in front of unit ", b, " is not possible in this model"));
    }
    if (!times.Fits(i, a, b)) {
      return absl::ResourceExhaustedError(
          absl::StrCat("units ", a, "..", b - 1, " need ", Gigabytes(times.Bytes(i, a, b)), ", worker ",
                       problem.workers[i].name, " has ", Gigabytes(problem.workers[i].memory_limit_bytes)));
    }
    partition.stage_seconds.push_back(times.Seconds(i, a, b));
    partition.stage_bytes.push_back(times.Bytes(i, a, b));
  }
  partition.max_stage_seconds = *std::max_element(partition.stage_seconds.begin(), partition.stage_seconds.end());
  return partition;
}

}  // namespace stagecoach
