#include <fcntl.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "coordinator/store/run_journal.h"

namespace stagecoach {
namespace {

constexpr int kSchemaVersion = 1;
constexpr int kBusyTimeoutMs = 5000;  // another process may hold the lock while it makes a copy

constexpr const char* kSchema =
    "CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL);"
    "CREATE TABLE IF NOT EXISTS runs (run TEXT PRIMARY KEY, state TEXT, record TEXT, epoch INTEGER);"
    "CREATE TABLE IF NOT EXISTS steps (run TEXT, step INTEGER, loss REAL, clip REAL, square_sum REAL, skip INTEGER,"
    " PRIMARY KEY (run, step)) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS evaluations (run TEXT, after_step INTEGER, loss REAL, PRIMARY KEY (run, after_step))"
    " WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS checkpoints (run TEXT, step INTEGER, weight_hash TEXT, PRIMARY KEY (run, step))"
    " WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS rounds (run TEXT, round INTEGER, step INTEGER, hash TEXT, PRIMARY KEY (run, round))"
    " WITHOUT ROWID;";

absl::Status StatusOf(sqlite3* database, int code, absl::string_view doing) {
  const std::string text = absl::StrCat("journal: ", doing, ": ", sqlite3_errmsg(database));
  if (code == SQLITE_BUSY || code == SQLITE_LOCKED) {
    return absl::UnavailableError(absl::StrCat(text, "; is another coordinator using this --state-dir?"));
  }
  if (code == SQLITE_FULL) return absl::ResourceExhaustedError(text);
  return absl::InternalError(text);
}

// One prepared statement. Binding errors show when it is stepped.
class Statement {
 public:
  Statement(sqlite3* database, const char* sql) : database_(database) {
    code_ = sqlite3_prepare_v2(database, sql, -1, &statement_, nullptr);
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& Bind(const std::string& text) {
    sqlite3_bind_text(statement_, ++bound_, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT);
    return *this;
  }
  Statement& Bind(uint64_t value) {
    sqlite3_bind_int64(statement_, ++bound_, static_cast<sqlite3_int64>(value));
    return *this;
  }
  Statement& Bind(double value) {
    sqlite3_bind_double(statement_, ++bound_, value);  // NaN is stored as NULL and read back as 0: the skip flag tells
    return *this;
  }
  absl::StatusOr<bool> Step() {  // true: a row is there
    if (code_ != SQLITE_OK) return StatusOf(database_, code_, "prepare");
    const int code = sqlite3_step(statement_);
    if (code == SQLITE_ROW) return true;
    if (code == SQLITE_DONE) return false;
    return StatusOf(database_, code, "write");
  }
  absl::Status Run() {
    const auto row = Step();
    if (!row.ok()) return row.status();
    sqlite3_reset(statement_);
    bound_ = 0;
    return absl::OkStatus();
  }
  uint64_t Integer(int column) { return static_cast<uint64_t>(sqlite3_column_int64(statement_, column)); }
  double Real(int column) { return sqlite3_column_double(statement_, column); }
  std::string Text(int column) {
    const auto* text = sqlite3_column_text(statement_, column);
    return text == nullptr ? "" : reinterpret_cast<const char*>(text);
  }

 private:
  sqlite3* database_;
  sqlite3_stmt* statement_ = nullptr;
  int code_ = SQLITE_OK, bound_ = 0;
};

// Held for the life of the journal. SQLite's own locks last for one transaction only: two coordinators would take turns
// and hand out each other's runs.
class FolderLock {
 public:
  FolderLock() = default;
  ~FolderLock() {
    if (file_ >= 0) close(file_);
  }
  FolderLock(FolderLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  FolderLock& operator=(FolderLock&&) = delete;

  static absl::StatusOr<FolderLock> Take(const std::string& state_dir) {
    const std::string path = absl::StrCat(state_dir, "/lock");
    FolderLock lock;
    lock.file_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (lock.file_ < 0) return absl::FailedPreconditionError(absl::StrCat(path, ": ", strerror(errno)));
    if (flock(lock.file_, LOCK_EX | LOCK_NB) == 0) return lock;
    if (errno != EWOULDBLOCK) return absl::FailedPreconditionError(absl::StrCat(path, ": flock: ", strerror(errno)));
    return absl::UnavailableError(absl::StrCat("--state-dir ", state_dir,
                                               " is in use by another coordinator; stop that one, or give this one "
                                               "another --state-dir"));
  }

 private:
  int file_ = -1;
};

class SqliteJournal final : public RunJournal {
 public:
  SqliteJournal(FolderLock lock, sqlite3* database) : lock_(std::move(lock)), database_(database) {}
  ~SqliteJournal() override { sqlite3_close(database_); }

