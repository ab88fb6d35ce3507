// The commands of the README, as a new user types them: those of its shell blocks that begin with build/bin/stagecoach,
// in order, in a folder that holds a text, this checkout's examples and documents, and the built programs.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/support/process_harness.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

std::vector<std::string> ReadmeCommands(const std::string& source) {
  std::ifstream readme(source + "/README.md");
  std::vector<std::string> commands;
  for (std::string line; std::getline(readme, line);) {
    if (absl::StartsWith(line, "build/bin/stagecoach")) commands.push_back(line);
  }
  return commands;
}

TEST(ReadmeTest, EveryCommand_DoesWhatItSays) {
  const char* source = getenv("STAGECOACH_SOURCE");
  const char* programs = getenv("STAGECOACH_BIN");
  ASSERT_TRUE(source != nullptr && programs != nullptr) << "run the test through ctest";
  testing::TemporaryFolder folder;
  fs::create_directories(folder.File("my-texts"));
  fs::create_directories(folder.File("build"));
  fs::create_directory_symlink(programs, folder.File("build/bin"));
  for (const char* name : {"examples", "docs"})
    fs::create_directory_symlink(fs::path(source) / name, folder.File(name));
  for (const char* page : {"README.md", "docs/architecture.md", "docs/protocol.md"}) {
    fs::copy_file(fs::path(source) / page, folder.File(absl::StrCat("my-texts/", fs::path(page).filename().string())));
  }
  const std::vector<std::string> commands = ReadmeCommands(source);
  ASSERT_GE(commands.size(), 6u);
  for (const std::string& command : commands) {
    SCOPED_TRACE(command);
    const auto shell =
        testing::StartProgram("/bin/sh", {"-c", absl::StrCat("cd ", folder.path(), " && exec ", command)});
    ASSERT_NE(shell, nullptr);
    const testing::ProgramResult result = shell->Wait(seconds(120));
    ASSERT_EQ(result.exit_code, 0) << result.error;
  }
  const auto hash = [&](const std::string& report) {
    const auto json = nlohmann::json::parse(testing::ReadWholeFile(folder.File(report)), nullptr, false);
    return json.is_object() ? json.value("weight_hash", "") : "";
  };
  EXPECT_EQ(hash("runs/one/report.json").size(), 64u);
  EXPECT_EQ(hash("runs/two/report.json"), hash("runs/one/report.json"));
  EXPECT_EQ(hash("oracle.json"), hash("runs/one/report.json"));
  EXPECT_EQ(hash("runs/clusters/report.json").size(), 64u);
  EXPECT_EQ(hash("runs/clusters-two/report.json"), hash("runs/clusters/report.json"));
  EXPECT_EQ(hash("clusters.json"), hash("runs/clusters/report.json"));
}

}  // namespace
}  // namespace stagecoach
