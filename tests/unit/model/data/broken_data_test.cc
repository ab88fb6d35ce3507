// Unusable data is refused with a message that says what is wrong and what to do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <functional>

#include "common/sha256.h"
#include "model/data/dataset_index.h"
#include "model/data/shard_formats.h"
#include "model/data/token_dataset.h"
#include "tests/support/scratch_folder.h"

namespace stagecoach {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::ScratchFolder;

std::string TokenFile(uint32_t said, uint32_t present, int32_t magic = kTokenFileMagic, int32_t version = 1) {
  std::string bytes = TokenFileHeader(said) + std::string(present * 2, '\1');
  std::memcpy(bytes.data(), &magic, 4);
  std::memcpy(bytes.data() + 4, &version, 4);
  return bytes;
}

std::string Prepared(const ScratchFolder& folder, const std::function<void(std::string*, DatasetIndex*)>& damage) {
  std::string bytes = TokenFile(100, 100);
  DatasetIndex index;
  index.vocabulary = 258;
  index.shards = {{ShardName(0), Sha256Hex(bytes), 100}};
  damage(&bytes, &index);
  folder.Write("data/" + ShardName(0), bytes);
  folder.Write("data/dataset.json", DatasetIndexJson(index));
  return folder.File("data");
}

struct BrokenData {
  std::string name;
  std::function<std::string(const ScratchFolder&)> make;  // returns the path to open
  std::string message;
};

class BrokenDataTest : public ::testing::TestWithParam<BrokenData> {};

TEST_P(BrokenDataTest, IsRefusedWithTheReason) {
  ScratchFolder folder;
  const std::string path = GetParam().make(folder);
  const auto data = TokenDataset::Open(path, /*verify=*/true);
  ASSERT_FALSE(data.ok());
  EXPECT_THAT(std::string(data.status().message()), AllOf(HasSubstr(path), HasSubstr(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(
    Table, BrokenDataTest,
    ::testing::Values(
        BrokenData{"Missing", [](const auto& f) { return f.File("none.bin"); }, "does not exist"},
        BrokenData{"Empty", [](const auto& f) { return f.Write("t.bin", ""); }, "the file is empty"},
        BrokenData{"Truncated", [](const auto& f) { return f.Write("t.bin", TokenFile(100, 99)); },
                   "truncated: its header says 100 tokens and 99 follow"},
        BrokenData{"TruncatedHeader", [](const auto& f) { return f.Write("t.bin", TokenFile(100, 0).substr(0, 500)); },
                   "less than the header"},
        BrokenData{"TooLong", [](const auto& f) { return f.Write("t.bin", TokenFile(100, 101)); }, "wrong length"},
        BrokenData{"NoTokens", [](const auto& f) { return f.Write("t.bin", TokenFile(0, 0)); }, "it holds no tokens"},
        BrokenData{"WrongMagic", [](const auto& f) { return f.Write("t.bin", TokenFile(100, 100, 20240519)); },
                   "wrong magic number 20240519; an llm.c token file starts with 20240520"},
        BrokenData{"WideIds", [](const auto& f) { return f.Write("t.bin", TokenFile(100, 200, 20240801, 7)); },
                   "only 16-bit ids"},
        BrokenData{"WrongVersion",
                   [](const auto& f) { return f.Write("t.bin", TokenFile(100, 100, kTokenFileMagic, 9)); },
                   "version 9"},
        BrokenData{"OddSize", [](const auto& f) { return f.Write("t.bin", std::string("\1\0\2", 3)); },
                   "odd size of 3 bytes"},
        BrokenData{"Text", [](const auto& f) { return f.Write("t.bin", "In the beginning God created\n"); },
                   "this is text, not tokens; run `stagecoach-model prepare`"},
        BrokenData{"Compressed", [](const auto& f) { return f.Write("t.bin", "\x1f\x8b\x08 and so on"); },
                   "compressed file, not tokens; run `stagecoach-model prepare`"},
        BrokenData{"FolderOfText",
                   [](const auto& f) {
                     f.Write("texts/a.txt", "words");
                     return f.File("texts");
                   },
                   "not a finished folder of `stagecoach-model prepare`"},
        BrokenData{"HashDiffers",
                   [](const auto& f) { return Prepared(f, [](std::string* bytes, auto*) { bytes->back() = '\2'; }); },
                   "shard-00000.bin: its SHA-256 is"},
        BrokenData{"CountDiffers",
                   [](const auto& f) { return Prepared(f, [](auto*, auto* index) { index->shards[0].tokens = 7; }); },
                   "shard-00000.bin: it holds 100 tokens, dataset.json says 7"},
        BrokenData{"ShardWithoutHeader",
                   [](const auto& f) {
                     return Prepared(f, [](std::string* bytes, auto*) { *bytes = std::string(2248, '\1'); });
                   },
                   "wrong magic number"},
        BrokenData{"NameLeavesTheFolder",
                   [](const auto& f) {
                     return Prepared(f, [](auto*, auto* index) { index->shards[0].name = "../../etc/passwd"; });
                   },
                   "shard 0 is not named shard-00000.bin"},
        BrokenData{"IdOutsideTheVocabulary",
                   [](const auto& f) { return Prepared(f, [](auto*, auto* index) { index->vocabulary = 257; }); },
                   "it holds id 257, outside the vocabulary of 257"},
        BrokenData{"IndexDamaged",
                   [](const auto& f) {
                     Prepared(f, [](auto*, auto*) {});
                     f.Write("data/dataset.json", "{");
                     return f.File("data");
                   },
                   "dataset.json: not a JSON object"},
        BrokenData{"Fifo",
                   [](const auto& f) {
                     std::filesystem::create_symlink("/dev/null", f.File("t.bin"));
                     return f.File("t.bin");
                   },
                   "not a regular file"}),
    [](const auto& test) { return test.param.name; });

// Root reads everything, so it becomes somebody else for a moment.
class AsNobody {
 public:
  AsNobody() : changed_(geteuid() == 0 && seteuid(65534) == 0) {}
  ~AsNobody() {
    if (changed_ && seteuid(0) != 0) ADD_FAILURE() << "cannot become root again";
  }

 private:
  bool changed_;
};

TEST(BrokenDataTest, Unreadable_SaysSo) {
  ScratchFolder folder;
  const std::string path = folder.Write("t.bin", TokenFile(100, 100));
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0755));
  std::filesystem::permissions(path, std::filesystem::perms::none);
  const AsNobody nobody;
  if (access(path.c_str(), F_OK) != 0 || geteuid() == 0) GTEST_SKIP() << "cannot become another user here";
  EXPECT_THAT(std::string(TokenDataset::Open(path, true).status().message()),
              AllOf(HasSubstr(path), HasSubstr("Permission denied")));
}

TEST(BrokenDataTest, FewerThanTwoWindows_SaysHowManyAreNeeded) {
  EXPECT_THAT(std::string(SplitWindows(100, 64, 0.02).status().message()),
              AllOf(HasSubstr("hold 100 tokens"), HasSubstr("at least 129"), HasSubstr("sequence_tokens")));
}

TEST(LooksLikeTextTest, TextAndTokens) {
  const auto text = [](const std::string& bytes) { return LooksLikeText({bytes.data(), bytes.size()}); };
  EXPECT_TRUE(text("plain\ttext\r\n"));
  EXPECT_TRUE(text("caf\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80"));
  EXPECT_TRUE(text("cut \xE2\x82")) << "a sample may end inside a character";
  EXPECT_FALSE(text(std::string("a\0b\0", 4)));
  EXPECT_FALSE(text("\xff\xfe"));
  EXPECT_FALSE(text("\xC3("));
}

}  // namespace
}  // namespace stagecoach
