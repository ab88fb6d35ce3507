// Runs `stagecoach train` and `stagecoach-model oracle` on tiny models, and reads their reports.
//
// Threading: the thread of the test. Errors: gtest failures; a report that is missing reads as an empty object.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/process_harness.h"

namespace stagecoach::testing {

// What a test varies; the rest is the same tiny decoder of four blocks (six units).
struct TinySpec {
  std::string architecture = "llama";
  bool subspace = true;
  std::string optimizer = "adamw";
  std::string wire = "fp32";
  std::string schedule = "fd-2bw";
  std::string j = "auto";
  int steps = 100, microbatches = 4, sequences = 2, tokens = 16;
  int width = 32, rank = 8;
  double dropout = 0;
  int evaluation_every = 0, evaluation_microbatches = 2;
  int checkpoint_every = 0;
  double clip_norm = 1.0;
  std::string recompute = "auto";
  int clusters = 1, every_steps = 10, delay_steps = 2;
  std::string averaging_wire = "fp32", outer = "plain";
  std::string replan = "on";
};

// A prepared folder of real text (this project's documents), made once for all tests of the program.
const std::string& PreparedData();

class TrainRun {
 public:
  // Writes the spec into the folder of the run. `name` must be unique in the test.
  TrainRun(const TemporaryFolder& folder, const std::string& name, const TinySpec& spec);

  std::vector<std::string> Arguments(int workers, std::vector<std::string> more = {}) const;
  // The report of a run that must end well.
  nlohmann::json Train(int workers, std::vector<std::string> more = {},
                       std::chrono::seconds deadline = std::chrono::seconds(180));
  // Started in the background.
  std::unique_ptr<RunningProgram> Start(int workers, std::vector<std::string> more = {}) const;
  nlohmann::json Report() const;
  // Of the steps that the report has, or of the whole schedule when it has ended.
  nlohmann::json Oracle() const;
  const std::string& dir() const { return dir_; }
  pid_t WorkerPid(const std::string& name) const;  // 0 and a failure: it does not run

 private:
  std::string dir_, config_, report_;
};

// Weights, losses and evaluations of the two reports are the same bits. A run that was resumed reports the evaluations
// of its last life only.
void ExpectSameBits(const nlohmann::json& report, const nlohmann::json& reference);

}  // namespace stagecoach::testing
