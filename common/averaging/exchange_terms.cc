#include "common/averaging/exchange_terms.h"

#include "absl/strings/str_cat.h"
#include "common/averaging/shard_map.h"

namespace stagecoach {

absl::Status CheckTerms(const ExchangeTerms& terms) {
  const auto refuse = [&](absl::string_view text) {
    return absl::InvalidArgumentError(absl::StrCat("the terms of an exchange do not fit together: ", text,
                                                   ": round=", terms.round, " shard=", terms.shard));
  };
  if (terms.ranks() == 0 || terms.ranks() > kMaxClusters) return refuse("1 to 64 owners are possible");
  if (terms.chunks.size() != terms.ranks() || terms.epochs.size() != terms.ranks()) {
    return refuse("every owner needs a chunk and an epoch");
  }
  if (terms.piece_parameters == 0 || terms.piece_parameters % kAveragingGroup != 0) {
    return refuse("a piece is a whole number of groups of 64");
  }
  if (terms.method == ExchangeMethod::kRing &&
      (terms.error_feedback || AveragingBits(terms.codec) < AveragingBits(AveragingCodec::kBf16))) {
    return refuse("a ring rounds at every hop: fp32 or bf16 without error feedback");
  }
  uint64_t next = 0;
  for (const ParameterRange& chunk : terms.chunks) {
    if (chunk.first != next || (chunk.count > 0 && chunk.first % kAveragingGroup != 0)) {
      return refuse("chunks are contiguous and start at whole groups");
    }
    next += chunk.count;
  }
  if (next != terms.parameters) return refuse("the chunks are not the shard");
  double sum = 0;
  for (const float weight : terms.weights) {
    if (!(weight >= 0)) return refuse("weights are not negative");
    sum += static_cast<double>(weight);
  }
  if (!(sum > 0.999 && sum < 1.001)) return refuse("the weights do not sum to 1; does nobody contribute?");
  return absl::OkStatus();
}

}  // namespace stagecoach
