#include "model/data/prepare_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>

#include "model/data/program_filter.h"
#include "model/data/text_source.h"
#include "model/data/token_dataset.h"
#include "model/data/tokenizer.h"
#include "tests/support/scratch_folder.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ScratchFolder;

std::string TextOf(const std::string& folder) {
  const auto data = TokenDataset::Open(folder, /*verify=*/true);
  EXPECT_TRUE(data.ok()) << data.status();
  std::vector<int64_t> ids(data->num_tokens());
  data->Read(0, absl::MakeSpan(ids));
  return {ids.begin(), ids.end()};
}

void WriteGzip(const std::string& path, const std::string& text) {
  gzFile file = gzopen(path.c_str(), "wb");
  ASSERT_EQ(gzwrite(file, text.data(), static_cast<unsigned>(text.size())), static_cast<int>(text.size()));
  gzclose(file);
}

TEST(PrepareTextTest, Bytes_ComeBackAsTheText) {
  ScratchFolder folder;
  folder.Write("in/b.txt", "second \xC3\xA9\n");
  folder.Write("in/a.txt", "first");
  folder.Write("in/deep/c", "third");
  folder.Write("in/.hidden", "never");
  folder.Write("in/picture.png", std::string("\x89PNG\0\0", 6));
  const auto result = PrepareText({{folder.File("in")}, folder.File("out")});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(TextOf(folder.File("out")), "first\nsecond \xC3\xA9\nthird");
  EXPECT_EQ(result->files, 3u);
  EXPECT_THAT(result->skipped, ElementsAre(folder.File("in/picture.png")));
  EXPECT_EQ(result->tokens, 21u);
  EXPECT_EQ(result->index.vocabulary, 256u);
}

TEST(PrepareTextTest, SmallShards_HoldTheSameText) {
  ScratchFolder folder;
  const std::string text = "the quick brown fox jumps over the lazy dog";
  folder.Write("t.txt", text);
  PrepareOptions options{{folder.File("t.txt")}, folder.File("out")};
  options.shard_tokens = 10;
  const auto result = PrepareText(options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->index.shards.size(), 5u);
  EXPECT_EQ(TextOf(folder.File("out")), text);
  // A shorter preparation into the same folder leaves no shard of the longer one.
  options.shard_tokens = 100;
  ASSERT_TRUE(PrepareText(options).ok());
  EXPECT_FALSE(std::filesystem::exists(folder.File("out/shard-00001.bin")));
  EXPECT_EQ(TextOf(folder.File("out")), text);
}

TEST(PrepareTextTest, SecondCall_GivesTheSameBytes) {
  ScratchFolder folder;
  folder.Write("in/t.txt", "words and words");
  const PrepareOptions options{{folder.File("in")},
                               folder.File("in/out")};  // inside the input: it must not feed itself
  ASSERT_TRUE(PrepareText(options).ok());
  const std::string index = folder.Read("in/out/dataset.json"), shard = folder.Read("in/out/shard-00000.bin");
  ASSERT_TRUE(PrepareText(options).ok());
  EXPECT_EQ(folder.Read("in/out/dataset.json"), index);
  EXPECT_EQ(folder.Read("in/out/shard-00000.bin"), shard);
}

TEST(PrepareTextTest, CompressedText_IsUnpacked) {
  ScratchFolder folder;
  std::string text;
  for (int i = 0; i < 300000; ++i) text += std::to_string(i) + ' ';  // several pieces
  WriteGzip(folder.File("t.dict.dz"), text);
  const auto result = PrepareText({{folder.File("t.dict.dz")}, folder.File("out")});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(TextOf(folder.File("out")), text);
  // The same file cut short, as a broken download would be.
  std::filesystem::resize_file(folder.File("t.dict.dz"), 100000);
  const auto broken = PrepareText({{folder.File("t.dict.dz")}, folder.File("broken")});
  EXPECT_EQ(broken.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(broken.status().message()), HasSubstr("t.dict.dz: cannot be unpacked"));
  EXPECT_FALSE(std::filesystem::exists(folder.File("broken/dataset.json"))) << "an unfinished folder has no index";
}

