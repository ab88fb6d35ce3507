#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/run_spec/run_spec_fields.h"
#include "common/run_spec/run_spec_flags.h"
#include "common/run_spec/run_spec_validation.h"
#include "common/run_spec/run_spec_yaml.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

constexpr const char* kGood =
    "name: tiny\n"              // 1
    "run_dir: /tmp/tiny\n"      // 2
    "model:\n"                  // 3
    "  width: 64\n"             // 4
    "  layers: 4\n"             // 5
    "  heads: 4\n"              // 6
    "data:\n"                   // 7
    "  path: /tmp/data\n"       // 8
    "schedule:\n"               // 9
    "  steps: 200\n"            // 10
    "  sequences: 2\n"          // 11
    "  sequence_tokens: 32\n";  // 12

// As a program does: parse, validate, place the error.
absl::Status Check(const std::string& yaml) {
  SpecLines lines;
  const auto spec = ParseRunSpec(yaml, "run.yaml", &lines);
  if (!spec.ok()) return spec.status();
  return PlaceSpecError(ValidateRunSpec(*spec), "run.yaml", lines);
}

RunSpec Good() { return ParseRunSpec(kGood, "run.yaml", nullptr).value(); }

TEST(RunSpecYamlTest, GoodSpec_IsAccepted) {
  EXPECT_EQ(Check(kGood), absl::OkStatus());
  EXPECT_EQ(Good().schedule().steps(), 200u);
  EXPECT_EQ(Good().model().width(), 64u);
}

struct BrokenSpec {
  const char* from;  // text of the good spec that is replaced
  const char* to;
  const char* message;
};

