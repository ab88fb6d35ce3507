// The fleet file: what people write, what they get wrong, and the way back from a fleet to a file.
#include "coordinator/planning_files/fleet_file.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "coordinator/planning_files/fleet_fields.h"
#include "google/protobuf/descriptor.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

RunModel AModel() {
  RunSpec spec;
  spec.mutable_model()->set_width(64);
  spec.mutable_model()->set_layers(4);
  spec.mutable_model()->set_heads(4);
  spec.mutable_model()->set_vocabulary(256);
  spec.mutable_schedule()->set_steps(10);
  spec.mutable_schedule()->set_microbatches(8);
  spec.mutable_schedule()->set_sequences(2);
  spec.mutable_schedule()->set_sequence_tokens(32);
  return RunModelOf(spec, {}).value();
}

constexpr const char* kGood =
    "name: two\n"                                                   // 1
    "devices:\n"                                                    // 2
    "  - name: fast\n"                                              // 3
    "    tflops: 100\n"                                             // 4
    "    efficiency: 0.5\n"                                         // 5
    "    memory_gib: 24\n"                                          // 6
    "    gpu: true\n"                                               // 7
    "workers:\n"                                                    // 8
    "  - name: east\n"                                              // 9
    "    count: 3\n"                                                // 10
    "    region: east\n"                                            // 11
    "    device: fast\n"                                            // 12
    "    up_mbit: 100\n"                                            // 13
    "    up_mbit_to: 200\n"                                         // 14
    "    down_mbit: 500\n"                                          // 15
    "  - name: lab\n"                                               // 16
    "    region: west\n"                                            // 17
    "    listens: false\n"                                          // 18
    "    failures_per_hour: 0.5\n"                                  // 19
    "    embedding: {forward_ms: 1, backward_ms: 2}\n"              // 20
    "    block: {forward_ms: 10, backward_ms: 30, update_ms: 4}\n"  // 21
    "    tail_block: {forward_ms: 11, backward_ms: 22}\n"           // 22
    "    head: {forward_ms: 5, backward_ms: 6}\n"                   // 23
    "regions:\n"                                                    // 24
    "  - {from: east, to: west, rtt_ms: 80, mbit: 50}\n"            // 25
    "  - {from: west, to: east, rtt_ms: 80, mbit: 40}\n"            // 26
    "  - {from: east, to: east, rtt_ms: 1}\n"                       // 27
    "links:\n"                                                      // 28
    "  - {from: east-0, to: lab, usable: false}\n";                 // 29

absl::Status Check(const std::string& yaml) {
  const auto written = ParseFleetFile(yaml, "fleet.yaml");
  return written.ok() ? FleetFor(*written, AModel()).status() : written.status();
}

TEST(FleetFileTest, GoodFile_BecomesAFleet) {
  const auto written = ParseFleetFile(kGood, "fleet.yaml");
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_FALSE(AllWorkersAreGpus(written->file));
  const RunModel model = AModel();
  const auto fleet = FleetFor(*written, model);
  ASSERT_TRUE(fleet.ok()) << fleet.status();
  ASSERT_EQ(fleet->workers.size(), 4u);
  const FleetWorker &east = fleet->workers[1], &lab = fleet->workers[3];
  EXPECT_EQ(east.name, "east-1");
  EXPECT_EQ(east.host, "east-1");
  EXPECT_EQ(east.memory_bytes, 24ull << 30);
  EXPECT_DOUBLE_EQ(east.up_bytes_per_second, 150e6 / 8);
  EXPECT_DOUBLE_EQ(fleet->workers[2].up_bytes_per_second, 200e6 / 8);
  EXPECT_DOUBLE_EQ(east.down_bytes_per_second, 500e6 / 8);
  EXPECT_TRUE(east.listens);
  const KindSeconds& block = east.kinds[1];
  EXPECT_DOUBLE_EQ(block.forward, model.work[1].forward_flops / 50e12);
  EXPECT_DOUBLE_EQ(block.backward, 3 * block.forward);
  EXPECT_EQ(lab.name, "lab");
  EXPECT_FALSE(lab.listens);
  EXPECT_EQ(lab.memory_bytes, 0u);
  EXPECT_EQ(lab.up_bytes_per_second, 0);
  EXPECT_DOUBLE_EQ(lab.kinds[1].backward, 0.03);
  EXPECT_DOUBLE_EQ(lab.kinds[1].update, 0.004);
  EXPECT_DOUBLE_EQ(fleet->regions.at({"east", "west"}).bytes_per_second, 50e6 / 8);
  EXPECT_DOUBLE_EQ(fleet->regions.at({"west", "east"}).bytes_per_second, 40e6 / 8);
  EXPECT_DOUBLE_EQ(fleet->regions.at({"east", "east"}).rtt_seconds, 0.001);
  EXPECT_FALSE(fleet->links.at({0, 3}).usable);
  EXPECT_FALSE(fleet->links.at({3, 0}).usable);
}

