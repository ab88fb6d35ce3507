#include "coordinator/domain/round_machine.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace stagecoach {
namespace {

using Kind = RoundEffect::Kind;
using std::chrono::seconds;
using Time = RoundMachine::Time;

class RoundMachineTest : public testing::Test {
 protected:
  void Start(size_t clusters, RoundMachine::Options options = {}) {
    machine_ = std::make_unique<RoundMachine>(options);
    for (size_t c = 0; c < clusters; ++c) {
      ASSERT_TRUE(machine_->AddCluster(Name(c), 10 + c, {0, 2 + static_cast<uint32_t>(c), 10}).ok());
    }
    Note(machine_->Start(now_));
  }
  static std::string Name(size_t c) { return absl::StrCat("c", c); }
  void Note(RoundEffects effects) { last_ = std::move(effects); }
  bool Has(Kind kind) const { return Count(kind) > 0; }
  long Count(Kind kind) const {
    return std::count_if(last_.begin(), last_.end(), [&](const RoundEffect& effect) { return effect.kind == kind; });
  }
  const RoundEffect& Find(Kind kind) const {
    return *std::find_if(last_.begin(), last_.end(), [&](const RoundEffect& effect) { return effect.kind == kind; });
  }
  void Ready(size_t c, uint64_t tokens = 100) {
    Note(machine_->OnReady(now_, Name(c), 10 + c, machine_->round(), 7, tokens, 1));
  }
  void Propose(size_t c, const std::string& hash = "h") {
    // Every owner of every shard: at most 6 shards here.
    for (uint32_t shard = 0; shard < 6; ++shard) {
      RoundEffects effects = machine_->OnProposed(now_, Name(c), machine_->round(), machine_->attempt(), shard, hash);
      if (!effects.empty()) {
        Note(std::move(effects));
        return;
      }
    }
  }
  void Commit() {
    ASSERT_EQ(machine_->phase(), RoundMachine::Phase::kJournal);
    Note(machine_->OnJournaled(now_, machine_->round()));
  }

