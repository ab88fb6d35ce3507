#include "common/averaging/averaging_config.h"

#include <utility>

namespace stagecoach {
namespace {

constexpr size_t kPieceBytes = 65536;  // 5 ms at 100 Mbit/s: what a frame of the pipeline may have to wait for

}  // namespace

ExchangeTerms TermsOf(const AveragingConfig& config, uint64_t round, uint32_t attempt, uint32_t shard,
                      uint64_t parameters, std::vector<float> weights, std::vector<uint64_t> epochs) {
  ExchangeTerms terms;
  terms.round = round;
  terms.attempt = attempt;
  terms.shard = shard;
  terms.parameters = parameters;
  terms.method = weights.size() == 2 ? ExchangeMethod::kDirect : ExchangeMethod::kOneShot;
  terms.codec = config.codec;
  terms.error_feedback = config.error_feedback;
  terms.outer = config.outer;
  terms.weights = std::move(weights);
  terms.epochs = std::move(epochs);
  terms.chunks = EqualChunks(parameters, terms.ranks());
  terms.piece_parameters = PieceParameters(config.codec, kPieceBytes);
  return terms;
}

}  // namespace stagecoach
