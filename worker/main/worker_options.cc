#include "worker/main/worker_options.h"

#include <CLI/CLI.hpp>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/host_port.h"
#include "common/status_macros.h"

namespace stagecoach {
namespace {

bool IsWorkerName(const std::string& name) {
  if (name.empty() || name.size() > 63 || name.front() == '-' || name.back() == '-') return false;
  for (const char c : name) {
    if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '-') return false;
  }
  return true;
}

absl::Status Check(const WorkerFlags& flags) {
  RETURN_IF_ERROR(CheckHostPort("--coordinator", flags.coordinator));
  RETURN_IF_ERROR(CheckHostPort("--listen", flags.listen));
  if (!flags.advertise.empty()) RETURN_IF_ERROR(CheckHostPort("--advertise", flags.advertise));
  if (!flags.name.empty() && !IsWorkerName(flags.name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--name: lower-case letters, digits and inner dashes, at most 63 characters: ", flags.name));
  }
  if (!flags.insecure && !IsLoopback(flags.listen)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--listen: others could reach ", flags.listen,
                     ", and links are neither encrypted nor authenticated; add --insecure if the network is trusted"));
  }
  if (flags.device != "cpu" && flags.device != "cuda" && !absl::StartsWith(flags.device, "cuda:")) {
    return absl::InvalidArgumentError(absl::StrCat("--device: cpu, cuda or cuda:N: ", flags.device));
  }
  return absl::OkStatus();
}

// "fake:FORWARD_MS/BACKWARD_MS": how long the fake one sleeps.
absl::Status ReadExecutor(WorkerFlags* flags) {
  constexpr double kLongestMs = 1e5;  // above it, a mistake
  if (flags->executor == "torch" || flags->executor == "fake") return absl::OkStatus();
  const std::vector<std::string> parts = absl::StrSplit(flags->executor, absl::ByAnyChar(":/"));
  const auto milliseconds = [](const std::string& text, double* value) {
    return absl::SimpleAtod(text, value) && *value >= 0 && *value <= kLongestMs;
  };
  if (parts.size() != 3 || parts[0] != "fake" || !milliseconds(parts[1], &flags->fake_forward_ms) ||
      !milliseconds(parts[2], &flags->fake_backward_ms)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--executor: torch, fake or fake:FORWARD_MS/BACKWARD_MS: ", flags->executor));
  }
  flags->executor = "fake";
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<WorkerFlags> ParseWorkerFlags(int argc, char** argv) {
  WorkerFlags flags;
  std::vector<std::string> dial;
  CLI::App app("stagecoach-worker: executes one stage of a run", "stagecoach-worker");
  app.add_option("--coordinator", flags.coordinator, "host:port of the coordinator")->required();
  app.add_option("--listen", flags.listen, "host:port where other workers' links arrive; port 0: any free one");
  app.add_option("--advertise", flags.advertise, "host:port that other workers dial (default: the listen address)");
  app.add_option("--name", flags.name, "name in the fleet (default: host name and process id)");
  app.add_option("--device", flags.device, "cpu, cuda or cuda:N");
  app.add_option("--threads", flags.threads, "threads of libtorch")->check(CLI::Range(1, 256));
  app.add_option("--dial", dial, "NAME=host:port: dial the worker NAME there (repeatable)")->allow_extra_args(false);
  app.add_option("--executor", flags.executor,
                 "torch, or fake: integer arithmetic that sleeps (fake:FORWARD_MS/BACKWARD_MS a unit), to test links");
  double memory_gib = 0;
  app.add_option("--memory-gib", memory_gib, "memory that a stage may use, in GiB (default: what is free)")
      ->check(CLI::Range(0.0001, 1e6));
  app.add_option("--port-file", flags.port_file, "file that gets the bound port");
  app.add_flag("--insecure", flags.insecure, "allow a listen address that is not loopback");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    flags.help = app.help();
    return flags;
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(absl::StrCat(error.what(), "; see stagecoach-worker --help"));
  }
  flags.memory_cap_bytes = static_cast<uint64_t>(memory_gib * (1 << 30));
  for (const std::string& entry : dial) {
    const size_t equals = entry.find('=');
    if (equals == std::string::npos || !IsWorkerName(entry.substr(0, equals)) ||
        !IsHostPort(entry.substr(equals + 1))) {
      return absl::InvalidArgumentError(absl::StrCat("--dial: not NAME=host:port: ", entry));
    }
    flags.dial[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  RETURN_IF_ERROR(ReadExecutor(&flags));
  RETURN_IF_ERROR(Check(flags));
  return flags;
}

}  // namespace stagecoach
