#include "coordinator/store/run_journal.h"

#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

std::string FreshFolder(const std::string& name) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/", name, "-", getpid());
  std::filesystem::remove_all(folder);
  return folder;
}

// One suite over both implementations.
class RunJournalTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override { Reopen(); }
  void Reopen() {
    if (!GetParam()) {
      if (!journal_) journal_ = CreateMemoryJournal();
      return;
    }
    journal_.reset();
    auto opened = OpenSqliteJournal(folder_);
    ASSERT_TRUE(opened.ok()) << opened.status();
    journal_ = *std::move(opened);
  }
  const std::string folder_ = FreshFolder("journal");
  std::unique_ptr<RunJournal> journal_;
};

TEST_P(RunJournalTest, Counters_NeverRepeat) {
  EXPECT_EQ(*journal_->NextEpoch(), 1u);
  EXPECT_EQ(*journal_->NextEpoch(), 2u);
  EXPECT_EQ(*journal_->NextTerm(), 1u);
  Reopen();
  EXPECT_EQ(*journal_->NextEpoch(), 3u);
  EXPECT_EQ(*journal_->NextTerm(), 2u);
}

TEST_P(RunJournalTest, Rows_AreThereAfterReopening) {
  JournalBatch batch;
  batch.steps = {{0, 5.5, 1, 2, false}, {1, 5.25, 0.5, 3, true}};
  batch.evaluations = {{2, 5.0}};
  batch.checkpoints = {{2, "abc"}};
  batch.rounds = {{1, 2, "def"}};
  ASSERT_EQ(journal_->Append("run", batch), absl::OkStatus());
  ASSERT_EQ(journal_->Append("other", JournalBatch{{{0, 1, 1, 1, false}}, {}, {}, {}}), absl::OkStatus());
  ASSERT_EQ(journal_->SaveRun("run", {"running", "{}", 7}), absl::OkStatus());
  Reopen();
  const auto read = journal_->Read("run");
  ASSERT_TRUE(read.ok());
  ASSERT_EQ(read->steps.size(), 2u);
  EXPECT_EQ(read->steps[1].loss, 5.25);
  EXPECT_TRUE(read->steps[1].skip);
  EXPECT_EQ(read->evaluations[0].loss, 5.0);
  EXPECT_EQ(read->checkpoints[0].weight_hash, "abc");
  ASSERT_EQ(read->rounds.size(), 1u);
  EXPECT_EQ(read->rounds[0].step, 2u);
  EXPECT_EQ(read->rounds[0].hash, "def");
  EXPECT_EQ(journal_->ReadRun("run")->epoch, 7u);
  EXPECT_EQ(journal_->ReadRun("none").status().code(), absl::StatusCode::kNotFound);
}

TEST_P(RunJournalTest, RepeatedStep_ReplacesTheRow) {
  ASSERT_TRUE(journal_->Append("run", JournalBatch{{{3, 1, 1, 1, false}}, {}, {}, {}}).ok());
  ASSERT_TRUE(journal_->Append("run", JournalBatch{{{3, 2, 1, 1, false}}, {}, {}, {}}).ok());
  EXPECT_EQ(journal_->Read("run")->steps.size(), 1u);
  EXPECT_EQ(journal_->Read("run")->steps[0].loss, 2);
}

TEST_P(RunJournalTest, ListRuns_HasEachWithItsStateAndSteps) {
  const auto step = [](uint64_t index) { return JournalBatch{{{index, 1, 1, 1, false}}, {}, {}, {}}; };
  ASSERT_TRUE(journal_->SaveRun("one", {"8 lost", "{}", 3}).ok());
  ASSERT_TRUE(journal_->SaveRun("one-more", {"6 ", "{}", 4}).ok());
  ASSERT_TRUE(journal_->SaveRun("two", {"7 stopped", "{}", 9}).ok());
  ASSERT_TRUE(journal_->SaveRun("never", {"8 no data", "", 0}).ok());
  ASSERT_TRUE(journal_->Append("one", step(4)).ok());
  ASSERT_TRUE(journal_->Append("one-more", step(30)).ok());
  ASSERT_TRUE(journal_->Append("two/cluster-0", step(6)).ok());
  ASSERT_TRUE(journal_->Append("two/cluster-1", step(5)).ok());
  Reopen();
  const auto list = journal_->ListRuns(100);
  ASSERT_TRUE(list.ok()) << list.status();
  ASSERT_EQ(list->size(), 4u);
  EXPECT_EQ((*list)[0].run, "two");
  EXPECT_EQ((*list)[0].state, "7 stopped");
  EXPECT_EQ((*list)[0].steps, 6u);
  EXPECT_EQ((*list)[1].steps, 31u);
  EXPECT_EQ((*list)[2].steps, 5u);
  EXPECT_EQ((*list)[3].run, "never");
  EXPECT_EQ((*list)[3].steps, 0u);
  EXPECT_EQ(journal_->ListRuns(2)->size(), 2u);
}

// The rows of a longer run of that name stayed behind those of the new one.
TEST_P(RunJournalTest, Rewind_ForgetsLaterRowsOfThatRunOnly) {
  JournalBatch batch;
  batch.steps = {{0, 1, 1, 1, false}, {1, 1, 1, 1, false}, {2, 1, 1, 1, false}};
  batch.evaluations = {{1, 5.0}, {2, 4.0}, {3, 3.0}};
  batch.checkpoints = {{2, "abc"}, {3, "def"}};
  for (const char* run : {"run", "run/cluster-1", "run-2"}) ASSERT_TRUE(journal_->Append(run, batch).ok());
  ASSERT_EQ(journal_->Rewind("run", 2), absl::OkStatus());
  for (const char* run : {"run", "run/cluster-1"}) {
    EXPECT_EQ(journal_->Read(run)->steps.size(), 2u);
    EXPECT_EQ(journal_->Read(run)->evaluations.size(), 2u);
    EXPECT_EQ(journal_->Read(run)->checkpoints.size(), 1u);
  }
  EXPECT_EQ(journal_->Read("run-2")->steps.size(), 3u);
}

INSTANTIATE_TEST_SUITE_P(Stores, RunJournalTest, ::testing::Values(false, true),
                         [](const auto& it) { return it.param ? "Sqlite" : "Memory"; });

// Both took turns with the rows.
TEST(SqliteJournalTest, SecondCoordinator_IsRefusedWhileTheFirstLives) {
  const std::string folder = FreshFolder("journal-shared");
  auto first = OpenSqliteJournal(folder);
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::Status second = OpenSqliteJournal(folder).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(second.message().find("in use by another coordinator"), absl::string_view::npos) << second;
  first->reset();
  EXPECT_TRUE(OpenSqliteJournal(folder).ok());
}

TEST(SqliteJournalTest, UnusableFolder_IsNamed) {
  const auto journal = OpenSqliteJournal("/proc/nothing/here");
  EXPECT_EQ(journal.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(journal.status().message().find("/proc/nothing/here"), absl::string_view::npos);
}

}  // namespace
}  // namespace stagecoach
