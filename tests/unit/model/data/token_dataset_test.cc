#include "model/data/token_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <set>

#include "common/sha256.h"
#include "model/data/dataset_index.h"
#include "model/data/shard_formats.h"
#include "tests/support/scratch_folder.h"

namespace stagecoach {
namespace {

using testing::ScratchFolder;

std::string Raw(const std::vector<uint16_t>& ids) {
  return {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(uint16_t)};
}

std::string LlmC(const std::vector<uint16_t>& ids) {
  return TokenFileHeader(static_cast<uint32_t>(ids.size())) + Raw(ids);
}

std::vector<uint16_t> RandomIds(size_t count, uint32_t vocabulary, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint16_t> ids(count);
  // Skewed, so that a bigram has something to learn.
  for (size_t i = 0; i < count; ++i)
    ids[i] = static_cast<uint16_t>(std::min(random() % vocabulary, random() % vocabulary));
  return ids;
}

// A prepared folder of shards of the given sizes.
std::string APreparedFolder(const ScratchFolder& folder, const std::vector<uint16_t>& ids, std::vector<size_t> sizes) {
  DatasetIndex index;
  size_t first = 0;
  for (const size_t size : sizes) {
    const std::string bytes =
        LlmC({ids.begin() + static_cast<ptrdiff_t>(first), ids.begin() + static_cast<ptrdiff_t>(first + size)});
    folder.Write("data/" + ShardName(index.shards.size()), bytes);
    index.shards.push_back({ShardName(index.shards.size()), Sha256Hex(bytes), size});
    first += size;
  }
  folder.Write(std::string("data/") + kDatasetIndexName, DatasetIndexJson(index));
  return folder.File("data");
}

std::vector<int64_t> ReadAll(const TokenDataset& data, uint64_t first, size_t count) {
  std::vector<int64_t> out(count);
  data.Read(first, absl::MakeSpan(out));
  return out;
}

TEST(TokenDatasetTest, RawFile_IsRead) {
  ScratchFolder folder;
  const auto ids = RandomIds(1000, 50257, 1);
  const auto data = TokenDataset::Open(folder.Write("train.bin", Raw(ids)), false);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->num_tokens(), 1000u);
  EXPECT_EQ(data->vocabulary(), *std::max_element(ids.begin(), ids.end()) + 1u);
  EXPECT_EQ(data->tokenizer(), "unknown");
  EXPECT_EQ(ReadAll(*data, 0, 1000), std::vector<int64_t>(ids.begin(), ids.end()));
}

TEST(TokenDatasetTest, LlmCFile_IsRead) {
  ScratchFolder folder;
  const auto ids = RandomIds(777, 300, 2);
  const std::string bytes = LlmC(ids);
  const auto data = TokenDataset::Open(folder.Write("train.bin", bytes), true);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(ReadAll(*data, 0, 777), std::vector<int64_t>(ids.begin(), ids.end()));
  EXPECT_EQ(data->shards()[0].sha256, Sha256Hex(bytes));
  EXPECT_EQ(data->shards()[0].path.front(), '/');
}

TEST(TokenDatasetTest, Shards_AreOneSequence) {
  ScratchFolder folder;
  const auto ids = RandomIds(100, 256, 3);
  const auto data = TokenDataset::Open(APreparedFolder(folder, ids, {1, 30, 2, 67}), true);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->tokenizer(), "bytes");
  EXPECT_EQ(data->vocabulary(), 256u);
  for (uint64_t first = 0; first < 100; ++first) {
    for (size_t count = 0; first + count <= 100; ++count) {
      ASSERT_EQ(ReadAll(*data, first, count),
                std::vector<int64_t>(ids.begin() + static_cast<ptrdiff_t>(first),
                                     ids.begin() + static_cast<ptrdiff_t>(first + count)));
    }
  }
}

TEST(PermuteWindowTest, EveryEpoch_IsABijection) {
  for (const uint64_t windows : {1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 255, 257, 1000, 4097, 70000}) {
    for (const uint64_t epoch : {0, 1, 7}) {
      std::vector<bool> seen(windows);
      for (uint64_t p = 0; p < windows; ++p) {
        const uint64_t window = PermuteWindow(42, epoch, windows, p);
        ASSERT_LT(window, windows);
        ASSERT_FALSE(seen[window]) << "windows=" << windows << " epoch=" << epoch << " position=" << p;
        seen[window] = true;
      }
    }
  }
}