TEST(FleetFileTest, MemoryTrafficOfUpdates_CountsWhereItsRateIsGiven) {
  const std::string yaml = absl::StrReplaceAll(kGood, {{"    gpu: true\n", "    memory_gbyte_per_second: 100\n"}});
  const RunModel model = AModel();
  const auto fleet = FleetFor(ParseFleetFile(yaml, "fleet.yaml").value(), model);
  ASSERT_TRUE(fleet.ok()) << fleet.status();
  EXPECT_DOUBLE_EQ(fleet->workers[0].kinds[0].update, model.work[0].update_bytes / 100e9);
}

TEST(FleetFileTest, MemoryOfGpus_IsApartFromTheHosts) {
  const auto gpus = ParseFleetFile(
      "devices: [{name: g, tflops: 1, efficiency: 1, gpu: true}]\nworkers: [{name: a, count: 2, device: g}]\n", "f");
  ASSERT_TRUE(gpus.ok()) << gpus.status();
  EXPECT_TRUE(AllWorkersAreGpus(gpus->file));
}

struct BrokenFleet {
  const char* from;  // text of the good file that is replaced
  const char* to;
  const char* message;
};

TEST(FleetFileTest, BrokenFiles_SayFileLineKeyAndWhatIsAllowed) {
  const BrokenFleet cases[] = {
      {"    up_mbit: 100", "    up_mbits: 100",
       "fleet.yaml:13: workers[0].up_mbits: unknown key; allowed: name, count, host, region, device, memory_gib, "
       "up_mbit, up_mbit_to, down_mbit, down_mbit_to, failures_per_hour, listens, embedding, block, tail_block, head"},
      {"    up_mbit: 100", "    up_mbit: 0",
       "fleet.yaml:13: workers[0].up_mbit: 0 is out of range; allowed: 0 < x <= 1e7"},
      {"    up_mbit: 100", "    up_mbit: fast",
       "fleet.yaml:13: workers[0].up_mbit: \"fast\" is not a number; allowed: 0 < x <= 1e7"},
      {"    count: 3", "    count: 0", "fleet.yaml:10: workers[0].count: 0 is out of range; allowed: 1..20000"},
      {"    count: 3\n", "", "fleet.yaml:13: workers[0].up_mbit_to: needs up_mbit and a count of 2 or more"},
      {"    count: 3", "    count: 20000", "fleet.yaml:16: workers[1].count: more than 20000 workers in all"},
      {"    device: fast", "    device: fats",
       "fleet.yaml:12: workers[0].device: fats is not among devices; allowed: fast"},
      {"    device: fast\n", "",
       "fleet.yaml:9: workers[0].embedding: is missing: give measured times of every kind of unit of the model, or a "
       "device with tflops"},
      {"    efficiency: 0.5\n", "",
       "fleet.yaml:3: devices[0].efficiency: is missing: tflops and efficiency belong together"},
      {"    efficiency: 0.5", "    efficiency: 50",
       "fleet.yaml:5: devices[0].efficiency: 50 is out of range; allowed: 0 < x <= 1"},
      {"  - name: lab\n", "  - name: east-2\n", "fleet.yaml:16: workers[1].name: east-2 is there twice"},
      {"  - name: lab\n    region", "  - region",
       "fleet.yaml:16: workers[1].name: is missing; allowed: 1..63 of a-z, 0-9, - (not at the ends)"},
      {"{forward_ms: 10, backward_ms: 30, update_ms: 4}", "{forward_ms: 10}",
       "fleet.yaml:21: workers[1].block.backward_ms: is missing; allowed: milliseconds, 0..1e8"},
      {"    tail_block: {forward_ms: 11, backward_ms: 22}\n", "",
       "fleet.yaml:16: workers[1].tail_block: is missing: give measured times of every kind of unit of the model, or a "
       "device with tflops"},
      {"{from: east, to: east, rtt_ms: 1}", "{from: east, to: esat, rtt_ms: 1}",
       "fleet.yaml:27: regions[2].to: no worker is in region esat; there are: east, west"},
      {"{from: east, to: east, rtt_ms: 1}", "{from: east, to: west, rtt_ms: 1}",
       "fleet.yaml:27: regions[2]: east to west is written twice"},
      {"    region: west\n", "    region: north\n",
       "fleet.yaml:25: regions[0].to: no worker is in region west; there are: east, north"},
      {"    region: west\n", "", "fleet.yaml:24: regions[0].to: no worker is in region west; there are: , east"},
      {"{from: east-0, to: lab,", "{from: east-9, to: lab,",
       "fleet.yaml:29: links[0].from: no worker is called east-9; there are: east-0, east-1, east-2, lab"},
      {"workers:\n  - name: east", "workers: []\nworker:\n  - name: east",
       "fleet.yaml:8: workers: 0 items is out of range; allowed: 1..20000 rows"},
  };
  for (const BrokenFleet& broken : cases) {
    const std::string yaml = absl::StrReplaceAll(kGood, {{broken.from, broken.to}});
    ASSERT_NE(yaml, kGood) << broken.from;
    const absl::Status status = Check(yaml);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << broken.to;
    EXPECT_EQ(std::string(status.message()), broken.message);
  }
}

