// The command line of stagecoach-worker.
//
// Threading: ParseWorkerFlags on the main thread, before others start.
// Errors: INVALID_ARGUMENT with a sentence for the user. `help` set: print it and leave.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"

namespace stagecoach {

struct WorkerFlags {
  std::string coordinator;  // host:port
  std::string listen = "127.0.0.1:0";
  std::string advertise;  // empty: the listen host with the bound port
  std::string name;       // empty: host name and process id
  std::string device = "cpu";
  int threads = 1;
  std::map<std::string, std::string> dial;           // worker name -> host:port
  std::string executor = "torch";                    // torch, fake (the flag also takes fake:FORWARD_MS/BACKWARD_MS)
  double fake_forward_ms = 1, fake_backward_ms = 2;  // slept for each unit of the stage
  uint64_t memory_cap_bytes = 0;                     // for the stage; 0: what is free
  std::string port_file;                             // gets the bound port, for whoever started the worker
  bool insecure = false;                             // allows a listen address that others can reach
  std::string help;                                  // not empty: the user asked for it
};

absl::StatusOr<WorkerFlags> ParseWorkerFlags(int argc, char** argv);

}  // namespace stagecoach
