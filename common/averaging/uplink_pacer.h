// Says when the next piece of an averaging may leave, so that a frame of the pipeline never waits behind more than one
// piece: while frames flow at most `share` of the uplink, else all of it.
//
//   next = max(now - credit, next) + bytes / rate      rate = uplink * (frames in the last busy_for ? share : 1)
// The credit (only while idle) makes up for timers that fire late.
//
// Threading: one thread at a time. Time is an argument.
#pragma once

#include <chrono>
#include <cstddef>

namespace stagecoach {

class UplinkPacer {
 public:
  using Time = std::chrono::nanoseconds;  // since an arbitrary start
  struct Options {
    double uplink_bytes_per_second = 0;  // measured; 0 = unknown: pieces go one after the other as fast as they can
    double share = 0.3;                  // (0, 1] of the uplink while frames flow
    Time busy_for = std::chrono::milliseconds(250);  // after a frame; a pipeline at work sends several in that time
  };
  explicit UplinkPacer(const Options& options) : options_(options) {}

  void SetUplink(double bytes_per_second) { options_.uplink_bytes_per_second = bytes_per_second; }
  void OnFrame(Time now) {
    last_frame_ = now;
    had_frame_ = true;
  }
  bool FramesFlow(Time now) const { return had_frame_ && now - last_frame_ < options_.busy_for; }
  // A piece may leave now if this is not in the future.
  Time NextSend() const { return next_; }
  void OnPiece(Time now, size_t bytes);

 private:
  Options options_;
  bool had_frame_ = false;
  Time last_frame_{0};
  Time next_{0};
};

}  // namespace stagecoach