  absl::Status Prepare() {
    sqlite3_busy_timeout(database_, kBusyTimeoutMs);
    RETURN_IF_ERROR(Execute("PRAGMA journal_mode=WAL"));
    RETURN_IF_ERROR(Execute("PRAGMA synchronous=FULL"));
    Statement version(database_, "PRAGMA user_version");
    ASSIGN_OR_RETURN(const bool row, version.Step());
    const uint64_t found = row ? version.Integer(0) : 0;
    if (found > kSchemaVersion) {
      return absl::FailedPreconditionError(absl::StrCat("the journal was written by a newer version (format ", found,
                                                        "); use that one, or another --state-dir"));
    }
    RETURN_IF_ERROR(Execute(kSchema));
    return Execute(absl::StrCat("PRAGMA user_version=", kSchemaVersion));
  }

  absl::StatusOr<uint64_t> NextTerm() override { return Next("term"); }
  absl::StatusOr<uint64_t> NextEpoch() override { return Next("epoch"); }

  absl::Status SaveRun(const std::string& run, const JournalRun& row) override {
    Statement save(database_, "INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?)");
    return save.Bind(run).Bind(row.state).Bind(row.record).Bind(row.epoch).Run();
  }
  absl::StatusOr<JournalRun> ReadRun(const std::string& run) override {
    Statement read(database_, "SELECT state, record, epoch FROM runs WHERE run = ?");
    ASSIGN_OR_RETURN(const bool row, read.Bind(run).Step());
    if (!row) return absl::NotFoundError(absl::StrCat("no run ", run, " in the journal"));
    return JournalRun{read.Text(0), read.Text(1), read.Integer(2)};
  }

  absl::StatusOr<std::vector<JournalRunSummary>> ListRuns(size_t limit) override {
    std::vector<JournalRunSummary> list;
    Statement runs(database_, "SELECT run, state FROM runs ORDER BY epoch DESC, run LIMIT ?");
    runs.Bind(uint64_t{limit});
    for (;;) {
      ASSIGN_OR_RETURN(const bool row, runs.Step());
      if (!row) break;
      list.push_back({runs.Text(0), runs.Text(1), 0});
    }
    for (JournalRunSummary& run : list) {
      // The names of runs hold no '/', and '0' is the character behind it: RUN/CLUSTER lies between the two.
      Statement steps(database_,
                      "SELECT MIN(done) FROM (SELECT MAX(step) + 1 AS done FROM steps WHERE run = ? OR "
                      "(run > ? AND run < ?) GROUP BY run)");
      ASSIGN_OR_RETURN(const bool row, steps.Bind(run.run).Bind(run.run + "/").Bind(run.run + "0").Step());
      if (row) run.steps = steps.Integer(0);
    }
    return list;
  }
  absl::Status Rewind(const std::string& run, uint64_t first_step) override {
    RETURN_IF_ERROR(Execute("BEGIN IMMEDIATE"));
    absl::Status status;
    for (const char* where : {"steps WHERE step >= ?", "evaluations WHERE after_step > ?", "checkpoints WHERE step > ?",
                              "rounds WHERE step > ?"}) {
      const std::string sql = absl::StrCat("DELETE FROM ", where, " AND (run = ? OR (run > ? AND run < ?))");
      Statement erase(database_, sql.c_str());
      if (status.ok()) status = erase.Bind(first_step).Bind(run).Bind(run + "/").Bind(run + "0").Run();
    }
    if (status.ok()) status = Execute("COMMIT");
    if (!status.ok()) sqlite3_exec(database_, "ROLLBACK", nullptr, nullptr, nullptr);
    return status;
  }

  absl::Status Append(const std::string& run, const JournalBatch& batch) override {
    RETURN_IF_ERROR(Execute("BEGIN IMMEDIATE"));
    absl::Status status = AppendRows(run, batch);
    if (status.ok()) status = Execute("COMMIT");
    if (!status.ok()) sqlite3_exec(database_, "ROLLBACK", nullptr, nullptr, nullptr);
    return status;
  }

