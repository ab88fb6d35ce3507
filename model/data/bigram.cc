#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <vector>

#include "model/data/token_dataset.h"

namespace stagecoach {
namespace {

constexpr uint64_t kReadTokens = 1 << 16;    // tokens per pass: half a MiB, stays in the cache
constexpr uint32_t kTableVocabulary = 4096;  // up to here a dense index (64 MiB) beats a hash map
constexpr size_t kIds = 1 << 16;
constexpr uint32_t kAbsent = ~uint32_t{0};

// Counts only the pairs that the evaluation asks for: memory is bounded by the evaluation, not by the text.
class PairCounts {
 public:
  explicit PairCounts(uint32_t vocabulary) : vocabulary_(vocabulary) {
    if (vocabulary <= kTableVocabulary) table_.assign(size_t{vocabulary} * vocabulary, kAbsent);
  }

  void Track(int64_t a, int64_t b) {
    if (static_cast<uint64_t>(a) >= vocabulary_ || static_cast<uint64_t>(b) >= vocabulary_) return;
    const uint64_t key = KeyOf(a, b);
    uint32_t& slot = table_.empty() ? map_.try_emplace(key, kAbsent).first->second : table_[key];
    if (slot != kAbsent) return;
    slot = static_cast<uint32_t>(counts_.size());
    counts_.push_back(0);
  }
  void Add(int64_t a, int64_t b) {
    if (const uint32_t slot = SlotOf(a, b); slot != kAbsent) ++counts_[slot];
  }
  uint64_t Of(int64_t a, int64_t b) const {
    const uint32_t slot = SlotOf(a, b);
    return slot == kAbsent ? 0 : counts_[slot];
  }

 private:
  uint64_t KeyOf(int64_t a, int64_t b) const {
    return static_cast<uint64_t>(a) * vocabulary_ + static_cast<uint64_t>(b);
  }
  uint32_t SlotOf(int64_t a, int64_t b) const {
    const bool outside = static_cast<uint64_t>(a) >= vocabulary_ || static_cast<uint64_t>(b) >= vocabulary_;
    if (outside) return kAbsent;
    if (!table_.empty()) return table_[KeyOf(a, b)];
    const auto found = map_.find(KeyOf(a, b));
    return found == map_.end() ? kAbsent : found->second;
  }

  uint64_t vocabulary_;
  std::vector<uint32_t> table_;
  std::unordered_map<uint64_t, uint32_t> map_;
  std::vector<uint64_t> counts_;
};

}  // namespace

double BigramLoss(const TokenDataset& data, const WindowSplit& split, uint32_t sequences, uint32_t tokens,
                  uint32_t microbatches) {
  const uint32_t vocabulary = data.vocabulary();
  const size_t batch = size_t{sequences} * tokens;
  std::vector<int64_t> ids, labels, batch_ids(batch), batch_labels(batch);
  for (uint64_t e = 0; e < std::max(microbatches, 1u); ++e) {
    ReadEvaluationMicrobatch(data, split.training, split.evaluation, e, sequences, tokens, absl::MakeSpan(batch_ids),
                             absl::MakeSpan(batch_labels));
    ids.insert(ids.end(), batch_ids.begin(), batch_ids.end());
    labels.insert(labels.end(), batch_labels.begin(), batch_labels.end());
  }
  PairCounts pairs(vocabulary);
  for (size_t i = 0; i < ids.size(); ++i) pairs.Track(ids[i], labels[i]);

  // The training windows lie side by side: pairs (i, i+1) for i below training * T.
  const uint64_t num_pairs = split.training * tokens;
  // Whatever a damaged file holds, an id has 16 bits.
  std::vector<uint64_t> as_id(kIds), as_label(kIds);
  std::vector<int64_t> piece(kReadTokens + 1);
  for (uint64_t first = 0; first < num_pairs; first += kReadTokens) {
    const size_t count = std::min(kReadTokens, num_pairs - first);
    data.Read(first, absl::MakeSpan(piece).subspan(0, count + 1));
    for (size_t i = 0; i < count; ++i) {
      ++as_id[static_cast<size_t>(piece[i])];
      ++as_label[static_cast<size_t>(piece[i + 1])];
      pairs.Add(piece[i], piece[i + 1]);
    }
  }

  double sum = 0;
  const double total = static_cast<double>(num_pairs) + vocabulary;
  for (size_t i = 0; i < ids.size(); ++i) {
    const double unigram = (static_cast<double>(as_label[static_cast<size_t>(labels[i])]) + 1) / total;
    const double with_id = static_cast<double>(as_id[static_cast<size_t>(ids[i])]) + 1;
    sum -= std::log((static_cast<double>(pairs.Of(ids[i], labels[i])) + unigram) / with_id);
  }
  return sum / static_cast<double>(ids.size());
}

}  // namespace stagecoach
