// What rounds with other clusters make a stage wait for, what they do not, and that the ends of lives change nothing.
// One stage that is the whole model: everything that can run does run.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/domain/stage_core.h"

namespace stagecoach {
namespace {

constexpr uint32_t kM = 2;

StageCoreConfig Config(uint64_t every, uint64_t delay, uint64_t steps, uint32_t j = 0) {
  StageCoreConfig config;
  config.window = 4;
  config.rule = VersionRule(kM, {{0, j}});
  config.order = ItemOrder(kM, steps, 0, 1);
  config.total_steps = config.end_step = steps;
  config.rounds = {every, delay};
  return config;
}

// Ends every computation at once and writes down what ran, until nothing can.
class Lane {
 public:
  explicit Lane(StageCoreConfig config) : core_(std::move(config)) { Take(core_.Start()); }

  // Since the last call. u3: the update that makes version 3 (u3+1: with round 1); pin1@4, apply1@4, replace1@4; e:
  // an evaluation microbatch; capture6, finish6: of the checkpoint of step 6; end6.
  std::string Log() {
    std::string text = absl::StrJoin(log_, " ");
    log_.clear();
    return text;
  }
  void Result(uint64_t round) { Take(core_.OnRoundResult(round)); }
  void Stop() { Take(core_.RequestStop()); }
  StageCore& core() { return core_; }

 private:
  void Take(StageEffects effects) {
    ASSERT_TRUE(effects.ok()) << effects.status();
    bool computes = false;
    for (const StageEffect& effect : *effects) computes |= Note(effect);
    if (computes) Take(core_.OnComputeDone({1.0}));
  }
  void Captures(const std::vector<uint64_t>& steps) {
    for (const uint64_t step : steps) log_.push_back(absl::StrCat("capture", step));
  }
  // True: a compute effect.
  bool Note(const StageEffect& effect) {
    if (const auto* update = std::get_if<RunUpdate>(&effect)) {
      log_.push_back(
          absl::StrCat("u", update->step + 1, update->round > 0 ? absl::StrCat("+", update->round) : std::string()));
      Captures(update->capture_for);
    } else if (const auto* pin = std::get_if<RunPin>(&effect)) {
      log_.push_back(absl::StrCat("pin", pin->round, "@", pin->version));
    } else if (const auto* apply = std::get_if<RunApply>(&effect)) {
      log_.push_back(absl::StrCat(apply->replace ? "replace" : "apply", apply->round, "@", apply->version));
      Captures(apply->capture_for);
    } else if (std::holds_alternative<RunEvaluation>(effect)) {
      log_.push_back("e");
    } else if (const auto* capture = std::get_if<RunCapture>(&effect)) {
      log_.push_back(absl::StrCat("capture", capture->checkpoint_step));
    } else if (const auto* finish = std::get_if<RunFinishCapture>(&effect)) {
      log_.push_back(absl::StrCat("finish", finish->checkpoint_step));
    } else if (const auto* end = std::get_if<StageFinished>(&effect)) {
      log_.push_back(absl::StrCat("end", end->steps_done));
      return false;
    } else {
      return std::holds_alternative<RunForwardBackward>(effect) || std::holds_alternative<RunNorms>(effect);
    }
    return true;
  }

