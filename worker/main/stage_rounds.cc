#include "worker/main/stage_rounds.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/average/round_carrier.h"

namespace stagecoach {
namespace {

// All stages of a run begin loading at the same time; the slowest may read for long first. As for neighbours.
constexpr double kConnectSeconds = 120;

}  // namespace

// What the averaging loop knows of the owner. Worker loop only.
struct StageRounds::Shared {
  StageRounds* owner = nullptr;  // null: gone
  Events events;
};

// Everything on the averaging loop, made and destroyed there.
class StageRounds::Work : public std::enable_shared_from_this<Work> {
 public:
  Work(RoundSetup setup, EventLoop* worker, EventLoop* averaging, LinkFactory* links, std::shared_ptr<Shared> shared)
      : setup_(std::move(setup)), worker_(worker), shared_(std::move(shared)) {
    carrier_.work = averaging;
    carrier_.links_loop = worker;
    carrier_.links = links;
    carrier_.connect_seconds = kConnectSeconds;
    carrier_.pacer.uplink_bytes_per_second = setup_.uplink_bytes_per_second;
  }

  void Open() {
    carrier_.on_settled = [this](const RoundExchange& exchange) { OnSettled(exchange); };
    carrier_.on_lost = [this](const std::string& partner, const absl::Status& status) {
      Fail(absl::Status(status.ok() ? absl::StatusCode::kUnavailable : status.code(),
                        absl::StrCat("link to worker ", partner, " of another cluster is gone: ",
                                     status.ok() ? "closed by the peer" : std::string(status.message()))),
           partner);
    };
    running_ = std::make_unique<RoundCarrier>(std::move(carrier_));
    for (const AveragingPartner& partner : setup_.partners) running_->OpenPartner(partner);
  }

  void Close() { running_.reset(); }

  void Pinned(uint64_t round, uint64_t version, SharedWeights weights, const std::vector<uint64_t>& unit_parameters) {
    if (round == 0) return SetCommon({0, *weights, {}, {}, {}}, unit_parameters);
    pinned_ = std::move(weights);
    round_ = round;
    WorkerMessage message;
    RoundReady& ready = *message.mutable_round_ready();
    ready.set_epoch(setup_.epoch);
    ready.set_round(round);
    ready.set_step(version);
    Report(std::move(message));
  }

  void Restore(const CommonState& state, const std::vector<uint64_t>& unit_parameters) {
    SetCommon(state, unit_parameters);
    round_ = committed_ = state.rounds;
  }

  void Capture(uint64_t checkpoint_step, uint64_t round) {
    captures_.emplace_back(checkpoint_step, round);
    AnswerCaptures();
  }

  void Fix(const RoundFix& fix) {
    if (!running_) return;
    const std::vector<float> weights(fix.weights().begin(), fix.weights().end());
    if (fix.round() != round_ || weights.size() != setup_.epochs.size() || common_.size() != setup_.own.size()) {
      return Fail(absl::FailedPreconditionError(absl::StrCat("round ", fix.round(), " begins, this stage is ready for ",
                                                             round_, "; weights=", weights.size())),
                  "");
    }
    for (size_t i = 0; i < setup_.own.size(); ++i) {
      const ExchangeTerms terms = TermsOf(setup_.averaging, round_, fix.attempt(), setup_.own[i],
                                          common_[i].theta.size(), weights, setup_.epochs);
      auto exchange =
          RoundExchange::Begin(terms, setup_.cluster, &common_[i],
                               [pinned = pinned_, begin = begin_[i]](uint64_t first, absl::Span<float> out) {
                                 std::copy_n(pinned->data() + begin + first, out.size(), out.data());
                               });
      if (!exchange.ok()) return Fail(exchange.status(), "");
      running_->Begin(*std::move(exchange), setup_.owners[i]);
    }
  }

  void Abort(const RoundAbort& abort) {
    if (running_) running_->Abort(abort.round(), abort.attempt());
  }

  void Commit(const RoundCommit& commit) {
    if (!running_ || commit.round() != round_) return;
    for (const uint32_t shard : setup_.own) {
      const bool known = shard < static_cast<uint32_t>(commit.hashes_size());
      const absl::Status status =
          known ? running_->Commit(shard, commit.round(), commit.attempt(), commit.hashes(static_cast<int>(shard)))
                : absl::InvalidArgumentError(absl::StrCat("a commit without the hash of shard ", shard));
      if (!status.ok()) return Fail(status, "");
    }
    std::vector<float> theta;
    theta.reserve(pinned_->size());
    for (const CommonShard& shard : common_) theta.insert(theta.end(), shard.theta.begin(), shard.theta.end());
    RoundValues values{std::exchange(pinned_, nullptr), std::make_shared<const std::vector<float>>(std::move(theta))};
    committed_ = round_;
    CountBytes();
    OnWorker([round = round_, values = std::move(values)](Shared& shared) {
      const auto on_result = shared.events.on_result;  // may end the owner
      on_result(round, values);
    });
    AnswerCaptures();
  }

  void CountBytes() {
    if (!running_) return;
    OnWorker([bytes = running_->bytes_sent()](Shared& shared) { shared.owner->bytes_sent_ = bytes; });
  }

  void PipelineFrame() {
    if (running_) running_->OnPipelineFrame();
  }

