#include "coordinator/service/run_state_text.h"

#include "gtest/gtest.h"

namespace stagecoach {
namespace {

TEST(RunStateTextTest, EndedRuns_ComeBackAsTheyWere) {
  const SavedRunState failed = ParseSavedState(FormatSavedState(RunPhase::kFailed, "worker b was lost: killed"));
  EXPECT_EQ(failed.state, RUN_STATE_FAILED);
  EXPECT_EQ(failed.detail, "worker b was lost: killed");
  const SavedRunState finished = ParseSavedState(FormatSavedState(RunPhase::kFinished, ""));
  EXPECT_EQ(finished.state, RUN_STATE_FINISHED);
  EXPECT_EQ(finished.detail, "");
}

TEST(RunStateTextTest, RunThatHadNotEnded_FailedWithItsCoordinator) {
  const SavedRunState running = ParseSavedState(FormatSavedState(RunPhase::kRunning, ""));
  EXPECT_EQ(running.state, RUN_STATE_FAILED);
  EXPECT_NE(running.detail.find("checkpoints stay"), std::string::npos);
}

TEST(RunStateTextTest, AnythingElse_IsShownAsItIs) {
  EXPECT_EQ(ParseSavedState("running").state, RUN_STATE_UNSPECIFIED);
  EXPECT_EQ(ParseSavedState("99 x").detail, "99 x");
  EXPECT_EQ(ParseSavedState("").detail, "");
}

}  // namespace
}  // namespace stagecoach
