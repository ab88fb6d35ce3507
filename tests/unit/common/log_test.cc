// Lines and numbers for people: common/log.h, common/human_format.h; also SHA-256 of pieces.
#include "common/log.h"

#include <gtest/gtest.h>

#include <limits>

#include "common/human_format.h"
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

TEST(Log, LineBelowTheLevel_IsNotWritten) {
  SetLogLevel(LogLevel::kWarning);
  testing::internal::CaptureStderr();
  Log(LogLevel::kInfo, "w", "quiet");
  Log(LogLevel::kWarning, "w", "loud");
  SetLogLevel(LogLevel::kInfo);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "level=warning node=w event=loud\n");
}

TEST(HumanFormat, BytesAndDurations_RoundToTheUnitAbove) {
  EXPECT_EQ(HumanBytes(0), "0 B");
  EXPECT_EQ(HumanBytes(1023), "1023 B");
  EXPECT_EQ(HumanBytes(1536), "1.5 KiB");
  EXPECT_EQ(HumanBytes((uint64_t{1} << 20) - 1), "1.0 MiB");
  EXPECT_EQ(HumanBytes(std::numeric_limits<uint64_t>::max()), "16.0 EiB");
  EXPECT_EQ(HumanDuration(0.25), "250ms");
  EXPECT_EQ(HumanDuration(0.9999), "1.0s");
  EXPECT_EQ(HumanDuration(59.99), "1m00s");
  EXPECT_EQ(HumanDuration(125), "2m05s");
  EXPECT_EQ(HumanDuration(3720), "1h02m");
  EXPECT_EQ(HumanDuration(3 * 86400 + 4 * 3600), "3d04h");
  EXPECT_EQ(HumanDuration(-1), "?");
  EXPECT_EQ(HumanDuration(std::numeric_limits<double>::quiet_NaN()), "?");
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