TEST(PrepareTextTest, UnusableInputs_AreRefused) {
  ScratchFolder folder;
  std::filesystem::create_directories(folder.File("nothing"));
  folder.Write("binary", std::string("a\0b", 3));
  folder.Write("empty.txt", "");
  const auto message = [&](const std::string& input) {
    return std::string(PrepareText({{folder.File(input)}, folder.File("out")}).status().message());
  };
  EXPECT_THAT(message("none.txt"), HasSubstr("does not exist"));
  EXPECT_THAT(message("nothing"), HasSubstr("no text files found"));
  EXPECT_THAT(message("binary"), HasSubstr("this is not text"));
  EXPECT_THAT(message("empty.txt"), HasSubstr("hold no text"));
}

TEST(TokenizerTest, InvalidUtf8_IsReplaced) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(ReplaceInvalidUtf8("plain \xC3\xA9 \xF0\x9F\x98\x80"), "plain \xC3\xA9 \xF0\x9F\x98\x80");
  EXPECT_EQ(ReplaceInvalidUtf8("a\xff"
                               "b"),
            "a" + r + "b");
  EXPECT_EQ(ReplaceInvalidUtf8("\xE2\x82"
                               "x"),
            r + "x")
      << "one mark for one broken character";
  EXPECT_EQ(ReplaceInvalidUtf8("\xC0\x80"), r + r);
  EXPECT_EQ(ReplaceInvalidUtf8("\xED\xA0\x80"), r + r + r) << "a surrogate";
  EXPECT_EQ(ReplaceInvalidUtf8("\xF4\x90\x80\x80"), r + r + r + r) << "beyond U+10FFFF";
  EXPECT_EQ(ReplaceInvalidUtf8("cut \xF0\x9F\x98"), "cut " + r);
}

TEST(ProgramFilterTest, LargeInput_PassesThrough) {
  std::string text;
  for (int i = 0; i < 400000; ++i) text += std::to_string(i) + '\n';
  const auto output = RunProgram({"cat"}, "coreutils", text, 64u << 20);
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_EQ(*output, text);
}

TEST(ProgramFilterTest, Failures_AreErrors) {
  const std::string text(4u << 20, 'x');
  EXPECT_THAT(std::string(RunProgram({"no-such-program-here"}, "some-package", "", 10).status().message()),
              HasSubstr("some-package"));
  EXPECT_FALSE(RunProgram({"false"}, "coreutils", "", 10).ok());
  EXPECT_FALSE(RunProgram({"head", "-c", "1"}, "coreutils", text, 10).ok()) << "it stopped reading";
  EXPECT_EQ(RunProgram({"cat"}, "coreutils", text, 1000).status().code(), absl::StatusCode::kResourceExhausted);
}

// A model of 300 pieces, trained here; false with a visible skip where the Debian program is missing.
bool TrainSentencePiece(const ScratchFolder& folder) {
  std::string text;
  for (int i = 0; i < 3000; ++i) {
    const int n = i * 7919 % 1000;
    text += "the horse number " + std::to_string(n) + " drew coach " + std::to_string(n * 31 % 97) +
            " over the hills and fields\n";
  }
  folder.Write("train.txt", text);
  return RunProgram({"spm_train", "--input=" + folder.File("train.txt"), "--model_prefix=" + folder.File("small"),
                     "--vocab_size=80", "--minloglevel=2"},
                    "sentencepiece", "", 1 << 20)
      .ok();
}

TEST(SentencePieceTest, TextAndLineEnds_ComeBack) {
  ScratchFolder folder;
  if (!TrainSentencePiece(folder)) GTEST_SKIP() << "spm_train cannot be run here";
  folder.Write("t.txt", "the horse\nthe coach\n\nover the hills");
  const auto result = PrepareText({{folder.File("t.txt")}, folder.File("out"), folder.File("small.model")});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->index.vocabulary, 80u);
  const auto data = TokenDataset::Open(folder.File("out"), true);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->tokenizer(), "sentencepiece");
  std::vector<int64_t> ids(data->num_tokens());
  data->Read(0, absl::MakeSpan(ids));
  const auto tokenizer = Tokenizer::Create(data->tokenizer_path());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(*(*tokenizer)->Decode(ids), "the horse\nthe coach\n\nover the hills");
}

TEST(SentencePieceTest, NotAModel_IsRefused) {
  ScratchFolder folder;
  EXPECT_THAT(std::string(Tokenizer::Create(folder.Write("bad.model", "no model")).status().message()),
              HasSubstr("bad.model"));
  EXPECT_EQ(Tokenizer::Create(folder.File("none.model")).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace stagecoach
