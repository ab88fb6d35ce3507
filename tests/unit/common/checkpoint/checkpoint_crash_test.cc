// What is left of a checkpoint when a file operation fails, the process is killed at it, or the power goes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include "absl/strings/match.h"
#include "tests/unit/common/checkpoint/checkpoint_fixture.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

enum class Fault { kFails, kKills };

// Lets operations through until number `at`, which fails (after writing half, if it writes) or kills the process.
class FaultyFiles : public FileOperations {
 public:
  FaultyFiles(Fault fault, int at, int error) : fault_(fault), at_(at), error_(error) {}
  int MakeFolder(const std::string& path) override { return Hit() ? -error_ : FileOperations::MakeFolder(path); }
  int CreateExclusive(const std::string& path) override {
    return Hit() ? -error_ : FileOperations::CreateExclusive(path);
  }
  int64_t Write(int file, absl::string_view bytes) override {
    if (count_ == at_) FileOperations::Write(file, bytes.substr(0, bytes.size() / 2));
    return Hit() ? -error_ : FileOperations::Write(file, bytes);
  }
  int Sync(int file) override { return Hit() ? -error_ : FileOperations::Sync(file); }
  int Close(int file) override {
    const int result = FileOperations::Close(file);
    return Hit() ? -error_ : result;
  }
  int Rename(const std::string& from, const std::string& to) override {
    return Hit() ? -error_ : FileOperations::Rename(from, to);
  }
  int SyncFolder(const std::string& path) override { return Hit() ? -error_ : FileOperations::SyncFolder(path); }
  int64_t FreeBytes(const std::string& folder) override { return Hit() ? -error_ : FileOperations::FreeBytes(folder); }
  int count() const { return count_; }

 private:
  bool Hit() {
    if (count_++ != at_) return false;
    if (fault_ == Fault::kKills) raise(SIGKILL);
    return true;
  }
  Fault fault_;
  int at_, error_, count_ = 0;
};

int OperationsOfACheckpoint() {
  testing::ScratchFolder run;
  EXPECT_TRUE(WriteACheckpoint(run.path(), 10).ok());
  FaultyFiles files(Fault::kFails, -1, EIO);
  EXPECT_TRUE(WriteACheckpoint(run.path(), 20, files).ok());
  return files.count();
}

size_t FilesIn(const std::string& folder) {
  size_t count = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) count += entry.exists();
  return count;
}

// Whatever happened: the newest one that verifies is complete, and writing the checkpoint again succeeds and cleans up.
void CheckRecovers(const std::string& run_dir, int operation) {
  const auto newest = NewestVerified(run_dir, nullptr);
  ASSERT_TRUE(newest.ok()) << "operation " << operation << ": " << newest.status();
  EXPECT_TRUE(newest->step() == 10 || newest->step() == 20);
  ASSERT_TRUE(WriteACheckpoint(run_dir, 20).ok()) << "operation " << operation;
  EXPECT_EQ(NewestVerified(run_dir, nullptr)->step(), 20u);
  EXPECT_EQ(FilesIn(CheckpointDir(run_dir, 20)), static_cast<size_t>(kFixtureUnits) + 1) << "operation " << operation;
}

TEST(CheckpointCrashTest, KilledAtEveryOperation_NothingIsLost) {
  const int operations = OperationsOfACheckpoint();
  ASSERT_GT(operations, 20);
  for (int at = 0; at < operations; ++at) {
    testing::ScratchFolder run;
    ASSERT_TRUE(WriteACheckpoint(run.path(), 10).ok());
    const pid_t child = fork();
    if (child == 0) {
      FaultyFiles files(Fault::kKills, at, 0);
      _exit(WriteACheckpoint(run.path(), 20, files).ok() ? 0 : 1);
    }
    int state = 0;
    ASSERT_EQ(waitpid(child, &state, 0), child);
    ASSERT_TRUE(WIFSIGNALED(state) && WTERMSIG(state) == SIGKILL) << "operation " << at;
    CheckRecovers(run.path(), at);
  }
}

TEST(CheckpointCrashTest, EveryOperationFails_ErrorAndNothingLeftBehind) {
  const int operations = OperationsOfACheckpoint();
  for (const int error : {ENOSPC, EIO}) {
    for (int at = 0; at < operations; ++at) {
      testing::ScratchFolder run;
      ASSERT_TRUE(WriteACheckpoint(run.path(), 10).ok());
      FaultyFiles files(Fault::kFails, at, error);
      const absl::Status status = WriteACheckpoint(run.path(), 20, files);
      ASSERT_FALSE(status.ok()) << "operation " << at;
      EXPECT_EQ(status.code(), error == ENOSPC ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kInternal);
      std::error_code ignored;
      for (const auto& entry : std::filesystem::directory_iterator(CheckpointDir(run.path(), 20), ignored)) {
        EXPECT_FALSE(absl::StrContains(entry.path().string(), ".tmp-")) << "operation " << at << " " << entry.path();
      }
      CheckRecovers(run.path(), at);
    }
  }
}