  absl::StatusOr<JournalBatch> Read(const std::string& run) override {
    JournalBatch batch;
    Statement steps(database_, "SELECT step, loss, clip, square_sum, skip FROM steps WHERE run = ? ORDER BY step");
    steps.Bind(run);
    for (;;) {
      ASSIGN_OR_RETURN(const bool row, steps.Step());
      if (!row) break;
      batch.steps.push_back({steps.Integer(0), steps.Real(1), steps.Real(2), steps.Real(3), steps.Integer(4) != 0});
    }
    Statement evaluations(database_, "SELECT after_step, loss FROM evaluations WHERE run = ? ORDER BY after_step");
    evaluations.Bind(run);
    for (;;) {
      ASSIGN_OR_RETURN(const bool row, evaluations.Step());
      if (!row) break;
      batch.evaluations.push_back({evaluations.Integer(0), evaluations.Real(1)});
    }
    Statement checkpoints(database_, "SELECT step, weight_hash FROM checkpoints WHERE run = ? ORDER BY step");
    checkpoints.Bind(run);
    for (;;) {
      ASSIGN_OR_RETURN(const bool row, checkpoints.Step());
      if (!row) break;
      batch.checkpoints.push_back({checkpoints.Integer(0), checkpoints.Text(1)});
    }
    Statement rounds(database_, "SELECT round, step, hash FROM rounds WHERE run = ? ORDER BY round");
    rounds.Bind(run);
    for (;;) {
      ASSIGN_OR_RETURN(const bool row, rounds.Step());
      if (!row) break;
      batch.rounds.push_back({rounds.Integer(0), rounds.Integer(1), rounds.Text(2)});
    }
    return batch;
  }

 private:
  absl::Status Execute(const std::string& sql) {
    const int code = sqlite3_exec(database_, sql.c_str(), nullptr, nullptr, nullptr);
    return code == SQLITE_OK ? absl::OkStatus() : StatusOf(database_, code, sql.substr(0, 40));
  }

  absl::StatusOr<uint64_t> Next(const std::string& counter) {
    Statement next(database_,
                   "INSERT INTO counters VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET value = value + 1 "
                   "RETURNING value");
    ASSIGN_OR_RETURN(const bool row, next.Bind(counter).Step());
    if (!row) return absl::InternalError("journal: a counter returned nothing");
    const uint64_t value = next.Integer(0);
    RETURN_IF_ERROR(next.Step().status());  // the statement commits when it has run to its end
    return value;
  }

  absl::Status AppendRows(const std::string& run, const JournalBatch& batch) {
    Statement step(database_, "INSERT OR REPLACE INTO steps VALUES (?, ?, ?, ?, ?, ?)");
    for (const JournalStep& row : batch.steps) {
      step.Bind(run).Bind(row.step).Bind(row.loss).Bind(row.clip).Bind(row.square_sum);
      RETURN_IF_ERROR(step.Bind(uint64_t{row.skip}).Run());
    }
    Statement evaluation(database_, "INSERT OR REPLACE INTO evaluations VALUES (?, ?, ?)");
    for (const JournalEvaluation& row : batch.evaluations) {
      RETURN_IF_ERROR(evaluation.Bind(run).Bind(row.after_step).Bind(row.loss).Run());
    }
    Statement checkpoint(database_, "INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?)");
    for (const JournalCheckpoint& row : batch.checkpoints) {
      RETURN_IF_ERROR(checkpoint.Bind(run).Bind(row.step).Bind(row.weight_hash).Run());
    }
    Statement round(database_, "INSERT OR REPLACE INTO rounds VALUES (?, ?, ?, ?)");
    for (const JournalRound& row : batch.rounds) {
      RETURN_IF_ERROR(round.Bind(run).Bind(row.round).Bind(row.step).Bind(row.hash).Run());
    }
    return absl::OkStatus();
  }

  const FolderLock lock_;  // let go of after the database is closed
  sqlite3* const database_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RunJournal>> OpenSqliteJournal(const std::string& state_dir) {
  if (mkdir(state_dir.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::FailedPreconditionError(absl::StrCat("--state-dir ", state_dir, ": ", strerror(errno)));
  }
  ASSIGN_OR_RETURN(FolderLock lock, FolderLock::Take(state_dir));
  const std::string path = absl::StrCat(state_dir, "/journal.sqlite");
  sqlite3* database = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &database, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr);
  auto journal = std::make_unique<SqliteJournal>(std::move(lock), database);
  if (code != SQLITE_OK) return absl::FailedPreconditionError(absl::StrCat(path, ": ", sqlite3_errmsg(database)));
  RETURN_IF_ERROR(journal->Prepare());
  return std::unique_ptr<RunJournal>(std::move(journal));
}

}  // namespace stagecoach
