#include "common/run_spec/run_spec_yaml.h"

#include "common/run_spec/run_spec_fields.h"
#include "common/status_macros.h"

namespace stagecoach {

namespace {

// A spec has about 50 keys.
constexpr YamlFormat kFormat = {RunSpecFields, 1 << 20, "a run spec", "examples/runs/tiny.yaml"};

}  // namespace

absl::StatusOr<RunSpec> ParseRunSpec(absl::string_view yaml, const std::string& file_name, SpecLines* lines) {
  RunSpec spec;
  RETURN_IF_ERROR(ReadYamlText(kFormat, yaml, file_name, &spec, lines));
  return spec;
}

absl::StatusOr<RunSpec> ReadRunSpecFile(const std::string& path, SpecLines* lines) {
  RunSpec spec;
  RETURN_IF_ERROR(ReadYamlFile(kFormat, path, &spec, lines));
  return spec;
}

absl::Status PlaceSpecError(const absl::Status& error, const std::string& file_name, const SpecLines& lines) {
  return PlaceYamlError(error, file_name, lines);
}

}  // namespace stagecoach