TEST(RunSpecYamlTest, BrokenSpecs_SayFileLineKeyAndWhatIsAllowed) {
  const BrokenSpec cases[] = {
      {"  width: 64", "  widht: 64",
       "run.yaml:4: model.widht: unknown key; allowed: architecture, width, layers, heads, kv_heads, feedforward, "
       "vocabulary, max_tokens, norm, compression, rank, tail_layers, dropout, rope_theta, compute, norm_epsilon"},
      {"  width: 64\n", "", "run.yaml:3: model.width: is missing; allowed: 8..65536"},
      {"  width: 64", "  width: 4", "run.yaml:4: model.width: 4 is out of range; allowed: 8..65536"},
      {"  width: 64", "  width: 0", "run.yaml:4: model.width: 0 is out of range; allowed: 8..65536"},
      {"  width: 64", "  width: -64", "run.yaml:4: model.width: -64 is out of range; allowed: 8..65536"},
      {"  width: 64", "  width: wide", "run.yaml:4: model.width: \"wide\" is not an integer; allowed: 8..65536"},
      {"  width: 64", "  width: \"64\"", "run.yaml:4: model.width: text in quotes; allowed: 8..65536"},
      {"  width: 64", "  width: [64]", "run.yaml:4: model.width: expected one value; allowed: 8..65536"},
      {"  width: 64", "  width: 64\n  width: 32", "run.yaml:5: model.width: written twice"},
      {"  heads: 4", "  heads: 5", "run.yaml:6: model.heads: 5 does not divide model.width 64"},
      {"  heads: 4", "  heads: 4\n  kv_heads: 3", "run.yaml:7: model.kv_heads: 3 does not divide model.heads 4"},
      {"  heads: 4", "  heads: 64",
       "run.yaml:6: model.heads: width / heads = 1 is odd; rotary positions need an even head dimension"},
      {"  heads: 4", "  heads: 4\n  rank: 65", "run.yaml:7: model.rank: 65 is above model.width 64"},
      {"  heads: 4", "  heads: 4\n  compression: none\n  rank: 8",
       "run.yaml:8: model.rank: needs model.compression: subspace"},
      {"  heads: 4", "  heads: 4\n  tail_layers: 5", "run.yaml:7: model.tail_layers: 5 is above model.layers 4"},
      {"  heads: 4", "  heads: 4\n  dropout: 1", "run.yaml:7: model.dropout: 1 is out of range; allowed: 0 <= x < 1"},
      {"  heads: 4", "  heads: 4\n  norm: post",
       "run.yaml:7: model.norm: \"post\" is unknown; allowed: pre, reordered"},
      {"  heads: 4", "  heads: 4\n  max_tokens: 16",
       "run.yaml:7: model.max_tokens: 16 is below schedule.sequence_tokens 32"},
      {"  steps: 200", "  steps: 200\n  kind: 3bw",
       "run.yaml:11: schedule.kind: \"3bw\" is unknown; allowed: fd-2bw, sync, sync-1f1b, gpipe, 2bw, pipedream"},
      {"  steps: 200", "  steps: 200\n  kind: sync\n  j: 4",
       "run.yaml:12: schedule.j: may only be given with schedule.kind: fd-2bw; the other kinds fix it"},
      {"  steps: 200", "  steps: 200\n  microbatches: 2\n  j: 17",
       "run.yaml:12: schedule.j: 17 is above 8 microbatches (weights would be more than 8 steps old); use a larger "
       "schedule.microbatches"},
      {"data:", "optimizer:\n  clip: global\nwire: int8\ndata:", "run.yaml:9: wire: expected keys; allowed: format"},
      {"  steps: 200", "  steps: 200\n  kind: pipedream\noptimizer:\n  clip: global\nschedule2:",
       "run.yaml:14: schedule2: unknown key; allowed: name, seed, threads, model, data, optimizer, schedule, wire, "
       "evaluation, checkpoint, run_dir, averaging, replan"},
      {"name: tiny", "name: Tiny!",
       "run.yaml:1: name: \"Tiny!\" is not a name; allowed: 1..63 of a-z, 0-9, - (not at the ends)"},
      {"model:", "model: {", "run.yaml:5: not YAML: end of map flow not found"},
      {"  path: /tmp/data", "  path: /tmp/data\n  validation_fraction: 0.7",
       "run.yaml:9: data.validation_fraction: 0.7 is out of range; allowed: 0 < x <= 0.5"},
      {"data:", "optimizer: {nesterov: yes}\ndata:",
       "run.yaml:7: optimizer.nesterov: \"yes\" is not a switch; allowed: true, false"},
      {"data:", "optimizer: {warmup_steps: 201}\ndata:",
       "run.yaml:7: optimizer.warmup_steps: 201 is above schedule.steps 200"},
  };
  for (const BrokenSpec& broken : cases) {
    const std::string yaml = absl::StrReplaceAll(kGood, {{broken.from, broken.to}});
    ASSERT_NE(yaml, kGood) << broken.from;
    const absl::Status status = Check(yaml);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << broken.to;
    EXPECT_EQ(std::string(status.message()), broken.message);
  }
}

TEST(RunSpecYamlTest, PipedreamWithGlobalClip_IsRefused) {
  RunSpec spec = Good();
  spec.mutable_schedule()->set_kind(SCHEDULE_KIND_PIPEDREAM);
  EXPECT_EQ(ValidateRunSpec(spec), absl::OkStatus());
  spec.mutable_optimizer()->set_clip(CLIP_GLOBAL);
  EXPECT_EQ(ValidateRunSpec(spec).message(),
            "optimizer.clip: global is not possible with schedule.kind: pipedream; allowed: stage, none");
}

TEST(RunSpecYamlTest, FilledSpec_RoundTripsThroughText) {
  RunSpec spec = Good();
  FillDefaults(&spec, 256);
  spec.mutable_optimizer()->set_nesterov(true);
  spec.mutable_optimizer()->set_kind(OPTIMIZER_KIND_SGD);
  const auto back = ParseRunSpec(FormatYaml(spec), "text", nullptr);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(spec, *back)) << FormatYaml(spec);
}

