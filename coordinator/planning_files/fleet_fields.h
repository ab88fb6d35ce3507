// Names, ranges and defaults of the fleet file's fields: one table for the YAML reader and docs/planning.md.
//
// Threading: pure.
#pragma once

#include "common/strict_yaml/field_rules.h"

namespace stagecoach {

// Workers that a file may have, all counts expanded: as many as a coordinator takes.
constexpr uint32_t kMostFleetWorkers = 20000;

// All fields of FleetFile, in the order of the file; those of lists are named without an index.
const FieldRules& FleetFields();

}  // namespace stagecoach
