#include "weighlock/journal/inspection.hpp"

#include <fmt/format.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>
#include <utility>

#include "weighlock/io/access.hpp"

namespace weighlock {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kWalHeaderBytes = 32;  // SQLite's file format, section 4.1: salts and checkpoint number
constexpr int kCopyTries = 40;               // a checkpoint takes milliseconds, and comes once for several updates
constexpr auto kCopyRetry = std::chrono::milliseconds(50);

class Scratch {
 public:
  Scratch() {
    std::string name = (fs::temp_directory_path() / "weighlock-journal-XXXXXX").string();
    if (mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~Scratch() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;  // "": it could not be made
};

struct Close {
  void operator()(sqlite3* db) const { sqlite3_close(db); }
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Database = std::unique_ptr<sqlite3, Close>;
using Statement = std::unique_ptr<sqlite3_stmt, Close>;

Error about(ErrorCode code, const std::string& path, std::string_view what) {
  return Error{code, fmt::format("journal '{}': {}", path, what)};
}

std::string wal_header(const std::string& database) {
  std::ifstream file(database + "-wal", std::ios::binary);
  std::string out(kWalHeaderBytes, '\0');
  file.read(out.data(), static_cast<std::streamsize>(out.size()));
  out.resize(static_cast<std::size_t>(file.gcount()));
  return out;
}

// Whatever a checkpoint writes into the database stands in the log, too, until the log begins anew, which its header
// shows. So the database first, then the log, and once more if the header changed meanwhile.
Status copy_files(const std::string& database, const std::string& to) {
  for (int tries = 0; tries < kCopyTries; ++tries) {
    const std::string before = wal_header(database);
    std::error_code failure;
    fs::copy_file(database, to, fs::copy_options::overwrite_existing, failure);
    if (failure) return about(ErrorCode::journal_failed, database, fmt::format("can't copy it: {}", failure.message()));
    std::error_code no_log;
    fs::remove(to + "-wal", no_log);
    fs::copy_file(database + "-wal", to + "-wal", fs::copy_options::overwrite_existing, no_log);
    if (wal_header(database) == before && wal_header(to) == before) return {};
    std::this_thread::sleep_for(kCopyRetry);
  }
  return about(ErrorCode::journal_failed, database, "it changes faster than it can be copied; try again");
}

std::string_view column(sqlite3_stmt* row, int index) {
  const void* bytes = sqlite3_column_blob(row, index);
  return {static_cast<const char*>(bytes), bytes ? static_cast<std::size_t>(sqlite3_column_bytes(row, index)) : 0};
}

// The rows of the copy, in order, and what lies behind a place that can't be read.
class Reading {
 public:
  Reading(sqlite3* db, JournalInspection& out, const std::function<void(const InspectedRow&)>& seen)
      : db_(db), out_(out), seen_(seen) {}

  // False: there is no table of records.
  bool run() {
    const Statement rows = prepare("SELECT number, previous, hash, body FROM records ORDER BY number");
    if (!rows) return false;
    int step = SQLITE_OK;
    while ((step = sqlite3_step(rows.get())) == SQLITE_ROW) take(row_of(rows.get()));
    if (step != SQLITE_DONE) read_behind();
    return true;
  }

 private:
  struct Raw {
    std::int64_t number = 0;
    std::string previous, hash, body;
  };

  Statement prepare(const char* sql) {
    sqlite3_stmt* made = nullptr;
    sqlite3_prepare_v2(db_, sql, -1, &made, nullptr);
    return Statement(made);
  }
  static Raw row_of(sqlite3_stmt* row) {
    return Raw{sqlite3_column_int64(row, 0), std::string(column(row, 1)), std::string(column(row, 2)),
               std::string(column(row, 3))};
  }

  void take(const Raw& raw) {
    InspectedRow row;
    Result<JournalEntry> entry = decode_row(raw.number, raw.previous, raw.hash, raw.body);
    row.number = raw.number;
    row.body = raw.body;
    row.faults = check_.take(raw.number, raw.previous, raw.hash, entry);
    out_.faults.insert(out_.faults.end(), row.faults.begin(), row.faults.end());
    if (out_.faults.empty()) out_.good_before = raw.number;
    if (entry) {
      ++out_.readable;
      row.entry = *std::move(entry);
    }
    seen_(row);
  }

  void read_behind() {
    InspectedRow gap;
    gap.number = check_.last_number() + 1;
    gap.faults.push_back({gap.number, JournalDamage::unreadable,
                          fmt::format("record {} can't be read: {}", gap.number, sqlite3_errmsg(db_))});
    out_.faults.push_back(gap.faults.front());
    seen_(gap);
    std::vector<Raw> behind;
    const Statement rows = prepare("SELECT number, previous, hash, body FROM records ORDER BY number DESC");
    while (rows && sqlite3_step(rows.get()) == SQLITE_ROW) {
      Raw raw = row_of(rows.get());
      if (raw.number <= check_.last_number()) break;
      behind.push_back(std::move(raw));
    }
    for (auto raw = behind.rbegin(); raw != behind.rend(); ++raw) take(*raw);
  }

  sqlite3* db_;
  JournalInspection& out_;
  const std::function<void(const InspectedRow&)>& seen_;
  ChainCheck check_;
};

}  // namespace

Result<JournalInspection> inspect_journal(const std::string& place,
                                          const std::function<void(const InspectedRow&)>& seen) {
  JournalInspection out;
  std::error_code failure;
  out.path = fs::is_directory(place, failure) ? place + "/journal.db" : place;
  RealFileSystem files;
  if (Status open = check_openable(files, out.path, false); !open && open.error().code == ErrorCode::permission_denied)
    return std::move(open).error();
  if (!fs::exists(out.path, failure))
    return about(ErrorCode::not_found, out.path,
                 "there is none; name the state directory of a gateway, or its journal.db");
  if (!fs::is_regular_file(out.path, failure))
    return about(ErrorCode::journal_corrupt, out.path, "it is no file; name the state directory, or its journal.db");
  const Scratch scratch;
  if (scratch.path().empty())
    return about(ErrorCode::journal_failed, out.path,
                 fmt::format("can't make a directory for its copy in '{}': {}", fs::temp_directory_path().string(),
                             std::strerror(errno)));
  const std::string copy = scratch.path() + "/journal.db";
  if (Status copied = copy_files(out.path, copy); !copied) return std::move(copied).error();
  if (fs::file_size(copy, failure) == 0 && wal_header(copy).empty()) return out;  // nothing was ever written
  sqlite3* opened = nullptr;
  const int code = sqlite3_open_v2(copy.c_str(), &opened, SQLITE_OPEN_READWRITE | SQLITE_OPEN_EXRESCODE, nullptr);
  const Database db(opened);
  if (code != SQLITE_OK) return about(ErrorCode::journal_failed, out.path, sqlite3_errstr(code));
  // Without shared memory, as the gateway opens it; what the schema says is not to be trusted.
  sqlite3_exec(db.get(), "PRAGMA locking_mode=EXCLUSIVE; PRAGMA trusted_schema=OFF", nullptr, nullptr, nullptr);
  if (!Reading(db.get(), out, seen).run())
    return about(ErrorCode::journal_corrupt, out.path,
                 fmt::format("it is no journal of a gateway: {}", sqlite3_errmsg(db.get())));
  return out;
}

}  // namespace weighlock
