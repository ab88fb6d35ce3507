#include "common/averaging/uplink_pacer.h"

#include <algorithm>

namespace stagecoach {
namespace {

constexpr std::chrono::milliseconds kIdleCredit(10);  // about what a loaded machine's timers are late

}  // namespace

void UplinkPacer::OnPiece(Time now, size_t bytes) {
  if (options_.uplink_bytes_per_second <= 0) return;
  const bool busy = FramesFlow(now);
  const double rate = options_.uplink_bytes_per_second * (busy ? options_.share : 1.0);
  const Time from = busy ? now : now - kIdleCredit;
  next_ = std::max(from, next_) +
          std::chrono::duration_cast<Time>(std::chrono::duration<double>(static_cast<double>(bytes) / rate));
}

}  // namespace stagecoach