  StageCore core_;
  std::vector<std::string> log_;
};

TEST(StageCoreRounds, DelayedResult_HoldsOnlyTheVersionThatItEnters) {
  Lane lane(Config(4, 2, 9));
  EXPECT_EQ(lane.Log(), "pin0@0 u1 u2 u3 u4 pin1@4 u5");
  EXPECT_EQ(lane.core().wait_reason(), WaitReason::kRound);
  // Step 5 has been computed; its update alone is missing.
  EXPECT_EQ(lane.core().next_forward(), 6 * kM);
  lane.Result(1);
  EXPECT_EQ(lane.Log(), "u6+1 u7 u8 pin2@8");
  // The result of round 2 would enter version 10: the run ends with 9, so it enters there, and the last round follows.
  lane.Result(2);
  EXPECT_EQ(lane.Log(), "u9+2 pin3@9");
  lane.Result(3);
  EXPECT_EQ(lane.Log(), "replace3@9 e capture9 finish9 end9");
}

TEST(StageCoreRounds, ResultBeforeItsVersion_HoldsNothing) {
  // A hand on the lane: the result arrives while step 4 is being computed.
  StageCore core(Config(4, 2, 8));
  StageEffects effects = core.Start();
  uint64_t updates = 0;
  bool pinned = false;
  for (int i = 0; i < 200 && updates < 7; ++i) {
    ASSERT_TRUE(effects.ok()) << effects.status();
    for (const StageEffect& effect : *effects) {
      if (const auto* update = std::get_if<RunUpdate>(&effect)) {
        ++updates;
        EXPECT_EQ(update->round, update->step + 1 == 6 ? 1u : 0u);
      }
      if (const auto* pin = std::get_if<RunPin>(&effect)) pinned |= pin->round == 1;
    }
    ASSERT_TRUE(core.computing());
    if (pinned && updates == 4 && core.next_forward() == 4 * kM + 1) {
      ASSERT_TRUE(core.OnRoundResult(1).ok());
    }
    effects = core.OnComputeDone({1.0});
  }
  EXPECT_EQ(updates, 7u);
}

TEST(StageCoreRounds, NoDelay_VersionIsNotUsedBeforeItIsReplaced) {
  Lane lane(Config(2, 0, 4));
  EXPECT_EQ(lane.Log(), "pin0@0 u1 u2 pin1@2");
  EXPECT_EQ(lane.core().next_forward(), 2 * kM);
  EXPECT_EQ(lane.core().wait_reason(), WaitReason::kRound);
  lane.Result(1);
  EXPECT_EQ(lane.Log(), "replace1@2 u3 u4 pin2@4");
  lane.Result(2);
  EXPECT_EQ(lane.Log(), "replace2@4 e capture4 finish4 end4");
}

TEST(StageCoreRounds, OldVersions_StayInUseWhileANewOneWaits) {
  Lane lane(Config(2, 0, 6, /*j=*/kM));
  // With J = M step 2 uses version 1: all of it is computed, its update waits for the weights that the round leaves.
  EXPECT_EQ(lane.Log(), "pin0@0 u1 u2 pin1@2");
  EXPECT_EQ(lane.core().next_forward(), 3 * kM);
  lane.Result(1);
  EXPECT_EQ(lane.Log().substr(0, 13), "replace1@2 u3");
}

TEST(StageCoreRounds, Stop_ChangesNothingOfTheRounds) {
  Lane lane(Config(4, 3, 20));
  EXPECT_EQ(lane.Log(), "pin0@0 u1 u2 u3 u4 pin1@4 u5 u6");  // version 7 waits
  lane.Stop();                                               // step 6 has been computed: the end is 7
  EXPECT_EQ(lane.Log(), "");
  lane.Result(1);
  EXPECT_EQ(lane.Log(), "u7+1 capture7 finish7 end7");
}

TEST(StageCoreRounds, StopBetweenRoundAndResult_LeavesTheResultToTheNextLife) {
  StageCoreConfig config = Config(4, 3, 9);
  config.end_step = 6;  // --stop-after
  Lane lane(config);
  EXPECT_EQ(lane.Log(), "pin0@0 u1 u2 u3 u4 pin1@4 u5 u6 capture6 finish6 end6");
  lane.Result(1);  // the checkpoint waits for it
  EXPECT_EQ(lane.Log(), "");
  config.first_step = 6;
  config.end_step = 9;
  Lane next(config);
  EXPECT_EQ(next.Log(), "u7+1 u8 pin2@8");
  EXPECT_EQ(next.core().rounds_begun(), 2u);
  next.Result(2);
  EXPECT_EQ(next.Log(), "u9+2 pin3@9");
  next.Result(3);
  EXPECT_EQ(next.Log(), "replace3@9 e capture9 finish9 end9");
}

TEST(StageCoreRounds, StopAtARoundStep_IsResumedWithThatRound) {
  StageCoreConfig config = Config(4, 3, 20);
  config.end_step = 4;
  Lane lane(config);
  EXPECT_EQ(lane.Log(), "pin0@0 u1 u2 u3 u4 pin1@4 capture4 finish4 end4");
  config.first_step = 4;
  config.end_step = 8;
  EXPECT_EQ(Lane(config).Log(), "u5 u6 u7+1 u8 pin2@8 capture8 finish8 end8");
  config.rounds.delay_steps = 0;
  Lane without_delay(config);  // it replaced version 4 before the checkpoint
  EXPECT_EQ(without_delay.Log(), "u5 u6 u7 u8 pin2@8");
  EXPECT_EQ(without_delay.core().wait_reason(), WaitReason::kRound);
  without_delay.Result(2);
  EXPECT_EQ(without_delay.Log(), "replace2@8 capture8 finish8 end8");
}

TEST(StageCoreRounds, Checkpoints_HoldWhatTheRoundLeft) {
  StageCoreConfig config = Config(2, 0, 4);
  config.checkpoint_every = 2;
  Lane lane(config);
  EXPECT_EQ(lane.Log(), "pin0@0 u1 u2 pin1@2");
  lane.Result(1);
  EXPECT_EQ(lane.Log(), "replace1@2 capture2 finish2 u3 u4 pin2@4");
  lane.Result(2);
  EXPECT_EQ(lane.Log(), "replace2@4 e capture4 finish4 end4");  // once
  config.rounds.delay_steps = 1;
  Lane delayed(config);
  EXPECT_EQ(delayed.Log(), "pin0@0 u1 u2 capture2 pin1@2 finish2");
}

TEST(StageCoreRounds, ResultsOfOtherRounds_AreRefused) {
  Lane lane(Config(4, 2, 8));
  EXPECT_EQ(lane.core().OnRoundResult(2).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(lane.core().OnRoundResult(0).status().code(), absl::StatusCode::kFailedPrecondition);
  lane.Result(1);
  EXPECT_EQ(lane.core().OnRoundResult(1).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(StageCoreRounds, StopBeforeAnything_NeedsNoRound) {
  StageCoreConfig config = Config(4, 2, 8);
  StageCore core(config);
  const StageEffects stop = core.RequestStop();
  ASSERT_TRUE(stop.ok());
  ASSERT_TRUE(core.OnComputeDone().ok());
  ASSERT_TRUE(core.OnComputeDone().ok());
  EXPECT_TRUE(core.finished());
}

}  // namespace
}  // namespace stagecoach
