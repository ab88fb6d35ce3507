// The rounds of one stage with the owners of its parameters in other clusters: keeps the common weights, exchanges what
// was pinned, proposes, and hands over what was committed.
//
//   Pinned(round) -> RoundReady -> RoundFix: exchanges of all own shards -> RoundProposal each -> RoundCommit -> result
//                                      ^------------ RoundAbort, next attempt -------------'
//
// Threading: methods and events on the worker loop. Sums, codecs and hashes run on the averaging loop, so that neither
// control messages nor frames wait for them. The loops and the link factory outlive the object and what it posts.
// Errors: on_failed, once, with the worker that it concerns.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/averaging/averaging_config.h"
#include "common/averaging/shard_map.h"
#include "common/event_loop.h"
#include "protos/coordinator.pb.h"
#include "worker/average/partner_streams.h"
#include "worker/main/common_state.h"
#include "worker/main/stage_compute.h"

namespace stagecoach {

struct RoundSetup {
  AveragingConfig averaging;
  uint64_t epoch = 0;
  uint32_t cluster = 0;                          // our rank in every exchange
  uint32_t first_unit = 0;                       // of the stage
  std::vector<Shard> shards;                     // of the run
  std::vector<uint32_t> own;                     // numbers of those that lie in the stage: contiguous
  std::vector<uint64_t> epochs;                  // of each cluster's plan
  std::vector<std::vector<std::string>> owners;  // of each own shard: worker of each cluster; ours is empty
  std::vector<AveragingPartner> partners;        // every other owner, once
  double uplink_bytes_per_second = 0;
};

class StageRounds {
 public:
  struct Events {
    std::function<void(WorkerMessage)> on_report;  // RoundReady, RoundProposal
    std::function<void(uint64_t round, RoundValues values)> on_result;
    std::function<void(uint64_t checkpoint_step, CommonState state)> on_captured;  // pinned is left to the caller
    std::function<void(absl::Status status, std::string peer)> on_failed;
  };

  StageRounds(RoundSetup setup, EventLoop* worker, EventLoop* averaging, LinkFactory* links, Events events);
  ~StageRounds();  // no event comes afterwards

  // Round 0 sets the common weights. `unit_parameters`: of each unit of the stage.
  void OnPinned(uint64_t round, uint64_t version, SharedWeights weights, std::vector<uint64_t> unit_parameters);
  // Instead of round 0, from a checkpoint.
  void Restore(CommonState state, std::vector<uint64_t> unit_parameters);
  // For a checkpoint, as of the commit of `round`, which has begun; the next one has not.
  void Capture(uint64_t checkpoint_step, uint64_t round);
  void OnFix(const RoundFix& fix);
  void OnAbort(const RoundAbort& abort);
  void OnCommit(const RoundCommit& commit);
  void OnPipelineFrame();  // sent by this stage: pieces take their share only

  // Payload, as of the last commit, or of the call before this one if that was later.
  uint64_t bytes_sent() const;

 private:
  class Work;
  struct Shared;

  EventLoop* const averaging_;
  const std::shared_ptr<Shared> shared_;
  std::shared_ptr<Work> work_;
  uint64_t bytes_sent_ = 0;
};

}  // namespace stagecoach