// Writes down the order of operations; the content of a file counts only from its Sync on, its name from SyncFolder on.
class OrderedFiles : public FileOperations {
 public:
  int CreateExclusive(const std::string& path) override {
    const int file = FileOperations::CreateExclusive(path);
    open_[file] = path;
    return file;
  }
  int Sync(int file) override {
    synced_.push_back(open_[file]);
    return FileOperations::Sync(file);
  }
  int Rename(const std::string& from, const std::string& to) override {
    EXPECT_THAT(synced_, ::testing::Contains(from)) << "renamed before its bytes were on the disk";
    EXPECT_EQ(std::filesystem::path(from).parent_path(), std::filesystem::path(to).parent_path());
    if (absl::EndsWith(to, "manifest.json")) {
      EXPECT_EQ(durable_.size(), static_cast<size_t>(kFixtureUnits)) << "the manifest comes last";
    }
    waiting_.push_back(to);
    return FileOperations::Rename(from, to);
  }
  int SyncFolder(const std::string& path) override {
    durable_.insert(durable_.end(), waiting_.begin(), waiting_.end());
    waiting_.clear();
    return FileOperations::SyncFolder(path);
  }
  std::map<int, std::string> open_;
  std::vector<std::string> synced_, waiting_, durable_;
};

TEST(CheckpointCrashTest, Order_BytesThenNameThenManifest) {
  testing::ScratchFolder run;
  OrderedFiles files;
  ASSERT_TRUE(WriteACheckpoint(run.path(), 20, files).ok());
  EXPECT_EQ(files.durable_.size(), static_cast<size_t>(kFixtureUnits) + 1);
  EXPECT_TRUE(files.waiting_.empty()) << "returned before the last name was on the disk";
}

class SmallDisk : public FileOperations {
 public:
  int64_t FreeBytes(const std::string&) override { return 1 << 20; }
};

TEST(CheckpointCrashTest, NoSpace_IsSaidBeforeWriting) {
  testing::ScratchFolder run;
  SmallDisk files;
  const absl::Status status = WriteACheckpoint(run.path(), 20, files);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("disk full: layer-0000.safetensors needs"));
  EXPECT_FALSE(std::filesystem::exists(CheckpointDir(run.path(), 20)));
}

// Unmounts even when an assertion fails.
class SmallTmpfs {
 public:
  explicit SmallTmpfs(const std::string& path) : path_(path) {
    mounted_ = mount("tmpfs", path.c_str(), "tmpfs", 0, "size=4m") == 0;
  }
  ~SmallTmpfs() {
    if (mounted_) umount2(path_.c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }

 private:
  std::string path_;
  bool mounted_;
};

TEST(CheckpointCrashTest, FullDisk_ClearErrorAndNothingLeft) {
  testing::ScratchFolder run;
  SmallTmpfs disk(run.path());
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs is not permitted here";
  ASSERT_TRUE(WriteACheckpoint(run.path(), 10).ok());
  const std::string large(3u << 20, 'x'), larger(8u << 20, 'y');
  ASSERT_TRUE(WriteFileDurably(run.path(), "fills.bin", std::string(2u << 20, 'f')).ok());
  for (const std::string* bytes : {&large, &larger}) {
    const auto status = WriteFileDurably(CheckpointDir(run.path(), 20), LayerFileName(0), *bytes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_FALSE(std::filesystem::exists(CheckpointDir(run.path(), 20)));
  }
  // A disk that lies about its free space fails in the middle of the write; that leaves nothing either.
  class Optimist : public FileOperations {
   public:
    int64_t FreeBytes(const std::string&) override { return int64_t{1} << 40; }
  } optimist;
  const auto status = WriteFileDurably(CheckpointDir(run.path(), 20), LayerFileName(0), larger, optimist).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("No space left"));
  EXPECT_FALSE(std::filesystem::exists(CheckpointDir(run.path(), 20)));
  EXPECT_EQ(NewestVerified(run.path(), nullptr)->step(), 10u);
}

}  // namespace
}  // namespace stagecoach
