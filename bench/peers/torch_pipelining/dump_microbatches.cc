// Writes the training microbatches of a run in Stagecoach's own data order, so that a peer trains on the very same
// tokens.
//
//   dump_microbatches DATA OUTPUT SEED STEPS MICROBATCHES SEQUENCES TOKENS VALIDATION_FRACTION
//
// OUTPUT: uint16, step-major, then microbatch, then sequence, each of TOKENS + 1 ids (inputs and the last label).
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "model/data/token_dataset.h"

int main(int argc, char** argv) {
  if (argc != 9) {
    std::fprintf(stderr,
                 "usage: dump_microbatches DATA OUTPUT SEED STEPS MICROBATCHES SEQUENCES TOKENS VALIDATION_FRACTION\n");
    return 64;
  }
  const uint64_t seed = std::strtoull(argv[3], nullptr, 10), steps = std::strtoull(argv[4], nullptr, 10);
  const uint64_t microbatches = std::strtoull(argv[5], nullptr, 10);
  const auto sequences = static_cast<uint32_t>(std::atoi(argv[6])), tokens = static_cast<uint32_t>(std::atoi(argv[7]));
  const auto data = stagecoach::TokenDataset::Open(argv[1], false);
  if (!data.ok()) {
    std::fprintf(stderr, "dump_microbatches: %s\n", data.status().ToString().c_str());
    return 1;
  }
  const auto split = stagecoach::SplitWindows(data->num_tokens(), tokens, std::atof(argv[8]));
  std::FILE* out = std::fopen(argv[2], "wb");
  if (!split.ok() || out == nullptr) return 1;
  std::vector<int64_t> ids(size_t{sequences} * tokens), labels(ids.size());
  for (uint64_t n = 0; n < steps * microbatches; ++n) {
    stagecoach::ReadMicrobatch(*data, seed, split->training, n, sequences, tokens, absl::MakeSpan(ids),
                               absl::MakeSpan(labels));
    for (uint32_t b = 0; b < sequences; ++b) {
      std::vector<uint16_t> row(ids.begin() + b * tokens, ids.begin() + (b + 1) * tokens);
      row.push_back(static_cast<uint16_t>(labels[(b + 1) * tokens - 1]));
      if (std::fwrite(row.data(), 2, row.size(), out) != row.size()) return 1;
    }
  }
  return std::fclose(out) == 0 ? 0 : 1;
}
