#include "weighlock/journal/sqlite_journal.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <utility>

#include "weighlock/journal/chain.hpp"
#include "weighlock/journal/encoding.hpp"

namespace weighlock {

struct SqliteJournal::Implementation {
  struct Statement {
    sqlite3_stmt* handle = nullptr;
    ~Statement() { sqlite3_finalize(handle); }
  };

  Settings settings;
  int lock = -1;
  sqlite3* db = nullptr;
  std::unique_ptr<Statement> insert;
  std::unique_ptr<Statement> select;
  std::mutex mutex;  // the connection, and all below but `last`
  std::atomic<std::int64_t> last{0};
  std::string last_hash = std::string(kJournalHashBytes, '\0');
  bool failed = false;
  bool reserve = false;
  std::atomic<bool> space_low{false};

  ~Implementation() {
    insert.reset();
    select.reset();
    sqlite3_close(db);
    if (lock >= 0) close(lock);
  }

  std::string path(std::string_view name) const { return settings.directory + "/" + std::string(name); }
  Error error(ErrorCode code, std::string_view what) const {
    return Error{code, fmt::format("journal '{}': {}", path("journal.db"), what)};
  }
  Error sqlite_error(std::string_view doing) const {
    return error(ErrorCode::journal_failed, fmt::format("{}: {} (code {}, errno {})", doing, sqlite3_errmsg(db),
                                                        sqlite3_extended_errcode(db), sqlite3_system_errno(db)));
  }

  Status make_directory();
  Status take_lock();
  Status open_database();
  Status execute(const char* sql);
  Result<std::string> text_of(const char* sql);
  Result<std::unique_ptr<Statement>> prepare(const char* sql);
  Status check_format();
  Status verify();
  void make_reserve();
  bool give_up_reserve();
  int insert_group(const std::vector<std::string>& bodies, std::string& hash);
};

namespace {

constexpr std::size_t kHolderBytes = 16;  // of the lock file: a process id and blanks

std::string_view column(sqlite3_stmt* row, int index) {
  const void* bytes = sqlite3_column_blob(row, index);
  return {static_cast<const char*>(bytes), bytes ? static_cast<std::size_t>(sqlite3_column_bytes(row, index)) : 0};
}

}  // namespace

Status SqliteJournal::Implementation::make_directory() {
  std::error_code failure;
  std::filesystem::create_directories(settings.directory, failure);
  if (failure) return error(ErrorCode::journal_failed, fmt::format("can't make its directory: {}", failure.message()));
  // Records name workers and paths: nobody else's business.
  if (chmod(settings.directory.c_str(), 0700) != 0 && errno != EPERM)
    return error(ErrorCode::journal_failed,
                 fmt::format("can't set the mode of its directory: {}", std::strerror(errno)));
  return {};
}

Status SqliteJournal::Implementation::take_lock() {
  const std::string name = path("journal.lock");
  lock = ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock < 0) return error(ErrorCode::journal_failed, fmt::format("can't open '{}': {}", name, std::strerror(errno)));
  if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
    char holder[kHolderBytes + 1] = {};
    const ssize_t got = pread(lock, holder, kHolderBytes, 0);
    for (char* end = holder + std::max<ssize_t>(got, 0); end > holder && end[-1] == ' ';) *--end = '\0';
    return error(
        ErrorCode::conflict,
        fmt::format("it is in use by process {}; give this gateway a state directory of its own, or end that one",
                    got > 0 ? holder : "(unknown)"));
  }
  // Always of one length and written in place, so that a full disk keeps nobody from starting.
  const std::string own = fmt::format("{:<{}}", settings.holder > 0 ? settings.holder : getpid(), kHolderBytes);
  if (pwrite(lock, own.data(), own.size(), 0) != static_cast<ssize_t>(own.size()))
    return error(ErrorCode::journal_failed, fmt::format("can't write '{}': {}", name, std::strerror(errno)));
  return {};
}

Status SqliteJournal::Implementation::execute(const char* sql) {
  if (sqlite3_exec(db, sql, nullptr, nullptr, nullptr) != SQLITE_OK) return sqlite_error(sql);
  return {};
}

Result<std::unique_ptr<SqliteJournal::Implementation::Statement>> SqliteJournal::Implementation::prepare(
    const char* sql) {
  auto statement = std::make_unique<Statement>();
  if (sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement->handle, nullptr) != SQLITE_OK)
    return sqlite_error(sql);
  return statement;
}

Result<std::string> SqliteJournal::Implementation::text_of(const char* sql) {
  Result<std::unique_ptr<Statement>> statement = prepare(sql);
  if (!statement) return std::move(statement).error();
  if (sqlite3_step((*statement)->handle) != SQLITE_ROW) return sqlite_error(sql);
  return std::string(column((*statement)->handle, 0));
}