TEST(PermuteWindowTest, SeedsAndEpochs_Differ) {
  const auto order = [](uint64_t seed, uint64_t epoch) {
    std::vector<uint64_t> windows;
    for (uint64_t p = 0; p < 100; ++p) windows.push_back(PermuteWindow(seed, epoch, 1000, p));
    return windows;
  };
  const std::set<std::vector<uint64_t>> orders = {order(1, 0), order(1, 1), order(2, 0), order(2, 1)};
  EXPECT_EQ(orders.size(), 4u);
  EXPECT_EQ(order(1, 0), order(1, 0));
}

TEST(PermuteWindowTest, HugeCorpus_StaysInRange) {
  const uint64_t windows = (uint64_t{1} << 62) + 12345;
  for (uint64_t p = 0; p < 1000; ++p) EXPECT_LT(PermuteWindow(1, 0, windows, p * 1234567891011), windows);
}

TEST(PermuteWindowTest, Positions_LookIndependent) {
  // Correlation of position and window over one epoch: about 1/sqrt(W) by chance.
  constexpr uint64_t kWindows = 20000;
  double sum = 0;
  for (uint64_t p = 0; p < kWindows; ++p) {
    sum += (static_cast<double>(p) / kWindows - 0.5) *
           (static_cast<double>(PermuteWindow(3, 0, kWindows, p)) / kWindows - 0.5);
  }
  EXPECT_LT(std::abs(sum * 12 / kWindows), 5 / std::sqrt(double{kWindows}));
}

TEST(PermuteWindowTest, Order_IsPartOfTheArithmetic) {
  // These values must never change: a run that resumes reads the same windows as the life before.
  std::vector<uint64_t> windows;
  for (uint64_t p = 0; p < 6; ++p) windows.push_back(PermuteWindow(1, 0, 1000, p));
  EXPECT_THAT(windows, ::testing::ElementsAre(910, 775, 819, 778, 430, 312));
}

TEST(SplitWindowsTest, Fractions) {
  const auto split = SplitWindows(1001, 10, 0.02);
  ASSERT_TRUE(split.ok());
  EXPECT_EQ(split->training, 98u);
  EXPECT_EQ(split->evaluation, 2u);
  EXPECT_EQ(SplitWindows(1001, 10, 0.0)->evaluation, 1u) << "at least one";
  EXPECT_EQ(SplitWindows(1001, 10, 1.0)->training, 1u) << "at least one";
  EXPECT_EQ(SplitWindows(1000, 10, 0.5)->training + SplitWindows(1000, 10, 0.5)->evaluation, 99u);
  EXPECT_TRUE(SplitWindows(21, 10, 0.02).ok());
  EXPECT_FALSE(SplitWindows(20, 10, 0.02).ok());
  EXPECT_FALSE(SplitWindows(0, 10, 0.02).ok());
  EXPECT_FALSE(SplitWindows(1000, 10, std::nan("")).ok());
}

TEST(ReadMicrobatchTest, EqualsANaiveReader) {
  constexpr uint32_t kSequences = 3, kTokens = 7;
  constexpr uint64_t kSeed = 11;
  ScratchFolder folder;
  const auto tokens = RandomIds(500, 256, 4);
  const auto data = TokenDataset::Open(APreparedFolder(folder, tokens, {200, 300}), false);
  const auto split = SplitWindows(500, kTokens, 0.1);
  std::vector<int64_t> ids(kSequences * kTokens), labels(ids);
  std::map<uint64_t, int> uses;
  for (uint64_t n = 0; n < 2 * split->training; ++n) {
    ReadMicrobatch(*data, kSeed, split->training, n, kSequences, kTokens, absl::MakeSpan(ids), absl::MakeSpan(labels));
    for (uint64_t b = 0; b < kSequences; ++b) {
      const uint64_t p = n * kSequences + b,
                     w = PermuteWindow(kSeed, p / split->training, split->training, p % split->training);
      ++uses[w];
      for (uint64_t i = 0; i < kTokens; ++i) {
        ASSERT_EQ(ids[b * kTokens + i], tokens[w * kTokens + i]);
        ASSERT_EQ(labels[b * kTokens + i], tokens[w * kTokens + i + 1]);
      }
    }
  }
  EXPECT_EQ(uses.size(), split->training);
  for (const auto& [window, count] : uses) EXPECT_EQ(count, 6) << "six epochs use each window six times";
}

