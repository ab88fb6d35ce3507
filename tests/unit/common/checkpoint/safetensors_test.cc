#include "common/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/scratch_folder.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

// A file of a given header text and number of data bytes.
std::string AFile(const std::string& header, size_t data_bytes) {
  std::string bytes(8, '\0');
  const uint64_t size = header.size();
  std::memcpy(bytes.data(), &size, 8);
  return bytes + header + std::string(data_bytes, 'x');
}

TEST(SafetensorsTest, RoundTrip_KeepsEverything) {
  const std::string floats(24, 'f'), words(16, 'w'), half(6, 'h');
  const std::vector<TensorEntry> entries = {{"w.0.units.3.attention.q", "F32", {2, 3}, floats},
                                            {"counter \"quoted\" \xC3\xA9", "U64", {2}, words},
                                            {"bf", "BF16", {1, 3, 1}, half},
                                            {"scalar", "U8", {}, "s"},
                                            {"empty", "F64", {0, 5}, ""}};
  const auto bytes = SerializeSafetensors(entries, {{"step", "12"}, {"nadam_product", "0x1.8p-1"}});
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  testing::ScratchFolder folder;
  const auto reader = SafetensorsReader::Open(folder.Write("layer.safetensors", *bytes));
  ASSERT_TRUE(reader.ok()) << reader.status();
  ASSERT_EQ(reader->tensors().size(), entries.size());
  for (const TensorEntry& entry : entries) {
    const TensorEntry& read = reader->tensors().at(entry.name);
    EXPECT_EQ(read.dtype, entry.dtype);
    EXPECT_EQ(read.shape, entry.shape);
    EXPECT_EQ(read.data, entry.data);
  }
  EXPECT_EQ(reader->metadata().at("nadam_product"), "0x1.8p-1");
  uint64_t header = 0;
  std::memcpy(&header, bytes->data(), 8);
  EXPECT_EQ(header % 8, 0u) << "the data starts aligned";
}

TEST(SafetensorsTest, Reader_SurvivesBeingMoved) {
  const auto bytes = SerializeSafetensors({{"a", "U8", {3}, "abc"}}, {});
  auto reader = SafetensorsReader::Parse(*bytes, "memory");
  ASSERT_TRUE(reader.ok());
  const SafetensorsReader moved = std::move(*reader);
  EXPECT_EQ(moved.tensors().at("a").data, "abc");
}

TEST(SafetensorsTest, Write_RefusesWhatDoesNotFit) {
  EXPECT_FALSE(SerializeSafetensors({{"a", "F32", {2}, "abc"}}, {}).ok());
  EXPECT_FALSE(SerializeSafetensors({{"a", "F33", {1}, "abcd"}}, {}).ok());
  EXPECT_FALSE(SerializeSafetensors({{"", "U8", {1}, "a"}}, {}).ok());
  EXPECT_FALSE(SerializeSafetensors({{"__metadata__", "U8", {1}, "a"}}, {}).ok());
  EXPECT_FALSE(SerializeSafetensors({{"a", "U8", {1}, "a"}, {"a", "U8", {1}, "b"}}, {}).ok());
  EXPECT_FALSE(SerializeSafetensors({{"a", "U8", {-1}, ""}}, {}).ok());
}

struct Malformed {
  std::string name, bytes, message;
};

class MalformedSafetensorsTest : public ::testing::TestWithParam<Malformed> {};

TEST_P(MalformedSafetensorsTest, IsRefusedWithTheReason) {
  const auto reader = SafetensorsReader::Parse(GetParam().bytes, "layer-0003.safetensors");
  ASSERT_FALSE(reader.ok());
  EXPECT_EQ(reader.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(reader.status().message()), HasSubstr("layer-0003.safetensors"));
  EXPECT_THAT(std::string(reader.status().message()), HasSubstr(GetParam().message));
}

std::string Two(const std::string& first, const std::string& second) {
  return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + first +
         R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}";
}
std::string One(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"a":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

INSTANTIATE_TEST_SUITE_P(
    Corpus, MalformedSafetensorsTest,
    ::testing::Values(
        Malformed{"Empty", "", "fewer than the 8"}, Malformed{"Short", "1234567", "fewer than the 8"},
        Malformed{"HugeHeader", std::string(8, '\xff'), "above 100 MiB"},
        Malformed{"TruncatedHeader", AFile(One("\"U8\"", "[4]", "[0,4]"), 4).substr(0, 20), "truncated"},
        Malformed{"TruncatedData", AFile(One("\"U8\"", "[4]", "[0,4]"), 3), "do not lie in the 3 bytes"},
        Malformed{"Overlap", AFile(Two("[0,4]", "[3,7]"), 7), "overlaps"},
        Malformed{"SameRange", AFile(Two("[0,4]", "[0,4]"), 4), "overlaps"},
        Malformed{"Gap", AFile(Two("[0,4]", "[5,9]"), 9), "a gap lies before"},
        Malformed{"GapInFront", AFile(Two("[1,5]", "[5,9]"), 9), "a gap lies before"},
        Malformed{"Tail", AFile(Two("[0,4]", "[4,8]"), 9), "end at byte 8"},
        Malformed{"WrongProduct", AFile(One("\"F32\"", "[2,2]", "[0,8]"), 8), "another size"},
        Malformed{"ProductOverflow", AFile(One("\"F32\"", "[4294967296,4294967296]", "[0,0]"), 0), "another size"},
        Malformed{"NegativeExtent", AFile(One("\"U8\"", "[-4]", "[0,4]"), 4), "number >= 0"},
        Malformed{"HugeExtent", AFile(One("\"U8\"", "[18446744073709551615]", "[0,4]"), 4), "number >= 0"},
        Malformed{"FloatExtent", AFile(One("\"U8\"", "[4.0]", "[0,4]"), 4), "number >= 0"},
        Malformed{"ManyDimensions", AFile(One("\"U8\"", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,1]"), 1),
                  "at most 16"},
        Malformed{"UnknownDtype", AFile(One("\"F12\"", "[4]", "[0,4]"), 4), "unknown dtype"},
        Malformed{"DtypeNumber", AFile(One("4", "[4]", "[0,4]"), 4), "dtype is missing"},
        Malformed{"BackwardsOffsets", AFile(One("\"U8\"", "[4]", "[4,0]"), 4), "do not lie"},
        Malformed{"OneOffset", AFile(One("\"U8\"", "[4]", "[4]"), 4), "not a pair"},
        Malformed{"UnknownKey", AFile(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"run":"rm"}})", 0),
                  "unknown key"},
        Malformed{"DoubledName",
                  AFile(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],)"
                        R"("data_offsets":[0,0]}})",
                        0),
                  "occurs twice"},
        Malformed{"NotJson", AFile("{\"a\":", 0), "not a JSON object"},
        Malformed{"List", AFile("[]", 0), "not a JSON object"},
        Malformed{"Metadata", AFile(R"({"__metadata__":{"a":1}})", 0), "is not a string"},
        Malformed{"Deep", AFile("{\"a\":" + std::string(100000, '['), 0), "nested too deeply"}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace stagecoach