Status SqliteJournal::Implementation::open_database() {
  const std::string name = path("journal.db");
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX | SQLITE_OPEN_EXRESCODE;
  if (sqlite3_open_v2(name.c_str(), &db, flags, nullptr) != SQLITE_OK) return sqlite_error("can't open it");
  for (const char* sql : {"PRAGMA locking_mode=EXCLUSIVE", "PRAGMA trusted_schema=OFF"}) {
    if (Status done = execute(sql); !done) return done;
  }
  Result<std::string> mode = text_of("PRAGMA journal_mode=WAL");
  if (!mode) return std::move(mode).error();
  if (*mode != "wal")
    return error(ErrorCode::journal_failed, fmt::format("its file system allows journal mode '{}', not WAL", *mode));
  // A checkpoint costs two fsyncs more, some time in an update: once for several updates of a thousand workers.
  for (const char* sql : {"PRAGMA synchronous=FULL", "PRAGMA wal_autocheckpoint=4000"}) {
    if (Status done = execute(sql); !done) return done;
  }
  if (settings.pages_max > 0) {
    if (Status done = execute(fmt::format("PRAGMA max_page_count={}", settings.pages_max).c_str()); !done) return done;
  }
  return check_format();
}

Status SqliteJournal::Implementation::check_format() {
  if (Status done = execute(
          "BEGIN EXCLUSIVE;"
          "CREATE TABLE IF NOT EXISTS meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;"
          "CREATE TABLE IF NOT EXISTS records(number INTEGER PRIMARY KEY, previous BLOB NOT NULL, hash BLOB NOT NULL,"
          " body BLOB NOT NULL) STRICT;"
          "INSERT OR IGNORE INTO meta VALUES('format', '1');"
          "COMMIT");
      !done)
    return done;
  Result<std::string> format = text_of("SELECT value FROM meta WHERE key='format'");
  if (!format) return std::move(format).error();
  if (*format != "1")
    return error(ErrorCode::journal_failed,
                 fmt::format("it has format {}, this release reads format 1; use the release that wrote it", *format));
  Result<std::unique_ptr<Statement>> made =
      prepare("INSERT INTO records(number, previous, hash, body) VALUES(?1, ?2, ?3, ?4)");
  if (!made) return std::move(made).error();
  insert = *std::move(made);
  made = prepare("SELECT number, previous, hash, body FROM records WHERE number >= ?1 ORDER BY number LIMIT ?2");
  if (!made) return std::move(made).error();
  select = *std::move(made);
  return {};
}

Status SqliteJournal::Implementation::verify() {
  sqlite3_stmt* row = select->handle;
  sqlite3_reset(row);
  sqlite3_bind_int64(row, 1, 0);
  sqlite3_bind_int64(row, 2, -1);
  ChainCheck check;
  std::string fault;  // the first one
  std::int64_t good_before = 0;
  std::int64_t readable_after = 0;
  int step = SQLITE_OK;
  while ((step = sqlite3_step(row)) == SQLITE_ROW) {
    const std::int64_t found = sqlite3_column_int64(row, 0);
    const Result<JournalEntry> entry = decode_row(found, column(row, 1), column(row, 2), column(row, 3));
    const std::vector<JournalFault> faults = check.take(found, column(row, 1), column(row, 2), entry);
    if (fault.empty() && !faults.empty()) fault = faults.front().text;
    if (fault.empty()) {
      good_before = found;
    } else if (entry) {
      ++readable_after;
    }
  }
  last_hash = check.last_hash();
  const std::int64_t number = check.last_number();
  sqlite3_reset(row);
  if (fault.empty() && step != SQLITE_DONE)
    fault = fmt::format("record {} can't be read: {}", number + 1, sqlite3_errmsg(db));
  if (!fault.empty())
    return error(
        ErrorCode::journal_corrupt,
        fmt::format("{}; records 1 to {} are whole, {} later ones can be read: `weighlock journal inspect '{}'` shows "
                    "them all. Move the state directory away to start anew: paused workers are then found and taken "
                    "over by their state",
                    fault, good_before, readable_after, settings.directory));
  last = number;
  return {};
}

void SqliteJournal::Implementation::make_reserve() {
  const std::string name = path("journal.reserve");
  const int file = ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  const int failure = file < 0 ? errno : posix_fallocate(file, 0, static_cast<off_t>(settings.reserve_bytes));
  if (file >= 0) close(file);
  reserve = failure == 0;
  // Where it fails for another reason the gateway still works; it only has nothing to give up on a full disk.
  space_low = failure == ENOSPC || failure == EDQUOT;
  if (!reserve) unlink(name.c_str());
}

bool SqliteJournal::Implementation::give_up_reserve() {
  if (!reserve) return false;
  reserve = false;
  space_low = true;
  return unlink(path("journal.reserve").c_str()) == 0;
}