TEST(RunSpecYamlTest, SecondDocument_IsRefused) {
  EXPECT_EQ(ParseRunSpec(absl::StrCat(kGood, "---\nseed: 2\n"), "run.yaml", nullptr).status().message(),
            "run.yaml:14: a second document (---); a run spec is one document");
  EXPECT_FALSE(ParseRunSpec(absl::StrCat(kGood, "---\n"), "run.yaml", nullptr).ok());
  EXPECT_TRUE(ParseRunSpec(absl::StrCat("---\n", kGood), "run.yaml", nullptr).ok());
}

TEST(RunSpecYamlTest, DeepNestingAndHugeText_AreRefused) {
  EXPECT_FALSE(ParseRunSpec(std::string(100000, '['), "deep.yaml", nullptr).ok());
  EXPECT_FALSE(ParseRunSpec(std::string(2 << 20, ' '), "huge.yaml", nullptr).ok());
  EXPECT_FALSE(ParseRunSpec("", "empty.yaml", nullptr).ok());
  EXPECT_EQ(ReadRunSpecFile("/nonexistent/run.yaml", nullptr).status().code(), absl::StatusCode::kNotFound);
}

TEST(RunSpecDefaultsTest, FillDefaults_FollowsTheTable) {
  RunSpec spec = Good();
  FillDefaults(&spec, 256);
  EXPECT_EQ(spec.seed(), 1u);
  EXPECT_EQ(spec.model().architecture(), ARCHITECTURE_LLAMA);
  EXPECT_EQ(spec.model().kv_heads(), 4u);
  EXPECT_EQ(spec.model().feedforward(), 192u);  // 8*64/3 = 170.7 -> 192
  EXPECT_EQ(spec.model().vocabulary(), 256u);
  EXPECT_EQ(spec.model().max_tokens(), 32u);
  EXPECT_EQ(spec.model().norm(), NORM_REORDERED);
  EXPECT_EQ(spec.model().rank(), 32u);
  EXPECT_EQ(spec.model().tail_layers(), 1u);
  EXPECT_EQ(spec.wire().format(), WIRE_FORMAT_INT8);
  EXPECT_EQ(spec.optimizer().warmup_steps(), 20u);
  EXPECT_EQ(spec.optimizer().clip(), CLIP_GLOBAL);
  EXPECT_EQ(spec.schedule().sync_warmup_steps(), 20u);
  EXPECT_EQ(spec.schedule().j(), -1);
  EXPECT_EQ(spec.evaluation().microbatches(), 8u);
  EXPECT_EQ(spec.checkpoint().keep(), 3u);
  EXPECT_EQ(spec.optimizer().kind(), OPTIMIZER_KIND_UNSPECIFIED);  // depends on J
  RunSpec twice = spec;
  FillDefaults(&twice, 256);
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(spec, twice));
}

TEST(RunSpecDefaultsTest, PlannedDefaults_DependOnJ) {
  RunSpec spec = Good();
  FillDefaults(&spec, 256);
  RunSpec synchronous = spec;
  FillPlannedDefaults(&synchronous, 8, 0, false);
  EXPECT_EQ(synchronous.optimizer().kind(), OPTIMIZER_KIND_ADAMW);
  EXPECT_EQ(synchronous.optimizer().error_feedback(), 0);
  FillPlannedDefaults(&spec, 8, 2, true);
  EXPECT_EQ(spec.optimizer().kind(), OPTIMIZER_KIND_MUON);
  EXPECT_EQ(spec.optimizer().error_feedback(), 0.25f);
  EXPECT_EQ(spec.optimizer().momentum(), 0.95f);
  EXPECT_EQ(ValidateRunSpec(spec), absl::OkStatus());
}

