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
  ASSERT_EQ(journal_->Append("run", batch), absl::OkStatus());
  ASSERT_EQ(journal_->Append("other", JournalBatch{{{0, 1, 1, 1, false}}, {}, {}}), absl::OkStatus());
  ASSERT_EQ(journal_->SaveRun("run", {"running", "{}", 7}), absl::OkStatus());
  Reopen();
  const auto read = journal_->Read("run");
  ASSERT_TRUE(read.ok());
  ASSERT_EQ(read->steps.size(), 2u);
  EXPECT_EQ(read->steps[1].loss, 5.25);
  EXPECT_TRUE(read->steps[1].skip);
  EXPECT_EQ(read->evaluations[0].loss, 5.0);
  EXPECT_EQ(read->checkpoints[0].weight_hash, "abc");
  EXPECT_EQ(journal_->ReadRun("run")->epoch, 7u);
  EXPECT_EQ(journal_->ReadRun("none").status().code(), absl::StatusCode::kNotFound);
}

TEST_P(RunJournalTest, RepeatedStep_ReplacesTheRow) {
  ASSERT_TRUE(journal_->Append("run", JournalBatch{{{3, 1, 1, 1, false}}, {}, {}}).ok());
  ASSERT_TRUE(journal_->Append("run", JournalBatch{{{3, 2, 1, 1, false}}, {}, {}}).ok());
  EXPECT_EQ(journal_->Read("run")->steps.size(), 1u);
  EXPECT_EQ(journal_->Read("run")->steps[0].loss, 2);
}

INSTANTIATE_TEST_SUITE_P(Stores, RunJournalTest, ::testing::Values(false, true),
                         [](const auto& it) { return it.param ? "Sqlite" : "Memory"; });

TEST(SqliteJournalTest, UnusableFolder_IsNamed) {
  const auto journal = OpenSqliteJournal("/proc/nothing/here");
  EXPECT_EQ(journal.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(journal.status().message().find("/proc/nothing/here"), absl::string_view::npos);
}

}  // namespace
}  // namespace stagecoach
