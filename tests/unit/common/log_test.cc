// Log lines; also SHA-256 of pieces.
#include "common/log.h"

#include <gtest/gtest.h>

#include "common/sha256.h"
#include "common/version.h"
#include "tests/support/status_matchers.h"

namespace stagecoach {
namespace {

TEST(Log, PlainValues_StandWithoutQuotes) {
  EXPECT_EQ(FormatLogLine(LogLevel::kInfo, "w1", "started", {{"address", "127.0.0.1:80"}, {"version", kVersion}}),
            "level=info node=w1 event=started address=127.0.0.1:80 version=0.1.0");
}

TEST(Log, ForeignText_CanNeitherEndTheLineNorAddAKey) {
  EXPECT_EQ(FormatLogLine(LogLevel::kError, "w1", "lost", {{"reason", "a \"b\"\nlevel=info"}, {"peer", ""}}),
            "level=error node=w1 event=lost reason=\"a \\\"b\\\"\\nlevel=info\" peer=\"\"");
}

TEST(Log, LongValue_IsCutAndSaysSo) {
  const std::string line = FormatLogLine(LogLevel::kWarning, "w", "e", {{"k", std::string(5000, 'x')}});
  EXPECT_EQ(line, "level=warning node=w event=e k=\"" + std::string(kMaxLogValueBytes, 'x') + "...\"");
}

TEST(Sha256, Pieces_EqualThePublishedDigest) {
  const std::string abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
  EXPECT_EQ(Sha256Hex("abc"), abc);
  Sha256 hash;
  hash.Update("a");
  hash.Update("bc");
  EXPECT_EQ(hash.FinishHex(), abc);
  EXPECT_THAT(Sha256OfFile("/nonexistent/file"), StatusIs(absl::StatusCode::kNotFound, "/nonexistent/file"));
  EXPECT_THAT(Sha256OfFile("/dev/null"), IsOk());
}

}  // namespace
}  // namespace stagecoach
