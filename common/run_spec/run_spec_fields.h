// Names, ranges and defaults of the run spec's fields: one table for the YAML reader, flag overrides, validation and
// docs/configuration.md.
//
// Threading: pure.
#pragma once

#include "common/strict_yaml/field_rules.h"

namespace stagecoach {

// All fields of RunSpec that hold a value, in the order of the file.
const FieldRules& RunSpecFields();

}  // namespace stagecoach