TEST(ReadMicrobatchTest, Evaluation_IsFixedAndDisjointFromTraining) {
  constexpr uint32_t kSequences = 2, kTokens = 5;
  ScratchFolder folder;
  const auto tokens = RandomIds(501, 256, 5);
  const auto data = TokenDataset::Open(APreparedFolder(folder, tokens, {501}), false);
  const auto split = SplitWindows(501, kTokens, 0.05);  // 5 evaluation windows
  std::vector<int64_t> ids(kSequences * kTokens), labels(ids);
  for (uint64_t e = 0; e < 7; ++e) {
    ReadEvaluationMicrobatch(*data, split->training, split->evaluation, e, kSequences, kTokens, absl::MakeSpan(ids),
                             absl::MakeSpan(labels));
    for (uint64_t b = 0; b < kSequences; ++b) {
      const uint64_t w = split->training + (e * kSequences + b) % split->evaluation;
      for (uint64_t i = 0; i < kTokens; ++i) {
        ASSERT_EQ(ids[b * kTokens + i], tokens[w * kTokens + i]);
        ASSERT_EQ(labels[b * kTokens + i], tokens[w * kTokens + i + 1]);
      }
    }
  }
}

// The definition, term by term.
double BruteForceBigram(const std::vector<uint16_t>& tokens, const WindowSplit& split, uint32_t vocabulary,
                        uint32_t sequences, uint32_t length, uint32_t microbatches) {
  std::map<std::pair<int, int>, double> pairs;
  std::map<int, double> as_id, as_label;
  double total = 0;
  for (uint64_t w = 0; w < split.training; ++w) {
    for (uint64_t i = w * length; i < (w + 1) * length; ++i) {
      ++pairs[{tokens[i], tokens[i + 1]}], ++as_id[tokens[i]], ++as_label[tokens[i + 1]], ++total;
    }
  }
  double sum = 0, count = 0;
  for (uint64_t k = 0; k < uint64_t{microbatches} * sequences; ++k) {
    const uint64_t w = split.training + k % split.evaluation;
    for (uint64_t i = w * length; i < (w + 1) * length; ++i) {
      const double p = (as_label[tokens[i + 1]] + 1) / (total + vocabulary);
      sum -= std::log((pairs[{tokens[i], tokens[i + 1]}] + p) / (as_id[tokens[i]] + 1));
      ++count;
    }
  }
  return sum / count;
}

TEST(BigramLossTest, EqualsBruteForce) {
  for (const uint32_t vocabulary : {20u, 6000u}) {  // table, hash map
    ScratchFolder folder;
    const auto tokens = RandomIds(5000, vocabulary, vocabulary);
    const auto data = TokenDataset::Open(folder.Write("train.bin", Raw(tokens)), false);
    const auto split = SplitWindows(5000, 16, 0.1);
    EXPECT_NEAR(BigramLoss(*data, *split, 2, 16, 5), BruteForceBigram(tokens, *split, data->vocabulary(), 2, 16, 5),
                1e-10);
    EXPECT_GT(BigramLoss(*data, *split, 2, 16, 0), 0) << "no evaluation: one microbatch all the same";
  }
}

TEST(BigramLossTest, Probabilities_SumToOne) {
  // A text in which every pair of the vocabulary {0, 1} occurs in the evaluation: exp(-loss) of a constant text is one
  // term.
  ScratchFolder folder;
  const auto zeros = TokenDataset::Open(folder.Write("zeros.bin", Raw(std::vector<uint16_t>(101, 0))), false);
  const auto split = SplitWindows(101, 10, 0.1);
  const double p0 = (90.0 + 1) / (90 + 2);
  EXPECT_NEAR(std::exp(-BigramLoss(*zeros, *split, 1, 10, 1)), (90 + p0) / 91, 1e-12);
}

}  // namespace
}  // namespace stagecoach
