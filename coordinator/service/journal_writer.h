// Groups what happens on the coordinator loop into few commits: one batch is written at a time, whatever arrives in the
// meantime goes into the next one.
//
// Threading: confined to the coordinator loop; the journal is only touched on the store loop.
// Errors: the first one is handed to on_error, once; nothing is written afterwards.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/event_loop.h"
#include "coordinator/store/run_journal.h"

namespace stagecoach {

class JournalWriter : public std::enable_shared_from_this<JournalWriter> {
 public:
  JournalWriter(EventLoop* loop, EventLoop* store, RunJournal* journal, std::string run,
                std::function<void(absl::Status)> on_error)
      : loop_(loop), store_(store), journal_(journal), run_(std::move(run)), on_error_(std::move(on_error)) {}

  void Add(const JournalStep& step);
  void Add(const JournalEvaluation& evaluation);
  void Add(const JournalCheckpoint& checkpoint);
  // Stops calling on_error; what is pending is still written.
  void Detach() { on_error_ = nullptr; }

 private:
  void Flush();

  EventLoop* const loop_;
  EventLoop* const store_;
  RunJournal* const journal_;
  const std::string run_;
  std::function<void(absl::Status)> on_error_;
  JournalBatch pending_;
  bool writing_ = false, failed_ = false;
};

}  // namespace stagecoach
