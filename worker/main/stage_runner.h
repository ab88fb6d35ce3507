// One stage of one plan at work: turns frames and finished computations into events of StageCore, and carries out the
// effects that the core answers with, on the executor, on the links and towards the coordinator.
//
//   created --OpenLinks, SetExecutor--> loading --all streams up--> ready --Start--> running --> finished
//        any state --error--> failed          any state --Close--> closed
//
// Payloads are kept by item sequence from the frame's arrival until the core releases them; they are never copied.
// Frames that arrive before Start (a neighbour may start earlier) wait; the link's limit bounds them.
//
// Threading: every method is called on the worker loop. Computations run on the compute loop, files are written on the
// bulk loop, rounds with other clusters run on the averaging loop; all post their results back. The loops outlive the
// runner. Errors: reported once through on_failed, with the neighbour that it concerns; afterwards the runner is inert.
// Ownership: a shared_ptr, because results under way keep it alive. Close breaks the ties to links and executor.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/cluster_rules.h"
#include "common/data_tally.h"
#include "common/event_loop.h"
#include "protos/coordinator.pb.h"
#include "worker/compute/stage_executor.h"
#include "worker/domain/stage_core.h"
#include "worker/link/peer_link.h"
#include "worker/main/stage_compute.h"
#include "worker/main/stage_meter.h"
#include "worker/main/stage_rounds.h"

namespace stagecoach {

// Both streams of one boundary, seen from this stage.
struct NeighbourLink {
  std::string worker;   // name, for messages
  std::string address;  // host:port to dial
  StreamIdentity outgoing, incoming;
  ReceiveLimits limits;  // of the incoming stream
};

struct StageSetup {
  StageCoreConfig core;
  uint64_t epoch = 0;
  uint64_t microbatch_tokens = 1;
  uint32_t evaluation_microbatches = 0;
  std::string run_dir;
  std::string checkpoint_folder;     // of this cluster inside that of a checkpoint; empty in a run of one cluster
  ClusterSteps cluster_steps;        // which data the microbatches are
  std::optional<RoundSetup> rounds;  // with the other clusters
  std::optional<NeighbourLink> above, below;
};

struct StageLoops {
  EventLoop* worker = nullptr;
  EventLoop* compute = nullptr;
  EventLoop* bulk = nullptr;
  EventLoop* averaging = nullptr;  // only used by a stage with rounds
};

struct StageEvents {
  std::function<void()> on_ready;
  // StepReport, EvaluationReport, CheckpointPart, StopPoint, StageFinished, RoundReady, RoundProposal
  std::function<void(WorkerMessage)> on_report;
  std::function<void(absl::Status status, std::string peer)> on_failed;
};

class StageRunner : public std::enable_shared_from_this<StageRunner> {
 public:
  static std::shared_ptr<StageRunner> Create(StageSetup setup, StageLoops loops, StageEvents events);
  ~StageRunner();

  void OpenLinks(LinkFactory& factory);
  // `common`: of a stage with rounds that goes on from a checkpoint.
  void SetExecutor(std::shared_ptr<StageExecutor> executor, std::optional<CommonState> common = std::nullopt);
  void Start();        // once, when ready
  void RequestStop();  // stage 0: end at the next step boundary that is possible
  void HoldForStop();  // stage 0: see StageCore
  void StopAfter(uint64_t end_step);
  void OnRound(const CoordinatorMessage& message);  // RoundFix, RoundAbort, RoundCommit
  void Close();                                     // drop links and executor now; nothing is reported any more

  bool ready() const;
  bool finished() const { return reported_finished_; }
  uint64_t epoch() const { return setup_.epoch; }
  uint64_t next_forward() const { return core_.next_forward(); }
  uint64_t next_backward() const { return core_.next_backward(); }
  uint64_t parameter_count() const { return executor_ ? executor_->parameter_count() : 0; }
  WorkerCounters Counters() const;

 private:
  enum class Side { kAbove, kBelow };
  struct Stream {  // the two streams to one neighbour
    std::unique_ptr<FrameSender> sender;
    std::unique_ptr<FrameReceiver> receiver;
    bool sender_up = false, receiver_up = false;
    bool blocked = false;
  };

