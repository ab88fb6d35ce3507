#include "common/averaging/uplink_pacer.h"

#include <gtest/gtest.h>

namespace stagecoach {
namespace {

using std::chrono::milliseconds;
using Time = UplinkPacer::Time;
constexpr size_t kPiece = 65536;

// Pieces that leave in `duration` when sent as soon as allowed, with a frame every `frame_every` (0: none).
int PiecesIn(UplinkPacer* pacer, Time duration, Time frame_every) {
  int pieces = 0;
  Time next_frame = milliseconds(1000);
  for (Time now = milliseconds(1000); now < milliseconds(1000) + duration; now += std::chrono::microseconds(50)) {
    if (frame_every.count() > 0 && now >= next_frame) {
      pacer->OnFrame(now);
      next_frame = now + frame_every;
    }
    if (pacer->NextSend() > now) continue;
    pacer->OnPiece(now, kPiece);
    ++pieces;
  }
  return pieces;
}

TEST(UplinkPacerTest, FramesFlow_PiecesTakeTheirShare) {
  UplinkPacer pacer({12.5e6, 0.3, milliseconds(250)});
  const int pieces = PiecesIn(&pacer, milliseconds(10000), milliseconds(100));
  EXPECT_NEAR(pieces * static_cast<double>(kPiece) / 10, 0.3 * 12.5e6, 0.02 * 12.5e6);
}

TEST(UplinkPacerTest, Idle_PiecesTakeTheLine) {
  UplinkPacer pacer({12.5e6, 0.3, milliseconds(250)});
  const int pieces = PiecesIn(&pacer, milliseconds(10000), Time(0));
  EXPECT_NEAR(pieces * static_cast<double>(kPiece) / 10, 12.5e6, 0.02 * 12.5e6);
}

TEST(UplinkPacerTest, AFrame_WaitsBehindOnePieceAtMost) {
  UplinkPacer pacer({12.5e6, 0.3, milliseconds(250)});
  // With frames flowing, two pieces are never closer than one takes at a third of the uplink.
  Time now = milliseconds(5000);
  pacer.OnFrame(now);
  pacer.OnPiece(now, kPiece);
  EXPECT_GE(pacer.NextSend() - now, std::chrono::microseconds(17000));
  pacer.OnFrame(now + milliseconds(200));
  pacer.OnPiece(now + milliseconds(200), kPiece);  // no credit for the pause
  EXPECT_GE(pacer.NextSend() - now, milliseconds(217));
}

TEST(UplinkPacerTest, UnknownUplink_DoesNotHoldPieces) {
  UplinkPacer pacer({});
  pacer.OnFrame(milliseconds(1));
  pacer.OnPiece(milliseconds(1), kPiece);
  EXPECT_LE(pacer.NextSend(), milliseconds(1));
}

}  // namespace
}  // namespace stagecoach
