// Starts a child that sleeps, prints its process id, and waits to be killed: for the test that a child does not
// survive.
#include <unistd.h>

#include <cstdio>

#include "cli/process/child_process.h"

int main() {
  stagecoach::ChildOptions options;
  options.name = "sleeper";
  options.program = "/bin/sleep";
  options.arguments = {"1000"};
  const auto child = stagecoach::ChildProcess::Start(options);
  if (!child.ok()) return 1;
  std::printf("child %d\n", static_cast<int>((*child)->pid()));
  std::fflush(stdout);
  for (;;) pause();
}