// A longer run failed at its first checkpoint whose manifest was above its limit.
TEST(RunSpecValidationTest, LossesOfTheWholeRun_FitTheManifest) {
  RunSpec spec = Good();
  spec.mutable_schedule()->set_steps(2000000);
  EXPECT_EQ(ValidateRunSpec(spec), absl::OkStatus());
  spec.mutable_averaging()->set_clusters(3);
  EXPECT_EQ(ValidateRunSpec(spec).message(),
            "schedule.steps: 2000000 is above 500000, the most with 3 clusters: every checkpoint's manifest holds all "
            "losses");
  spec.mutable_schedule()->set_steps(500000);
  EXPECT_EQ(ValidateRunSpec(spec), absl::OkStatus());
  spec.clear_averaging();
  spec.mutable_schedule()->set_kind(SCHEDULE_KIND_PIPEDREAM);
  spec.mutable_schedule()->set_microbatches(8);
  EXPECT_EQ(ValidateRunSpec(spec).message(),
            "schedule.steps: 500000 is above 250000, the most with 8 pipedream updates a step: every checkpoint's "
            "manifest holds all losses");
  spec.mutable_schedule()->set_steps(2000001);
  EXPECT_FALSE(ValidateRunSpec(spec).ok());
}

TEST(RunSpecFlagsTest, Overrides_AreCheckedLikeTheFile) {
  RunSpec spec = Good();
  EXPECT_EQ(ApplyOverride(&spec, "schedule.steps", "300"), absl::OkStatus());
  EXPECT_EQ(ApplyOverride(&spec, "schedule.j", "auto"), absl::OkStatus());
  EXPECT_EQ(ApplyOverride(&spec, "wire.format", "bf16"), absl::OkStatus());
  EXPECT_EQ(spec.schedule().steps(), 300u);
  EXPECT_EQ(spec.schedule().j(), -1);
  EXPECT_EQ(spec.wire().format(), WIRE_FORMAT_BF16);
  EXPECT_EQ(ApplyOverride(&spec, "schedule.steps", "0").message(),
            "schedule.steps: 0 is out of range; allowed: 1..2000000 (every checkpoint's manifest holds the losses of "
            "all steps)");
  EXPECT_EQ(ApplyOverride(&spec, "schedule.steps", "2000000"), absl::OkStatus());
  EXPECT_FALSE(ApplyOverride(&spec, "schedule.steps", "2000001").ok());
  EXPECT_EQ(ApplyOverride(&spec, "wire.size", "0").message(), "wire.size: unknown key; allowed: format");
  EXPECT_FALSE(ApplyOverride(&spec, "wire", "0").ok());
}

// Every field has a rule and a row in docs/configuration.md that states the same range and default.
TEST(RunSpecFieldsTest, TableAndDocument_CoverEveryField) {
  const char* source = std::getenv("STAGECOACH_SOURCE");
  ASSERT_NE(source, nullptr);
  std::ifstream in(absl::StrCat(source, "/docs/configuration.md"));
  std::stringstream document;
  document << in.rdbuf();
  size_t count = 0;
  const std::function<void(const google::protobuf::Descriptor*, const std::string&)> visit =
      [&](const google::protobuf::Descriptor* type, const std::string& prefix) {
        for (int i = 0; i < type->field_count(); ++i) {
          const auto* field = type->field(i);
          const std::string path = prefix + field->name();
          if (field->message_type() != nullptr) {
            visit(field->message_type(), path + ".");
            continue;
          }
          ++count;
          const FieldRule* rule = FindFieldRule(RunSpecFields(), path);
          ASSERT_NE(rule, nullptr) << path;
          if (field->enum_type() != nullptr) {
            EXPECT_EQ(EnumChoices(field->enum_type()), rule->allowed);
          }
          EXPECT_NE(document.str().find(absl::StrCat("| `", path, "` |")), std::string::npos) << path;
          EXPECT_NE(document.str().find(absl::StrCat(" | ", rule->allowed, " | ", rule->fallback, " |")),
                    std::string::npos)
              << path;
        }
      };
  visit(RunSpec::descriptor(), "");
  EXPECT_EQ(count, RunSpecFields().size());
}

}  // namespace
}  // namespace stagecoach