  StageRunner(StageSetup setup, StageLoops loops, StageEvents events);

  // Links (stage_runner_links.cc).
  void OpenSide(LinkFactory& factory, Side side, const NeighbourLink& link);
  void OnFrame(Side side, LinkFrame frame);
  StageEffects FrameToEvent(Side side, LinkFrame frame);
  StageEffects FrameFromAbove(LinkFrame frame);
  StageEffects FrameFromBelow(LinkFrame frame);
  absl::StatusOr<Item> ExpectedItem(const LinkFrame& frame, uint64_t* next_sequence) const;
  void OnStreamClosed(Side side, absl::Status status);
  void OnSent(Side side);
  bool UpdateBlocked();
  Stream& StreamOf(Side side) { return side == Side::kAbove ? above_ : below_; }
  const std::string& PeerOf(Side side) const;
  void SendItem(Side side, FrameKind kind, const Item& item);
  void SendControl(Side side, FrameKind kind, uint64_t n, absl::string_view payload);

  // Effects (stage_runner.cc).
  void Apply(StageEffects effects, const std::string& peer);
  absl::Status Perform(StageEffect effect);
  absl::Status Compute(ComputeEffect effect);
  void PostCompute(ComputeEffect effect, Payload input);
  absl::Status CheckLag(const Item& item, uint32_t weights_buffer);
  void OnComputed(const ComputeEffect& effect, ComputeOutcome outcome);
  void ReportResult(const ComputeEffect& effect, const ComputeOutcome& outcome);
  void OpenRounds(LinkFactory& factory);
  void OnRoundResult(uint64_t round, RoundValues values);
  void OnCaptured(uint64_t step, std::vector<CheckpointUnit> units);
  void OnCommonCaptured(uint64_t step, CommonState state);
  struct CapturedUnits {
    std::vector<CheckpointUnit> units;
    SharedWeights pinned;
  };
  void WriteCheckpoint(uint64_t step, CapturedUnits captured, std::optional<CommonState> common);
  void OnCheckpointWritten(std::vector<CheckpointPart> parts);
  void NoteScalar(const ReportScalar& scalar);
  void FlushScalar(double learning_rate);
  void Measure();
  void MaybeReady();
  void MaybeFinished();
  void Fail(absl::Status status, const std::string& peer);

  // Constant after construction.
  const StageSetup setup_;
  const StageLoops loops_;
  const std::shared_ptr<HostBufferPool> control_pool_;

  StageEvents events_;
  StageCore core_;
  std::shared_ptr<StageExecutor> executor_;
  std::vector<uint64_t> unit_parameters_;  // of the executor
  std::unique_ptr<StageRounds> rounds_;
  SharedWeights pinned_;      // contributed to the round whose result has not entered the weights yet
  RoundValues round_values_;  // of the round that has been committed and has not entered the weights yet
  Stream above_, below_;
  std::deque<std::pair<Side, LinkFrame>> early_frames_;
  std::map<uint64_t, Payload> inputs_, gradients_;  // by item sequence
  uint64_t next_input_ = 0, next_gradient_ = 0;     // sequence of the next item expected from above, from below
  Payload output_;                                  // of the compute effect that has just ended
  std::optional<StepReport> scalar_report_;         // waits for the learning rate of its update
  double step_loss_ = 0, evaluation_loss_ = 0;
  std::map<uint64_t, CapturedUnits> without_common_;  // by checkpoint step: wait for the commit of their round
  std::optional<CommonState> common_;                 // from the checkpoint, until Start
  int checkpoints_writing_ = 0;                       // with those
  std::optional<RunFinishCapture> held_capture_;      // waits until fewer checkpoints are being written
  std::optional<uint64_t> finished_steps_;
  StageMeter meter_;
  DataTally trained_;  // microbatches that went backward here, by global index
  bool links_open_ = false, reported_ready_ = false, started_ = false, reported_finished_ = false, closed_ = false;
};

}  // namespace stagecoach
