// The rounds of a run of several clusters: gathers what stages report until a cluster is ready, lets RoundMachine
// decide, and sends what it decided. Deterministic mode: every cluster takes part in every round, with the weights of
// the same step.
//
// Threading: confined to the coordinator loop. Errors: `fatal` gets the text; the run must not go on.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/averaging/shard_map.h"
#include "common/event_loop.h"
#include "coordinator/domain/round_machine.h"
#include "protos/coordinator.pb.h"

namespace stagecoach {

class RunRounds {
 public:
  struct Surroundings {
    std::function<void(const CoordinatorMessage& message)> send_to_all;  // members of the run
    // Durably; then OnJournaled. `hash` is over those of all shards.
    std::function<void(uint64_t round, uint64_t step, const std::string& hash)> journal;
    std::function<void(const std::string& error)> fatal;
  };

  // True: the clusters of this run average.
  static bool Has(const RunRecord& record);

  // `first_step`: steps that earlier lives of the run have done, with their rounds.
  RunRounds(const RunRecord& record, uint64_t epoch, uint64_t first_step, Surroundings around);

  void Start(MonoTime now);
  // INVALID_ARGUMENT: what no worker of ours says.
  absl::Status OnReady(MonoTime now, size_t cluster, size_t stage, const RoundReady& ready);
  absl::Status OnProposal(MonoTime now, size_t cluster, size_t stage, const RoundProposal& proposal);
  void OnJournaled(MonoTime now, uint64_t round);
  void OnTick(MonoTime now);

  uint64_t committed() const { return committed_; }
  double mean_seconds() const { return committed_ == 0 ? 0 : exchange_seconds_ / static_cast<double>(committed_); }
  double mean_wait_seconds() const { return committed_ == 0 ? 0 : wait_seconds_ / static_cast<double>(committed_); }

 private:
  void Perform(MonoTime now, const RoundEffects& effects);
  void SendFix(const RoundEffect& fix);
  void Announce(MonoTime now, size_t cluster);

  const uint64_t epoch_;
  const uint64_t tokens_per_step_;  // of one cluster
  const Surroundings around_;
  std::vector<StageCuts> cuts_;
  std::vector<Shard> shards_;
  RoundMachine machine_;
  uint64_t first_round_ = 1;                  // of this life
  uint64_t step_ = 0, last_step_ = 0;         // of the open round, once a stage is ready; of the one before it
  std::map<size_t, std::set<size_t>> ready_;  // cluster: its stages
  MonoTime first_ready_{0}, all_ready_{0};
  uint64_t committed_ = 0;
  double exchange_seconds_ = 0, wait_seconds_ = 0;
};

}  // namespace stagecoach
