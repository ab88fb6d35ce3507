// Counts SIGINT, SIGTERM and SIGHUP. The first one asks for a graceful end; the second one ends the process at once
// (its children die with it, see child_process.h).
//
// Threading: InstallInterruptHandler once on the main thread; InterruptRequested from any thread.
#pragma once

namespace stagecoach {

void InstallInterruptHandler();
bool InterruptRequested();

}  // namespace stagecoach