TEST(FleetFileTest, RegionsWithoutARowBetweenThem_AreRefused) {
  const absl::Status status = Check(
      "devices: [{name: g, tflops: 1, efficiency: 1}]\n"
      "workers: [{name: a, region: x, device: g}, {name: b, region: y, device: g}]\n");
  EXPECT_EQ(std::string(status.message()),
            "fleet.yaml: regions: no row between x and y: every two regions that have workers need one");
}

void ExpectSameLink(const FleetLink& a, const FleetLink& b) {
  EXPECT_DOUBLE_EQ(a.rtt_seconds, b.rtt_seconds);
  EXPECT_DOUBLE_EQ(a.bytes_per_second, b.bytes_per_second);
  EXPECT_EQ(a.usable, b.usable);
}

TEST(FleetFileTest, FleetWrittenAndReadAgain_IsTheSame) {
  const RunModel model = AModel();
  const Fleet fleet = FleetFor(ParseFleetFile(kGood, "fleet.yaml").value(), model).value();
  const std::string yaml = FormatYaml(FileOfFleet(fleet, model));
  const auto written = ParseFleetFile(yaml, "again.yaml");
  ASSERT_TRUE(written.ok()) << written.status() << "\n" << yaml;
  const Fleet again = FleetFor(*written, model).value();
  ASSERT_EQ(again.workers.size(), fleet.workers.size());
  for (size_t i = 0; i < fleet.workers.size(); ++i) {
    const FleetWorker &a = fleet.workers[i], &b = again.workers[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.host, b.host);
    EXPECT_EQ(a.region, b.region);
    EXPECT_EQ(a.memory_bytes, b.memory_bytes);
    EXPECT_DOUBLE_EQ(a.up_bytes_per_second, b.up_bytes_per_second);
    EXPECT_DOUBLE_EQ(a.down_bytes_per_second, b.down_bytes_per_second);
    EXPECT_EQ(a.failures_per_hour, b.failures_per_hour);
    EXPECT_EQ(a.listens, b.listens);
    for (uint32_t kind = 0; kind < kNumUnitKinds; ++kind) {
      EXPECT_DOUBLE_EQ(a.kinds[kind].forward, b.kinds[kind].forward);
      EXPECT_DOUBLE_EQ(a.kinds[kind].backward, b.kinds[kind].backward);
      EXPECT_DOUBLE_EQ(a.kinds[kind].update, b.kinds[kind].update);
    }
  }
  ASSERT_EQ(again.regions.size(), fleet.regions.size());
  for (const auto& [pair, link] : fleet.regions) ExpectSameLink(link, again.regions.at(pair));
  ASSERT_EQ(again.links.size(), fleet.links.size());
  for (const auto& [pair, link] : fleet.links) ExpectSameLink(link, again.links.at(pair));
}

void ExpectRules(const google::protobuf::Descriptor* message, const std::string& prefix) {
  for (int i = 0; i < message->field_count(); ++i) {
    const auto* field = message->field(i);
    const std::string path = prefix + field->name();
    EXPECT_NE(FindFieldRule(FleetFields(), path), nullptr) << path;
    if (field->message_type() != nullptr) ExpectRules(field->message_type(), path + ".");
  }
}

TEST(FleetFieldsTest, EveryField_HasARuleAndARowInTheDocument) {
  ExpectRules(FleetFile::descriptor(), "");
  const char* source = std::getenv("STAGECOACH_SOURCE");
  ASSERT_NE(source, nullptr) << "run the test through ctest";
  std::ifstream in(absl::StrCat(source, "/docs/planning.md"));
  std::stringstream page;
  page << in.rdbuf();
  for (const FieldRule& rule : FleetFields()) {
    const std::string path = rule.path;
    if (path.find("_ms") != std::string::npos && path.find("rtt") == std::string::npos) continue;  // one row for all
    const std::string row = absl::StrCat("| `", path, "` | ", rule.allowed, " | ", rule.fallback, " |");
    EXPECT_NE(page.str().find(row), std::string::npos) << row;
  }
}

}  // namespace
}  // namespace stagecoach