  std::unique_ptr<RoundMachine> machine_;
  Time now_ = seconds(1000);
  RoundEffects last_;
};

TEST_F(RoundMachineTest, AllReady_FixesExchangesJournalsThenCommits) {
  Start(2);
  EXPECT_TRUE(Has(Kind::kOpen));
  Ready(0, 300);
  EXPECT_TRUE(last_.empty());
  Ready(1, 100);
  ASSERT_TRUE(Has(Kind::kFix));
  const RoundEffect fix = Find(Kind::kFix);
  EXPECT_FLOAT_EQ(fix.contributors[0].weight, 0.75f);
  EXPECT_EQ(fix.contributors[1].epoch, 11u);
  EXPECT_EQ(fix.shards.size(), 3u);
  Propose(0);
  EXPECT_EQ(machine_->phase(), RoundMachine::Phase::kExchange);
  Propose(1);
  ASSERT_TRUE(Has(Kind::kJournal));
  EXPECT_FALSE(Has(Kind::kCommit));
  EXPECT_EQ(Find(Kind::kJournal).hashes, (std::vector<std::string>{"h", "h", "h"}));
  Commit();
  EXPECT_EQ(last_[0].kind, Kind::kCommit);
  EXPECT_EQ(last_[1].kind, Kind::kOpen);
  EXPECT_EQ(machine_->round(), 2u);
}

TEST_F(RoundMachineTest, Elastic_QuorumAndGraceCloseTheCollection) {
  Start(4);
  Ready(0);
  now_ += seconds(1000);
  Note(machine_->OnTick(now_));
  EXPECT_TRUE(last_.empty());  // one is no quorum, however long
  Ready(1);
  now_ += seconds(59);
  Note(machine_->OnTick(now_));
  EXPECT_TRUE(last_.empty());
  now_ += seconds(1);
  Note(machine_->OnTick(now_));
  ASSERT_TRUE(Has(Kind::kFix));
  EXPECT_EQ(Find(Kind::kFix).contributors.size(), 2u);
  Propose(0);
  Propose(1);
  Commit();
  EXPECT_EQ(Count(Kind::kRebase), 2);
  EXPECT_EQ(machine_->Grace(), seconds(60));  // 25 % of 1,060 s would be longer
}

TEST_F(RoundMachineTest, Deterministic_WaitsForAllClusters) {
  Start(3, {RoundMode::kDeterministic});
  Ready(0);
  Ready(1);
  now_ += seconds(100000);
  Note(machine_->OnTick(now_));
  EXPECT_TRUE(last_.empty());
  Ready(2);
  EXPECT_TRUE(Has(Kind::kFix));
  Note(machine_->RemoveCluster(now_, "c1"));
  EXPECT_TRUE(Has(Kind::kAbort));
  EXPECT_FALSE(Has(Kind::kFix));
  Ready(1);
  ASSERT_TRUE(Has(Kind::kFix));
  EXPECT_EQ(machine_->attempt(), 2u);
  EXPECT_EQ(Find(Kind::kFix).contributors.size(), 3u);
}

TEST_F(RoundMachineTest, BrokenPeer_IsLeftOutOfTheNextAttempt) {
  Start(3);
  for (size_t c = 0; c < 3; ++c) Ready(c, 100);
  Propose(0);
  Note(machine_->OnBroken(now_, "c0", 1, 1, "c2"));
  EXPECT_EQ(last_[0].kind, Kind::kAbort);
  EXPECT_EQ(last_[0].contributors.size(), 3u);
  ASSERT_TRUE(Has(Kind::kFix));
  EXPECT_EQ(Find(Kind::kFix).attempt, 2u);
  EXPECT_EQ(Find(Kind::kFix).contributors.size(), 2u);
  EXPECT_FLOAT_EQ(Find(Kind::kFix).contributors[0].weight, 0.5f);
  Note(machine_->OnBroken(now_, "c1", 1, 1, "c2"));  // the same loss, told late
  EXPECT_TRUE(last_.empty());
  // What was proposed in attempt 1 does not count.
  Note(machine_->OnProposed(now_, "c0", 1, 1, 0, "h"));
  EXPECT_TRUE(last_.empty());
  Propose(0);
  Propose(1);
  Commit();
  EXPECT_TRUE(Has(Kind::kRebase));
  EXPECT_EQ(Find(Kind::kRebase).cluster, "c2");
}

TEST_F(RoundMachineTest, FewerThanTheQuorumLeft_SkipsTheRound) {
  Start(2);
  Ready(0);
  Ready(1);
  Note(machine_->OnBroken(now_, "c0", 1, 1, "c1"));
  EXPECT_TRUE(Has(Kind::kAbort));
  EXPECT_TRUE(Has(Kind::kSkip));
  EXPECT_EQ(machine_->round(), 2u);
}

TEST_F(RoundMachineTest, ThreeFailedAttempts_SkipTheRound) {
  Start(4, {RoundMode::kElastic, WeightRule::kTokens, 1});
  for (size_t c = 0; c < 4; ++c) Ready(c);
  for (uint32_t attempt = 1; attempt <= 3; ++attempt) {
    EXPECT_EQ(machine_->attempt(), attempt);
    Note(machine_->OnBroken(now_, "c0", 1, attempt, Name(attempt)));
  }
  EXPECT_TRUE(Has(Kind::kSkip));
  EXPECT_EQ(machine_->round(), 2u);
}

TEST_F(RoundMachineTest, OddHash_MajorityWinsAndTheOddOneFetches) {
  Start(3);
  for (size_t c = 0; c < 3; ++c) Ready(c);
  Propose(0);
  Propose(1, "other");
  Propose(2);
  Commit();
  EXPECT_EQ(Count(Kind::kFetch), 4);  // each of its shards
  EXPECT_EQ(Find(Kind::kFetch).cluster, "c1");
  EXPECT_EQ(Find(Kind::kFetch).hashes[0], "h");
}

TEST_F(RoundMachineTest, NoMajorityTwice_PausesTheRun) {
  Start(2);
  Ready(0);
  Ready(1);
  Propose(0, "a");
  Propose(1, "b");
  EXPECT_TRUE(Has(Kind::kAbort));
  EXPECT_TRUE(Has(Kind::kFix));
  Propose(0, "a");
  Propose(1, "b");
  EXPECT_TRUE(Has(Kind::kPause));
  EXPECT_EQ(machine_->phase(), RoundMachine::Phase::kPaused);
}

TEST_F(RoundMachineTest, LateCluster_HalfWeightAfterTwoResyncAfterFour) {
  Start(3);
  const auto round_without_c2 = [&] {
    Ready(0);
    Ready(1);
    now_ += seconds(61);
    Note(machine_->OnTick(now_));
    now_ += seconds(61);
    if (!Has(Kind::kFix)) Note(machine_->OnTick(now_));
    ASSERT_TRUE(Has(Kind::kFix));
    Propose(0);
    Propose(1);
    Commit();
  };
  round_without_c2();
  EXPECT_EQ(Count(Kind::kRebase), 1);
  round_without_c2();
  for (size_t c = 0; c < 3; ++c) Ready(c, 100);
  ASSERT_TRUE(Has(Kind::kFix));
  EXPECT_FLOAT_EQ(Find(Kind::kFix).contributors[2].weight, 0.2f);  // half of what the others have
  for (size_t c = 0; c < 3; ++c) Propose(c);
  Commit();
  EXPECT_EQ(Count(Kind::kRebase), 0);
  for (int i = 0; i < 3; ++i) {
    round_without_c2();
    EXPECT_EQ(Count(Kind::kRebase), 1);
  }
  round_without_c2();
  EXPECT_EQ(Count(Kind::kResync), 1);
}

TEST_F(RoundMachineTest, JoiningCluster_ReceivesAndContributesFromTheNextRoundOn) {
  Start(2);
  Ready(0);
  Ready(1);
  Propose(0);
  Propose(1);
  Commit();
  ASSERT_TRUE(machine_->AddCluster("c2", 12, {0, 10}).ok());
  for (size_t c = 0; c < 3; ++c) Ready(c, 100);
  ASSERT_TRUE(Has(Kind::kFix));
  EXPECT_EQ(Find(Kind::kFix).contributors[2].weight, 0.0f);
  for (size_t c = 0; c < 3; ++c) Propose(c);
  Commit();
  for (size_t c = 0; c < 3; ++c) Ready(c, 100);
  EXPECT_FLOAT_EQ(Find(Kind::kFix).contributors[2].weight, 1.0f / 3);
}

TEST_F(RoundMachineTest, StaleMessages_AreIgnored) {
  Start(2);
  Note(machine_->OnReady(now_, "c0", 9, 1, 7, 100, 1));  // an earlier plan
  Ready(1);
  EXPECT_TRUE(last_.empty());
  Note(machine_->OnReady(now_, "c0", 10, 0, 7, 100, 1));  // an earlier round
  EXPECT_TRUE(last_.empty());
  Note(machine_->OnReady(now_, "c9", 10, 1, 7, 100, 1));  // nobody
  EXPECT_TRUE(last_.empty());
  Ready(0);
  EXPECT_TRUE(Has(Kind::kFix));
  EXPECT_TRUE(machine_->OnJournaled(now_, 1).empty());
  EXPECT_TRUE(machine_->OnBroken(now_, "c0", 1, 1, "c9").empty());
  EXPECT_FALSE(machine_->AddCluster("c3", 1, {0, 9}).ok());
}

TEST_F(RoundMachineTest, ReplannedCluster_AnnouncesItselfAgain) {
  Start(2);
  Ready(0);
  ASSERT_TRUE(machine_->AddCluster("c0", 20, {0, 5, 10}).ok());
  Ready(1);
  EXPECT_TRUE(last_.empty());
  Note(machine_->OnReady(now_, "c0", 20, 1, 7, 100, 1));
  ASSERT_TRUE(Has(Kind::kFix));
  EXPECT_EQ(Find(Kind::kFix).contributors[0].epoch, 20u);
}

TEST_F(RoundMachineTest, NobodyHasTokens_SkipsTheRound) {
  Start(2);
  Ready(0, 0);
  Ready(1, 0);
  EXPECT_TRUE(Has(Kind::kSkip));
  EXPECT_TRUE(Has(Kind::kOpen));
}

TEST_F(RoundMachineTest, ExchangeThatHangs_IsAbortedAndTheSilentLeftOut) {
  Start(3);
  for (size_t c = 0; c < 3; ++c) Ready(c);
  Propose(0);
  Propose(1);
  now_ += std::chrono::minutes(11);
  Note(machine_->OnTick(now_));
  EXPECT_TRUE(Has(Kind::kAbort));
  ASSERT_TRUE(Has(Kind::kFix));
  EXPECT_EQ(Find(Kind::kFix).contributors.size(), 2u);
}

}  // namespace
}  // namespace stagecoach
