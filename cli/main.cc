// stagecoach: the user's tool. Parses the command line and runs one command; exit statuses: common/exit_code.h.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <functional>
#include <string>

#include "cli/commands/fleet_commands.h"
#include "cli/commands/linkem_command.h"
#include "cli/commands/plan_command.h"
#include "cli/commands/simulate_command.h"
#include "cli/train/train_command.h"
#include "common/exit_code.h"
#include "common/host_port.h"

namespace stagecoach {
namespace {

using Command = std::function<int()>;

// CLI11 takes an empty word for a value that was given, and "-1" for a large unsigned number.
const CLI::Validator kNotEmpty([](std::string& text) { return text.empty() ? "must not be empty" : ""; }, "TEXT");

std::string HostPortError(std::string& text) {
  return IsHostPort(text) ? "" : "not host:port with a port of 0..65535: " + text;
}
const CLI::Validator kHostPort(HostPortError, "HOST:PORT");

void AddTrain(CLI::App* app, Command* command, TrainOptions* options) {
  CLI::App* train =
      app->add_subcommand("train", "Train with a whole fleet on this machine: coordinator, workers, links");
  train->add_option("--config", options->config, "run spec (YAML)")->check(kNotEmpty);
  train->add_option("--data", options->data, "text file or folder, prepared folder, or .bin file")->check(kNotEmpty);
  train->add_option("--workers", options->workers, "worker processes (default: 4, or those of the fleet file)")
      ->check(CLI::Range(1, 256));
  train
      ->add_option("--links", options->links, "emulated links: none, RATE/RTT[/JITTER] like 80mbit/50ms, or FLEET.yaml")
      ->capture_default_str();
  train->add_option("--steps", options->steps, "length of the schedule");
  train->add_option("--seed", options->seed, "seed of the run");
  train->add_option("--schedule", options->schedule, "fd-2bw, sync, sync-1f1b, gpipe, 2bw, pipedream");
  train->add_option("--j", options->j, "microbatches of a step that use the previous weights: auto or a number");
  train->add_option("--wire", options->wire, "fp32, bf16, int8");
  train->add_option("--threads", options->threads, "torch threads of each worker");
  train->add_option("--clusters", options->clusters,
                    "copies of the model that train on disjoint data: 1..workers, or auto: chosen with the plan");
  train->add_option("--run-dir", options->run_dir, "folder of the run (default: the file's, else runs/NAME-N)")
      ->check(kNotEmpty);
  train->add_option("--stop-after", options->stop_after, "end with a checkpoint when this many steps are done")
      ->check(CLI::NonNegativeNumber);
  train->add_flag("--resume", options->resume, "go on from the newest checkpoint in --run-dir");
  train->add_option("--like", options->like, "take everything that the arithmetic depends on from this run's folder")
      ->check(kNotEmpty);
  train->add_option("--report", options->report, "write the report to this file too (JSON)")->check(kNotEmpty);
  train->add_option("--executor", options->executor, "torch, or fake for tests")->capture_default_str();
  train->add_flag("--no-sample", options->no_sample, "no generated text after the report");
  train->callback([=] { *command = [options] { return RunTrain(*options); }; });
}

void AddSubmit(CLI::App* app, Command* command, SubmitOptions* options) {
  CLI::App* submit = app->add_subcommand("submit", "Give a run to a coordinator that has workers");
  submit->add_option("spec", options->config, "run spec (YAML)")->required();
  submit->add_option("--coordinator", options->coordinator, "host:port")->required()->check(kHostPort);
  submit->add_option("--workers", options->workers, "wait for this many and use them; 0: all that are there")
      ->check(CLI::NonNegativeNumber);
  submit->add_option("--stop-after", options->stop_after, "end with a checkpoint when this many steps are done")
      ->check(CLI::NonNegativeNumber);
  submit->add_flag("--resume", options->resume, "go on from the newest checkpoint in the spec's run_dir");
  submit->add_option("--like", options->like, "run folder to take the arithmetic from")->check(kNotEmpty);
  CLI::Option* watch = submit->add_flag("--watch", options->watch, "show progress until the run ends");
  submit->add_option("--report", options->report, "write the report to this file (JSON)")
      ->check(kNotEmpty)
      ->needs(watch);
  submit->callback([=] { *command = [options] { return RunSubmit(*options); }; });
}

void AddStatusAndStop(CLI::App* app, Command* command, StatusOptions* status_options, StopOptions* stop_options) {
  CLI::App* status = app->add_subcommand("status", "Show the fleet and its runs");
  status->add_option("--coordinator", status_options->coordinator, "host:port")->required()->check(kHostPort);
  status->add_option("-o,--output", status_options->format, "table, json")
      ->check(CLI::IsMember({"table", "json"}))
      ->capture_default_str();
  status->callback([=] { *command = [status_options] { return RunStatusCommand(*status_options); }; });

  CLI::App* stop = app->add_subcommand("stop", "End a run gracefully, with a checkpoint");
  stop->add_option("--coordinator", stop_options->coordinator, "host:port")->required()->check(kHostPort);
  stop->add_option("run", stop_options->run, "run id (default: the one that is going on)");
  stop->callback([=] { *command = [stop_options] { return RunStop(*stop_options); }; });
}

void AddPlan(CLI::App* app, Command* command, PlanOptions* options) {
  CLI::App* plan = app->add_subcommand("plan", "Plan a run on a fleet that is written down; asks no coordinator");
  plan->add_option("fleet", options->fleet, "fleet file (YAML)")->required()->check(kNotEmpty);
  plan->add_option("run", options->run, "run spec (YAML)")->required()->check(kNotEmpty);
  plan->add_option("--clusters", options->clusters,
                   "exactly so many copies of the model (default: the run's, or chosen)")
      ->check(CLI::PositiveNumber);
  plan->add_option("--planner", options->planner, "optimal, or a baseline to compare with")
      ->check(CLI::IsMember({"optimal", "equal", "random", "greedy-memory", "ravnest-ga", "ravnest-equal", "dtfm"}))
      ->capture_default_str();
  plan->add_option("--seed", options->seed, "of random, ravnest-ga, ravnest-equal and dtfm")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  plan->add_option("-o,--output", options->format, "table, json")
      ->check(CLI::IsMember({"table", "json"}))
      ->capture_default_str();
  plan->callback([=] { *command = [options] { return RunPlan(*options); }; });
}

void AddSimulate(CLI::App* app, Command* command, SimulateOptions* options) {
  CLI::App* simulate = app->add_subcommand("simulate", "Run a plan of a fleet that is written down in virtual time");
  simulate->add_option("fleet", options->fleet, "fleet file (YAML)")->required()->check(kNotEmpty);
  simulate->add_option("run", options->run, "run spec (YAML)")->required()->check(kNotEmpty);
  simulate->add_option("--plan", options->plan, "plan to judge (JSON of `plan -o json`); default: planned here")
      ->check(kNotEmpty);
  simulate->add_option("--clusters", options->clusters, "as of plan")->check(CLI::PositiveNumber);
  simulate->add_option("--steps", options->steps, "steps that are measured (default: of 1000 microbatches)")
      ->check(CLI::Range(1, 1000000));
  simulate->add_option("--jitter", options->jitter_ms, "of every link and direction, up to so many ms more or less")
      ->check(CLI::Range(0.0, 60000.0));
  simulate->add_option("--seed", options->seed, "of jitter")->check(CLI::NonNegativeNumber)->capture_default_str();
  simulate->add_option("-o,--output", options->format, "table, json")
      ->check(CLI::IsMember({"table", "json"}))
      ->capture_default_str();
  simulate->callback([=] { *command = [options] { return RunSimulate(*options); }; });
}

void AddLinkem(CLI::App* app, Command* command, LinkemOptions* options) {
  CLI::App* linkem = app->add_subcommand("linkem", "Emulate slow links between loopback addresses, until SIGTERM");
  linkem->add_option("--link", options->links, "FROM:TO=127.0.0.1:PORT->ADDRESS:PORT, or ->@PORT_FILE (repeatable)")
      ->allow_extra_args(false);
  linkem->add_option("--profile", options->profile, "RATE/RTT[/JITTER] like 80mbit/50ms")->capture_default_str();
  linkem->add_option("--config", options->config, "YAML file of links with a profile each");
  linkem->add_option("--seed", options->seed, "of jitter and losses")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  linkem->add_option("--port-file", options->port_file, "write the bound ports (JSON) to this file too");
  linkem->callback([=] { *command = [options] { return RunLinkem(*options); }; });
}

int Main(int argc, char** argv) {
  CLI::App app("Trains transformers on machines that are far apart.", "stagecoach");
  app.require_subcommand(1);
  Command command;
  TrainOptions train;
  SubmitOptions submit;
  StatusOptions status;
  StopOptions stop;
  LinkemOptions linkem;
  PlanOptions plan;
  SimulateOptions simulate;
  AddTrain(&app, &command, &train);
  AddSubmit(&app, &command, &submit);
  AddStatusAndStop(&app, &command, &status, &stop);
  AddPlan(&app, &command, &plan);
  AddSimulate(&app, &command, &simulate);
  AddLinkem(&app, &command, &linkem);
  app.add_subcommand("version", "Print the version")->callback([&] {
    command = [] {
      std::printf("stagecoach %s\n", STAGECOACH_VERSION);
      return static_cast<int>(kExitOk);
    };
  });
  // CLI11 would only say that a subcommand is required.
  const auto subcommands = app.get_subcommands([](const CLI::App*) { return true; });
  if (argc > 1 && argv[1][0] != '-' && std::none_of(subcommands.begin(), subcommands.end(), [&](const CLI::App* sub) {
        return sub->get_name() == argv[1];
      })) {
    std::fprintf(stderr, "stagecoach: unknown command '%s'; stagecoach --help lists them\n", argv[1]);
    return kExitUsage;
  }
  try {  // CLI11 reports by exceptions; its own statuses (105, 106, ...) mean nothing to a shell
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  return command();
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a closed terminal or pipe must not end a run
  return stagecoach::Main(argc, argv);
}
