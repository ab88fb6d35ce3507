// What a piece passes from one end of an emulated link to the other: the clock of all that `from` sends, of the pair,
// and of all that `to` receives. A piece has arrived when the last of them says so.
//
// Threading: none; the caller serialises. Does not own the clocks.
#pragma once

#include <algorithm>
#include <cstddef>

#include "cli/linkem/link_clock.h"

namespace stagecoach {

class LinkPath {
 public:
  // up, down: null if that end has no limit of its own.
  LinkPath(LinkClock* up, LinkClock* pair, LinkClock* down) : up_(up), pair_(pair), down_(down) {}

  bool Ready(LinkTime now) const { return now >= ReadyAt(); }
  LinkTime ReadyAt() const {
    LinkTime at = pair_->ReadyAt();
    if (up_ != nullptr) at = std::max(at, up_->ReadyAt());
    if (down_ != nullptr) at = std::max(at, down_->ReadyAt());
    return at;
  }
  // The delay is the pair's, after the slowest of the three queues.
  LinkTime Admit(LinkTime now, size_t bytes) {
    LinkTime leaves = now;
    if (up_ != nullptr) leaves = std::max(leaves, up_->Admit(now, bytes));
    if (down_ != nullptr) leaves = std::max(leaves, down_->Admit(now, bytes));
    return pair_->Admit(now, leaves, bytes);
  }
  size_t quantum() const {
    size_t smallest = pair_->quantum();
    if (up_ != nullptr) smallest = std::min(smallest, up_->quantum());
    if (down_ != nullptr) smallest = std::min(smallest, down_->quantum());
    return smallest;
  }
  size_t max_in_flight() const { return pair_->max_in_flight(); }

 private:
  LinkClock* up_;
  LinkClock* pair_;
  LinkClock* down_;
};

}  // namespace stagecoach