// The SQLite code of the first step that failed; then nothing of the group is there.
int SqliteJournal::Implementation::insert_group(const std::vector<std::string>& bodies, std::string& hash) {
  int code = sqlite3_exec(db, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr);
  std::int64_t number = last;
  hash = last_hash;
  for (const std::string& body : bodies) {
    if (code != SQLITE_OK) break;
    const std::string next = chain_hash(++number, hash, body);
    sqlite3_stmt* row = insert->handle;
    sqlite3_bind_int64(row, 1, number);
    sqlite3_bind_blob64(row, 2, hash.data(), hash.size(), SQLITE_TRANSIENT);
    sqlite3_bind_blob64(row, 3, next.data(), next.size(), SQLITE_TRANSIENT);
    sqlite3_bind_blob64(row, 4, body.data(), body.size(), SQLITE_STATIC);
    code = sqlite3_step(row);
    if (code == SQLITE_DONE) code = SQLITE_OK;
    sqlite3_reset(row);
    hash = next;
  }
  if (code == SQLITE_OK) code = sqlite3_exec(db, "COMMIT", nullptr, nullptr, nullptr);
  if (code != SQLITE_OK && sqlite3_get_autocommit(db) == 0) sqlite3_exec(db, "ROLLBACK", nullptr, nullptr, nullptr);
  return code;
}

SqliteJournal::SqliteJournal(std::unique_ptr<Implementation> implementation)
    : implementation_(std::move(implementation)) {}
SqliteJournal::~SqliteJournal() = default;

Result<std::unique_ptr<SqliteJournal>> SqliteJournal::open(Settings settings) {
  auto implementation = std::make_unique<Implementation>();
  implementation->settings = std::move(settings);
  Implementation& self = *implementation;
  if (Status done = self.make_directory(); !done) return done.error();
  if (Status done = self.take_lock(); !done) return done.error();
  if (Status done = self.open_database(); !done) return done.error();
  if (Status done = self.verify(); !done) return done.error();
  self.make_reserve();
  return std::unique_ptr<SqliteJournal>(new SqliteJournal(std::move(implementation)));
}

Status SqliteJournal::append(std::vector<protocol::Record> group, std::int64_t wall_ms) {
  if (group.empty()) return {};
  std::vector<std::string> bodies;
  bodies.reserve(group.size());
  for (const protocol::Record& record : group) bodies.push_back(encode_record(record, wall_ms));
  Implementation& self = *implementation_;
  const std::lock_guard lock(self.mutex);
  if (self.failed)
    return self.error(ErrorCode::journal_failed, "an earlier write failed; what is on disk is asked after a restart");
  std::string hash;
  int code = self.insert_group(bodies, hash);
  if ((code & 0xff) == SQLITE_FULL && self.give_up_reserve()) code = self.insert_group(bodies, hash);
  if (code != SQLITE_OK) {
    self.failed = true;
    return self.error(ErrorCode::journal_failed,
                      fmt::format("can't append {} records after number {}: {} (code {}, errno {})", bodies.size(),
                                  self.last.load(), sqlite3_errstr(code), code, sqlite3_system_errno(self.db)));
  }
  self.last_hash = std::move(hash);
  self.last = self.last + static_cast<std::int64_t>(bodies.size());
  return {};
}

Result<std::vector<JournalEntry>> SqliteJournal::read(std::int64_t from, std::size_t limit) {
  Implementation& self = *implementation_;
  const std::lock_guard lock(self.mutex);
  sqlite3_stmt* row = self.select->handle;
  sqlite3_reset(row);
  sqlite3_bind_int64(row, 1, from);
  sqlite3_bind_int64(row, 2, static_cast<std::int64_t>(limit));
  std::vector<JournalEntry> out;
  int step = SQLITE_OK;
  while ((step = sqlite3_step(row)) == SQLITE_ROW) {
    Result<JournalEntry> entry =
        decode_row(sqlite3_column_int64(row, 0), column(row, 1), column(row, 2), column(row, 3));
    if (!entry) {
      sqlite3_reset(row);
      return wrap(fmt::format("journal '{}'", self.path("journal.db")), std::move(entry).error());
    }
    out.push_back(*std::move(entry));
  }
  Error failure = step == SQLITE_DONE ? Error{} : self.sqlite_error("can't read");
  sqlite3_reset(row);
  if (step != SQLITE_DONE) return failure;
  return out;
}

bool SqliteJournal::space_low() const {
  return implementation_->space_low;
}

bool SqliteJournal::restore_space() {
  const std::lock_guard lock(implementation_->mutex);
  if (implementation_->space_low) implementation_->make_reserve();
  return !implementation_->space_low;
}

std::int64_t SqliteJournal::last_number() const {
  return implementation_->last;
}

}  // namespace weighlock
