// How the result of a round enters a running stage: only while W^(t + tau_a) is being created, never into a version
// that exists.
//
//   additive   W^(t+tau_a) = W~ + (theta' - W^(t))           keeps all tau_a local steps
//   blend      W^(t+tau_a) = a W~ + (1 - a) theta'           (2501.18512) a = 0.5
//   replace    W^(t) = theta'                                tau_a = 0: the pipeline waits
//
// W~: what the ordinary update gives. The update error feedback's previous step stays: a correction is not an update.
//
// Threading: pure functions. Arithmetic: fp32, one rounding for each operation in the order written.
#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace stagecoach {

enum class MergeRule : uint8_t { kAdditive = 1, kBlend = 2, kReplace = 3 };

constexpr float kBlendShare = 0.5f;

// `weights` holds W~ and becomes W^(t+tau_a). `pinned`: W^(t). `theta`: the committed theta'.
void ApplyRound(MergeRule rule, absl::Span<const float> theta, absl::Span<const float> pinned,
                absl::Span<float> weights);

}  // namespace stagecoach
