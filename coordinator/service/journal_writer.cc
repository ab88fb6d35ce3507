#include "coordinator/service/journal_writer.h"

#include <utility>

namespace stagecoach {
namespace {

// About an hour of the fastest steps: a store that is that far behind is broken.
constexpr size_t kMaxPendingSteps = 100000;

}  // namespace

void JournalWriter::Add(const JournalStep& step) {
  pending_.steps.push_back(step);
  Flush();
}

void JournalWriter::Add(const JournalEvaluation& evaluation) {
  pending_.evaluations.push_back(evaluation);
  Flush();
}

void JournalWriter::Add(const JournalCheckpoint& checkpoint) {
  pending_.checkpoints.push_back(checkpoint);
  Flush();
}

void JournalWriter::Flush() {
  if (failed_ || pending_.empty()) return;
  if (writing_) {
    if (pending_.steps.size() <= kMaxPendingSteps) return;
    failed_ = true;
    if (on_error_) on_error_(absl::ResourceExhaustedError("journal: the disk does not keep up with the steps"));
    return;
  }
  writing_ = true;
  store_->Post([self = shared_from_this(), batch = std::exchange(pending_, {})] {
    const absl::Status status = self->journal_->Append(self->run_, batch);
    self->loop_->Post([self, status] {
      self->writing_ = false;
      if (status.ok()) return self->Flush();
      self->failed_ = true;
      if (self->on_error_) self->on_error_(status);
    });
  });
}

}  // namespace stagecoach
