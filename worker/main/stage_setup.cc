#include "worker/main/stage_setup.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_store.h"
#include "common/codec/number_codec.h"
#include "common/status_macros.h"
#include "model/record_reader.h"

namespace stagecoach {
namespace {

// A norm vector has 8 bytes for each parameter tensor from here on down: a thousand blocks of a hundred tensors fit.
constexpr size_t kMaxNormBytes = 1u << 20;
constexpr size_t kMaxScalarBytes = 256;  // StepScalar: four fields

absl::Status CheckPlan(const AssignStage& assign, const RunConfig& config, const std::string& own_name,
                       uint64_t own_incarnation) {
  const Plan& plan = assign.plan();
  if (static_cast<uint32_t>(plan.stages_size()) != config.num_stages() || assign.stage() >= config.num_stages()) {
    return absl::InvalidArgumentError(absl::StrCat("plan does not fit the record's cuts: stages=", plan.stages_size(),
                                                   " cuts=", config.cuts.size(), " stage=", assign.stage()));
  }
  const StageAssignment& own = plan.stages(static_cast<int>(assign.stage()));
  if (own.worker() != own_name || own.incarnation() != own_incarnation) {
    return absl::InvalidArgumentError(
        absl::StrCat("the stage is another worker's: stage=", assign.stage(), " worker=", own.worker()));
  }
  if (own.first_unit() != config.first_unit(assign.stage()) || own.end_unit() != config.end_unit(assign.stage())) {
    return absl::InvalidArgumentError(absl::StrCat("plan and record disagree about the layers of stage ",
                                                   assign.stage(), ": units ", own.first_unit(), "..", own.end_unit()));
  }
  for (const StageAssignment& stage : plan.stages()) {
    if (stage.window() == 0) return absl::InvalidArgumentError(absl::StrCat("window 0 at stage ", stage.stage()));
  }
  return absl::OkStatus();
}

StageCoreConfig CoreConfig(const AssignStage& assign, const RunConfig& config) {
  StageCoreConfig core;
  core.stage = assign.stage();
  core.num_stages = config.num_stages();
  core.window = assign.plan().stages(static_cast<int>(assign.stage())).window();
  if (assign.stage() > 0) core.input_window = assign.plan().stages(static_cast<int>(assign.stage()) - 1).window();
  core.rule = config.RuleOfStage(assign.stage());
  core.order = config.Order();
  core.total_steps = config.total_steps;
  core.first_step = assign.first_step();
  core.end_step =
      assign.stop_after_step() == 0 ? config.total_steps : std::min(assign.stop_after_step(), config.total_steps);
  core.checkpoint_every = config.checkpoint_every;
  const bool gpipe = assign.record().spec().schedule().kind() == SCHEDULE_KIND_GPIPE;
  core.policy = gpipe ? StagePolicy::kForwardsFirst : StagePolicy::kAlternate;
  core.clip_scope = config.clip_none        ? ClipScope::kNone
                    : config.clip_per_stage ? ClipScope::kStage
                                            : ClipScope::kGlobal;
  core.clip_norm = config.clip_norm;
  core.rounds = config.averaging.rounds;
  return core;
}

// `boundary` lies between stages boundary and boundary + 1.
NeighbourLink MakeLink(const Plan& plan, const RunConfig& config, uint32_t boundary, bool neighbour_is_above,
                       const AddressOfWorker& address_of) {
  const StageAssignment& upper = plan.stages(static_cast<int>(boundary));
  const StageAssignment& lower = plan.stages(static_cast<int>(boundary) + 1);
  StreamIdentity down;
  down.run = plan.run();
  down.cluster = plan.cluster();
  down.epoch = plan.epoch();
  down.sender = upper.worker();
  down.sender_incarnation = upper.incarnation();
  down.receiver_incarnation = lower.incarnation();
  down.cut = config.cuts[boundary];
  down.direction = LinkDirection::kForward;
  down.wire_format = static_cast<uint32_t>(config.codecs[boundary]);
  down.rows = config.sequences * config.tokens;
  down.columns = config.model.boundary_columns();
  StreamIdentity up = down;
  up.sender = lower.worker();
  up.sender_incarnation = lower.incarnation();
  up.receiver_incarnation = upper.incarnation();
  up.direction = LinkDirection::kBackward;

  const StageAssignment& neighbour = neighbour_is_above ? upper : lower;
  NeighbourLink link;
  link.worker = neighbour.worker();
  link.address = address_of(neighbour.worker(), neighbour.address());
  link.outgoing = neighbour_is_above ? up : down;
  link.incoming = neighbour_is_above ? down : up;
  link.limits.tensor_bytes = EncodedBytes(config.codecs[boundary], down.rows, down.columns);
  link.limits.max_control_bytes = neighbour_is_above ? kMaxScalarBytes : kMaxNormBytes;
  // Both directions of a boundary are bounded by the window of its upper stage. As many control frames again can stand
  // between them (M = 1: one each), and a few around the ends of a run.
  link.limits.max_frames_held = 2 * upper.window() + 8;
  return link;
}

// What `from` sends to `to` in rounds.
StreamIdentity AveragingStream(const Plan& from_plan, const StageAssignment& from, const StageAssignment& to,
                               AveragingCodec codec) {
  StreamIdentity identity;
  identity.run = from_plan.run();
  identity.cluster = from_plan.cluster();
  identity.epoch = from_plan.epoch();
  identity.sender = from.worker();
  identity.sender_incarnation = from.incarnation();
  identity.receiver_incarnation = to.incarnation();
  identity.cut = from.first_unit();
  identity.direction = LinkDirection::kAveraging;
  identity.wire_format = static_cast<uint32_t>(codec);
  return identity;
}

absl::Status CheckClusterPlans(const AssignStage& assign, const RunConfig& config) {
  if (static_cast<uint32_t>(assign.cluster_plans_size()) != config.num_clusters) {
    return absl::InvalidArgumentError(
        absl::StrCat("plans of ", assign.cluster_plans_size(), " clusters, the run has ", config.num_clusters));
  }
  for (uint32_t c = 0; c < config.num_clusters; ++c) {
    const StageCuts& cuts = config.cluster_cuts[c];
    const Plan& plan = assign.cluster_plans(static_cast<int>(c));
    bool fits = static_cast<size_t>(plan.stages_size()) + 1 == cuts.size();
    for (int i = 0; fits && i < plan.stages_size(); ++i) {
      fits = plan.stages(i).first_unit() == cuts[static_cast<size_t>(i)] &&
             plan.stages(i).end_unit() == cuts[static_cast<size_t>(i) + 1];
    }
    if (!fits) return absl::InvalidArgumentError(absl::StrCat("plan and record disagree about cluster ", c));
  }
  return absl::OkStatus();
}

absl::StatusOr<RoundSetup> ReadRounds(const AssignStage& assign, const RunConfig& config,
                                      const AddressOfWorker& address_of) {
  RETURN_IF_ERROR(CheckClusterPlans(assign, config));
  RoundSetup setup;
  setup.averaging = config.averaging;
  setup.epoch = assign.plan().epoch();
  setup.cluster = config.cluster;
  setup.first_unit = config.first_unit(assign.stage());
  setup.uplink_bytes_per_second = assign.uplink_bytes_per_second();
  ASSIGN_OR_RETURN(setup.shards, RefineCuts(config.cluster_cuts));
  setup.own = ShardsOfStage(setup.shards, config.cluster, assign.stage());
  for (const Plan& plan : assign.cluster_plans()) setup.epochs.push_back(plan.epoch());
  const StageAssignment& own = assign.plan().stages(static_cast<int>(assign.stage()));
  std::set<std::string> met;
  for (const uint32_t shard : setup.own) {
    std::vector<std::string>& owners = setup.owners.emplace_back();
    for (uint32_t c = 0; c < config.num_clusters; ++c) {
      if (c == config.cluster) {
        owners.emplace_back();
        continue;
      }
      const Plan& plan = assign.cluster_plans(static_cast<int>(c));
      const StageAssignment& other = plan.stages(static_cast<int>(setup.shards[shard].owner[c]));
      owners.push_back(other.worker());
      if (!met.insert(other.worker()).second) continue;
      setup.partners.push_back({other.worker(), address_of(other.worker(), other.address()),
                                AveragingStream(assign.plan(), own, other, config.averaging.codec),
                                AveragingStream(plan, other, own, config.averaging.codec)});
    }
  }
  return setup;
}

}  // namespace

absl::StatusOr<StageOrder> ReadStageOrder(const AssignStage& assign, const std::string& own_name,
                                          uint64_t own_incarnation, const AddressOfWorker& address_of) {
  ASSIGN_OR_RETURN(RunConfig config, ReadRunConfig(assign.record(), assign.cluster()));
  RETURN_IF_ERROR(CheckPlan(assign, config, own_name, own_incarnation));
  StageOrder order;
  StageSetup& setup = order.setup;
  setup.core = CoreConfig(assign, config);
  if (setup.core.first_step >= setup.core.end_step) {
    return absl::InvalidArgumentError(
        absl::StrCat("nothing to do: first step ", setup.core.first_step, ", end after step ", setup.core.end_step));
  }
  setup.epoch = assign.plan().epoch();
  setup.microbatch_tokens = uint64_t{config.sequences} * config.tokens;
  setup.evaluation_microbatches = config.evaluation_microbatches;
  setup.run_dir = assign.record().spec().run_dir();
  setup.checkpoint_folder = ClusterFolder(config.cluster, config.num_clusters);
  setup.cluster_steps = config.cluster_steps;
  if (config.averaging.rounds.enabled()) {
    ASSIGN_OR_RETURN(setup.rounds, ReadRounds(assign, config, address_of));
  }
  const uint32_t stage = assign.stage();
  if (stage > 0) setup.above = MakeLink(assign.plan(), config, stage - 1, true, address_of);
  if (stage + 1 < config.num_stages()) setup.below = MakeLink(assign.plan(), config, stage, false, address_of);

  order.executor.stage = stage;
  order.executor.window = setup.core.window;
  order.executor.first_step = assign.first_step();
  order.executor.checkpoint_dir = assign.checkpoint_dir();
  if (!assign.checkpoint_dir().empty() && !setup.checkpoint_folder.empty()) {
    order.executor.checkpoint_dir = absl::StrCat(assign.checkpoint_dir(), "/", setup.checkpoint_folder);
  }
  order.executor.config = std::move(config);
  return order;
}

}  // namespace stagecoach
