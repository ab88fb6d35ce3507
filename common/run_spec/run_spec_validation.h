// What a run spec must satisfy as a whole, and its defaults. Defaults that depend on the plan (M, J and what follows
// from J) are filled in by FillPlannedDefaults once the plan is known.
//
// Threading: pure functions. Errors: INVALID_ARGUMENT "path: what is wrong; allowed: ...".
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "protos/run.pb.h"

namespace stagecoach {

// Ranges, required keys and rules between keys. Fields that are not set count as their defaults.
absl::Status ValidateRunSpec(const RunSpec& spec);

// Fills every field that is not set and whose default does not depend on the plan. vocabulary: of the data; 0 = unknown
// (model.vocabulary then stays as it is). Filling twice changes nothing.
void FillDefaults(RunSpec* spec, uint32_t vocabulary);

// Most clusters that averaging.choose_clusters may come to: those allowed, as far as a checkpoint's manifest holds the
// losses of all.
uint32_t MostClusters(const RunSpec& spec);

// M, J and what depends on them: optimizer kind and its coefficients, warm-ups, error feedback. `delayed`: some
// microbatch uses weights older than the newest (J > 0, or pipedream). The spec has been through FillDefaults.
void FillPlannedDefaults(RunSpec* spec, uint32_t microbatches, uint32_t j, bool delayed);

}  // namespace stagecoach
