#include "cli/commands/linkem_command.h"

#include <signal.h>
#include <sys/resource.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "cli/linkem/link_emulator.h"
#include "cli/linkem/link_emulator_config.h"
#include "common/exit_code.h"
#include "common/status_macros.h"

namespace stagecoach {
namespace {

constexpr int kPriority = -10;  // late wake-ups are wrong delays: go before those who compute, where that is allowed

LinkEmulator* running = nullptr;  // for the signal handler

void OnSignal(int) { running->Stop(); }

absl::StatusOr<LinkEmulatorConfig> ReadConfig(const LinkemOptions& options) {
  LinkEmulatorConfig config;
  config.seed = options.seed;
  if (!options.config.empty()) {
    ASSIGN_OR_RETURN(config, ReadLinkEmulatorConfig(options.config, options.profile));
  }
  ASSIGN_OR_RETURN(const LinkShape shape, ParseLinkShape(options.profile));
  for (const std::string& argument : options.links) {
    ASSIGN_OR_RETURN(EmulatedLink link, ParseLinkArgument(argument, shape));
    config.links.push_back(std::move(link));
  }
  if (config.links.empty()) return absl::InvalidArgumentError("no links: give --link or --config");
  return config;
}

absl::Status Emulate(const LinkemOptions& options) {
  ASSIGN_OR_RETURN(const LinkEmulatorConfig config, ReadConfig(options));
  ASSIGN_OR_RETURN(const std::unique_ptr<LinkEmulator> emulator,
                   LinkEmulator::Create(config.links, config.seed, config.ends));
  running = emulator.get();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, OnSignal);
  setpriority(PRIO_PROCESS, 0, kPriority);  // refused without privileges: then as it is
  nlohmann::ordered_json ports;
  for (size_t i = 0; i < config.links.size(); ++i) {
    ports["links"].push_back({{"from", config.links[i].from}, {"to", config.links[i].to}, {"port", emulator->port(i)}});
  }
  const std::string line = ports.dump() + "\n";
  if (!options.port_file.empty()) {
    const std::string part = options.port_file + ".part";
    std::ofstream(part) << line;
    std::error_code error;
    std::filesystem::rename(part, options.port_file, error);
    if (error) return absl::UnavailableError(absl::StrCat("--port-file: cannot write ", options.port_file));
  }
  std::fputs(line.c_str(), stdout);
  std::fflush(stdout);
  RETURN_IF_ERROR(emulator->Run());
  nlohmann::ordered_json counts;
  for (const auto& count : emulator->Counts()) {
    counts["directions"].push_back(
        {{"from", count.from}, {"to", count.to}, {"bytes", count.bytes}, {"losses", count.losses}});
  }
  std::printf("%s\n", counts.dump().c_str());
  return absl::OkStatus();
}

}  // namespace

int RunLinkem(const LinkemOptions& options) {
  const absl::Status status = Emulate(options);
  if (status.ok()) return kExitOk;
  std::fprintf(stderr, "stagecoach linkem: %s\n", std::string(status.message()).c_str());
  return absl::IsNotFound(status) ? kExitUsage : ExitCodeOf(status);
}

}  // namespace stagecoach
