// stagecoach-model: everything around a run that needs its model or its data and no network.
#include <CLI/CLI.hpp>
#include <exception>
#include <functional>
#include <iostream>

#include "common/exit_code.h"
#include "model/main/commands.h"

namespace stagecoach {
namespace {

using Action = std::function<absl::Status()>;

void AddPrepare(CLI::App& app, Action& action) {
  static PrepareCommand command;
  CLI::App* sub = app.add_subcommand("prepare", "Turn text files or folders into token shards");
  sub->add_option("inputs", command.inputs, "Text files or folders; .gz and .dz are unpacked")->required();
  sub->add_option("--output,-o", command.output, "Folder to write")->required();
  sub->add_option("--tokenizer", command.tokenizer, "bytes, or a SentencePiece .model file")->capture_default_str();
  sub->callback([&action] { action = [] { return RunPrepare(command); }; });
}

void AddBigram(CLI::App& app, Action& action) {
  static BigramCommand command;
  CLI::App* sub = app.add_subcommand("bigram", "Loss of a bigram model: what a trained model must beat");
  sub->add_option("--data", command.data, "Prepared folder or .bin file")->required();
  sub->add_option("--sequence-tokens", command.sequence_tokens, "T")->required()->check(CLI::Range(2, 1 << 20));
  sub->add_option("--sequences", command.sequences, "B")->check(CLI::Range(1, 4096))->capture_default_str();
  sub->add_option("--microbatches", command.microbatches, "Evaluation microbatches")
      ->check(CLI::Range(0, 65536))
      ->capture_default_str();
  sub->add_option("--validation-fraction", command.validation_fraction, "Share of the windows for evaluation")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  sub->callback([&action] { action = [] { return RunBigram(command); }; });
}

void AddOracle(CLI::App& app, Action& action) {
  static OracleCommand command;
  CLI::App* sub = app.add_subcommand("oracle", "Recompute a run in one process; reads its record and its data only");
  sub->add_option("--run-dir", command.run_dir, "Folder of the run")->required();
  sub->add_option("--report", command.report, "JSON file to write (standard output if not given)");
  sub->add_option("--stop-after", command.stop_after, "Steps to compute (default: the whole schedule)");
  sub->callback([&action] { action = [] { return RunOracleCommand(command); }; });
}

void AddEval(CLI::App& app, Action& action) {
  static EvalCommand command;
  CLI::App* sub = app.add_subcommand("eval", "Validation loss of a checkpoint, beside a bigram model's");
  sub->add_option("--run-dir", command.run_dir, "Folder of the run")->required();
  sub->add_option("--step", command.step, "Checkpoint (default: the newest that verifies)");
  sub->add_option("--data", command.data, "Other data than the run's");
  sub->callback([&action] { action = [] { return RunEval(command); }; });
}

void AddGenerate(CLI::App& app, Action& action) {
  static GenerateCommand command;
  CLI::App* sub = app.add_subcommand("generate", "Write text with a checkpoint");
  sub->add_option("--run-dir", command.run_dir, "Folder of the run")->required();
  sub->add_option("--step", command.step, "Checkpoint (default: the newest that verifies)");
  sub->add_option("--prompt", command.prompt, "Text to continue (default: an empty line)");
  sub->add_option("--tokens", command.tokens, "Tokens to add")->check(CLI::Range(1, 1 << 20))->capture_default_str();
  sub->add_option("--temperature", command.temperature, "0: always the likeliest token")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  sub->add_option("--top-k", command.top_k, "Candidates; 0: all")->check(CLI::Range(0, 1 << 20))->capture_default_str();
  sub->add_option("--seed", command.seed, "Seed of the sampling")->capture_default_str();
  sub->callback([&action] { action = [] { return RunGenerate(command); }; });
}

int Main(int argc, char** argv) {
  CLI::App app("Data, checkpoints and the single-process reference of Stagecoach runs", "stagecoach-model");
  app.require_subcommand(1);
  Action action;
  AddPrepare(app, action);
  AddBigram(app, action);
  AddOracle(app, action);
  AddEval(app, action);
  AddGenerate(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error, std::cout, std::cerr) == 0 ? kExitOk : kExitUsage;  // 0: --help
  }
  absl::Status status;
  try {
    status = action();
  } catch (const std::exception& error) {
    status = absl::InternalError(error.what());
  }
  if (!status.ok()) std::cerr << "stagecoach-model: " << status.message() << "\n";
  std::cout.flush();
  if (status.ok() && !std::cout) status = absl::UnknownError("standard output is closed");
  return ExitCodeOf(status);
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) { return stagecoach::Main(argc, argv); }