 private:
  void SetCommon(const CommonState& state, const std::vector<uint64_t>& unit_parameters) {
    uint64_t next = 0;
    for (const uint32_t number : setup_.own) {
      const Shard& shard = setup_.shards[number];
      uint64_t count = 0;
      for (uint32_t unit = shard.begin; unit < shard.end; ++unit) count += unit_parameters[unit - setup_.first_unit];
      CommonShard& common = common_.emplace_back();
      for (auto [from, to] : {std::make_pair(&state.theta, &common.theta), std::make_pair(&state.momentum, &common.v),
                              std::make_pair(&state.residual, &common.residual)}) {
        if (from->empty()) continue;
        const auto begin = from->begin() + static_cast<ptrdiff_t>(next);
        to->assign(begin, begin + static_cast<ptrdiff_t>(count));
      }
      common.next_theta.resize(count);  // now, not when the first round begins
      begin_.push_back(next);
      next += count;
    }
  }

  void AnswerCaptures() {
    while (!captures_.empty() && captures_.front().second <= committed_) {
      OnWorker([step = captures_.front().first, state = State()](Shared& shared) mutable {
        const auto on_captured = shared.events.on_captured;  // may end the owner
        on_captured(step, std::move(state));
      });
      captures_.pop_front();
    }
  }

  CommonState State() const {
    CommonState state;
    state.rounds = committed_;
    for (const CommonShard& shard : common_) {
      const size_t end = state.theta.size() + shard.theta.size();
      state.theta.insert(state.theta.end(), shard.theta.begin(), shard.theta.end());
      // What no round has touched yet is zero.
      if (setup_.averaging.outer.HasMomentum()) {
        state.momentum.insert(state.momentum.end(), shard.v.begin(), shard.v.end());
        state.momentum.resize(end);
      }
      if (setup_.averaging.error_feedback) {
        state.residual.insert(state.residual.end(), shard.residual.begin(), shard.residual.end());
        state.residual.resize(end);
      }
    }
    return state;
  }

  void OnSettled(const RoundExchange& exchange) {
    const ExchangeTerms& terms = exchange.terms();
    if (exchange.phase() == RoundExchange::Phase::kFailed) {
      const size_t own = terms.shard - setup_.own[0];
      const std::optional<uint32_t> rank = exchange.broken_rank();
      return Fail(exchange.failure(), rank ? setup_.owners[own][*rank] : "");
    }
    WorkerMessage message;
    RoundProposal& proposal = *message.mutable_round_proposal();
    proposal.set_epoch(setup_.epoch);
    proposal.set_round(terms.round);
    proposal.set_attempt(terms.attempt);
    proposal.set_shard(terms.shard);
    proposal.set_hash(exchange.hash());
    Report(std::move(message));
  }

  void Report(WorkerMessage message) {
    OnWorker([message = std::move(message)](Shared& shared) { shared.events.on_report(message); });
  }

  void Fail(const absl::Status& status, const std::string& peer) {
    OnWorker([status, peer](Shared& shared) {
      const auto on_failed = shared.events.on_failed;  // may end the owner
      on_failed(status, peer);
    });
  }

  void OnWorker(std::function<void(Shared&)> function) {
    worker_->Post([shared = shared_, function = std::move(function)] {
      if (shared->owner != nullptr) function(*shared);
    });
  }

  const RoundSetup setup_;
  EventLoop* const worker_;
  const std::shared_ptr<Shared> shared_;
  RoundCarrier::Options carrier_;
  std::unique_ptr<RoundCarrier> running_;
  std::vector<CommonShard> common_;  // of each own shard
  std::vector<uint64_t> begin_;      // where it begins in the stage's weights
  SharedWeights pinned_;
  uint64_t round_ = 0, committed_ = 0;
  std::deque<std::pair<uint64_t, uint64_t>> captures_;  // checkpoint step, round; as many as are being written
};

StageRounds::StageRounds(RoundSetup setup, EventLoop* worker, EventLoop* averaging, LinkFactory* links, Events events)
    : averaging_(averaging), shared_(std::make_shared<Shared>()) {
  shared_->owner = this;
  shared_->events = std::move(events);
  work_ = std::make_shared<Work>(std::move(setup), worker, averaging, links, shared_);
  averaging_->Post([work = work_] { work->Open(); });
}

StageRounds::~StageRounds() {
  shared_->owner = nullptr;
  shared_->events = Events{};
  averaging_->Post([work = std::move(work_)] { work->Close(); });
}

void StageRounds::OnPinned(uint64_t round, uint64_t version, SharedWeights weights,
                           std::vector<uint64_t> unit_parameters) {
  averaging_->Post([work = work_, round, version, weights = std::move(weights), unit = std::move(unit_parameters)] {
    work->Pinned(round, version, weights, unit);
  });
}

void StageRounds::Restore(CommonState state, std::vector<uint64_t> unit_parameters) {
  averaging_->Post(
      [work = work_, state = std::move(state), unit = std::move(unit_parameters)] { work->Restore(state, unit); });
}

void StageRounds::Capture(uint64_t checkpoint_step, uint64_t round) {
  averaging_->Post([work = work_, checkpoint_step, round] { work->Capture(checkpoint_step, round); });
}

void StageRounds::OnFix(const RoundFix& fix) {
  averaging_->Post([work = work_, fix] { work->Fix(fix); });
}

void StageRounds::OnAbort(const RoundAbort& abort) {
  averaging_->Post([work = work_, abort] { work->Abort(abort); });
}

void StageRounds::OnCommit(const RoundCommit& commit) {
  averaging_->Post([work = work_, commit] { work->Commit(commit); });
}

uint64_t StageRounds::bytes_sent() const {
  averaging_->Post([work = work_] { work->CountBytes(); });
  return bytes_sent_;
}

void StageRounds::OnPipelineFrame() {
  averaging_->Post([work = work_] { work->PipelineFrame(); });
}

}  // namespace stagecoach
