// A program that reads its standard input and writes its standard output, run as a child: bytes go in, bytes come out,
// in bounded memory. Its standard error is ours.
//
// Threading: one thread. Errors: FAILED_PRECONDITION: the program is not installed; INTERNAL: it failed.
// Ownership: the destructor ends the child and waits for it.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace stagecoach {

class ProgramFilter {
 public:
  using Sink = std::function<absl::Status(absl::string_view)>;

  // arguments[0] is looked up in PATH. `package`: what to install if it is not there.
  static absl::StatusOr<std::unique_ptr<ProgramFilter>> Start(const std::vector<std::string>& arguments,
                                                              const std::string& package);
  ~ProgramFilter();
  ProgramFilter(const ProgramFilter&) = delete;
  ProgramFilter& operator=(const ProgramFilter&) = delete;

  // Hands over all of `bytes`; what the program writes meanwhile goes to `sink`.
  absl::Status Write(absl::string_view bytes, const Sink& sink);
  // Closes the program's input, takes the rest of its output, and checks that it ended well.
  absl::Status Finish(const Sink& sink);

 private:
  ProgramFilter(std::string name, pid_t child, int channel)
      : name_(std::move(name)), child_(child), channel_(channel) {}
  absl::Status TakeOutput(const Sink& sink, bool* ended);
  void End();

  std::string name_;
  pid_t child_;
  int channel_;  // our end of a socket pair, the child's input and output
};

// Runs a program on `input` and returns its whole output, which must not exceed `cap` bytes.
absl::StatusOr<std::string> RunProgram(const std::vector<std::string>& arguments, const std::string& package,
                                       absl::string_view input, size_t cap);

}  // namespace stagecoach
