// One contract over both journals, then what only the one on disk can show.
#include "weighlock/journal/journal.hpp"

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "weighlock/journal/encoding.hpp"
#include "weighlock/journal/memory_journal.hpp"
#include "weighlock/journal/sqlite_journal.hpp"

namespace weighlock {
namespace {

struct TemporaryDirectory {
  std::string path;
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "journal_test.XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

protocol::Record record(std::string_view update, std::int64_t n) {
  protocol::Record out;
  out.kind = protocol::RecordKind::intent;
  out.pair = "actor";
  out.update = update;
  out.worker = "http://10.0.0.7:30000";
  out.body["z"] = n;
  out.body["a"] = "text";
  return out;
}

std::vector<protocol::Record> group(std::initializer_list<std::int64_t> numbers) {
  std::vector<protocol::Record> out;
  for (const std::int64_t n : numbers) out.push_back(record("u", n));
  return out;
}

std::unique_ptr<SqliteJournal> open_ok(const std::string& directory, int pages_max = 0) {
  SqliteJournal::Settings settings;
  settings.directory = directory;
  settings.reserve_bytes = 64 * 1024;
  settings.pages_max = pages_max;
  auto opened = SqliteJournal::open(settings);
  EXPECT_TRUE(opened) << (opened ? "" : opened.error().text());
  return opened ? *std::move(opened) : nullptr;
}

struct OnDisk {
  TemporaryDirectory directory;
  std::unique_ptr<SqliteJournal> journal = open_ok(directory.path);
  void break_disk() {
    journal.reset();
    journal = open_ok(directory.path, 8);  // eight pages: the tables, and little else
  }
};
struct InMemory {
  std::unique_ptr<MemoryJournal> journal = std::make_unique<MemoryJournal>();
  void break_disk() { journal->break_disk(); }
};

template <typename T>
class JournalContract : public ::testing::Test {
 protected:
  T made;
  Journal& journal() { return *made.journal; }
};
using Kinds = ::testing::Types<OnDisk, InMemory>;
TYPED_TEST_SUITE(JournalContract, Kinds);

TYPED_TEST(JournalContract, records_come_back_in_order_and_whole) {
  ASSERT_TRUE(this->journal().append(group({1, 2}), 1000));
  ASSERT_TRUE(this->journal().append(group({3}), 2000));
  EXPECT_EQ(this->journal().last_number(), 3);
  auto all = this->journal().read(1, 100);
  ASSERT_TRUE(all);
  ASSERT_EQ(all->size(), 3u);
  for (std::int64_t i = 0; i < 3; ++i) {
    const JournalEntry& entry = (*all)[static_cast<std::size_t>(i)];
    EXPECT_EQ(entry.number, i + 1);
    EXPECT_EQ(entry.wall_ms, i < 2 ? 1000 : 2000);
    EXPECT_EQ(entry.record.kind, protocol::RecordKind::intent);
    EXPECT_EQ(entry.record.pair, "actor");
    EXPECT_EQ(entry.record.worker, "http://10.0.0.7:30000");
    EXPECT_EQ(entry.record.body.at("z").as_int64(), i + 1);
  }
}

TYPED_TEST(JournalContract, reading_is_bounded_and_starts_where_asked) {
  ASSERT_TRUE(this->journal().append(group({1, 2, 3, 4, 5}), 1));
  auto two = this->journal().read(3, 2);
  ASSERT_TRUE(two);
  ASSERT_EQ(two->size(), 2u);
  EXPECT_EQ(two->front().number, 3);
  EXPECT_EQ(this->journal().read(6, 10)->size(), 0u);
}

TYPED_TEST(JournalContract, each_record_is_chained_to_the_one_before) {
  ASSERT_TRUE(this->journal().append(group({1, 2}), 1));
  ASSERT_TRUE(this->journal().append(group({3}), 1));
  auto all = this->journal().read(1, 10);
  ASSERT_TRUE(all);
  EXPECT_EQ((*all)[0].previous_hash, std::string(64, '0'));
  EXPECT_EQ((*all)[1].previous_hash, (*all)[0].hash);
  EXPECT_EQ((*all)[2].previous_hash, (*all)[1].hash);
  EXPECT_NE((*all)[1].hash, (*all)[0].hash);
}

TYPED_TEST(JournalContract, an_empty_group_changes_nothing) {
  ASSERT_TRUE(this->journal().append({}, 1));
  EXPECT_EQ(this->journal().last_number(), 0);
}

TYPED_TEST(JournalContract, a_body_of_megabytes_comes_back) {
  protocol::Record big = record("u", 1);
  big.body["text"] = std::string(5'000'000, 'x');
  ASSERT_TRUE(this->journal().append({big}, 1));
  auto all = this->journal().read(1, 1);
  ASSERT_TRUE(all);
  EXPECT_EQ(all->front().record.body.at("text").as_string().size(), 5'000'000u);
}

TYPED_TEST(JournalContract, bytes_that_are_not_utf8_do_not_make_the_journal_unreadable) {
  protocol::Record odd = record("u", 1);
  odd.body["text"] = "a\xff\xc3(\xe2\x82\xac";
  ASSERT_TRUE(this->journal().append({odd}, 1));
  auto all = this->journal().read(1, 1);
  ASSERT_TRUE(all) << all.error().text();
  EXPECT_EQ(all->front().record.body.at("text").as_string(), "a\xef\xbf\xbd\xef\xbf\xbd(\xe2\x82\xac");
}

TYPED_TEST(JournalContract, a_reader_beside_a_writer_sees_only_whole_groups) {
  std::thread writer([&] {
    for (std::int64_t i = 0; i < 50; ++i) EXPECT_TRUE(this->journal().append(group({i, i, i}), 1));
  });
  std::size_t seen = 0;
  while (seen < 150) {
    auto all = this->journal().read(1, 1000);
    ASSERT_TRUE(all);
    EXPECT_EQ(all->size() % 3, 0u);
    EXPECT_GE(all->size(), seen);
    seen = all->size();
  }
  writer.join();
}

TYPED_TEST(JournalContract, after_a_failed_append_nothing_more_is_taken_and_the_group_is_not_there) {
  ASSERT_TRUE(this->journal().append(group({1}), 1));
  this->made.break_disk();
  protocol::Record big = record("u", 2);
  big.body["text"] = std::string(200'000, 'x');
  Status failed = this->journal().append({record("u", 2), big}, 1);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::journal_failed);
  EXPECT_FALSE(this->journal().append(group({3}), 1));
  EXPECT_EQ(this->journal().last_number(), 1);
  EXPECT_EQ(this->journal().read(1, 10)->size(), 1u);
}

void run_sql(const std::string& directory, const std::string& sql) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open((directory + "/journal.db").c_str(), &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(db);
  sqlite3_close(db);
}

Error open_error(const std::string& directory) {
  SqliteJournal::Settings settings;
  settings.directory = directory;
  auto opened = SqliteJournal::open(settings);
  EXPECT_FALSE(opened);
  return opened ? Error{} : opened.error();
}

class SqliteJournalTest : public ::testing::Test {
 protected:
  void write_five() {
    auto journal = open_ok(directory.path);
    ASSERT_TRUE(journal->append(group({1, 2, 3, 4, 5}), 1));
  }
  TemporaryDirectory directory;
};

TEST_F(SqliteJournalTest, a_reopened_journal_goes_on_where_it_ended) {
  write_five();
  auto journal = open_ok(directory.path);
  EXPECT_EQ(journal->last_number(), 5);
  ASSERT_TRUE(journal->append(group({6}), 1));
  auto all = journal->read(5, 10);
  ASSERT_TRUE(all);
  ASSERT_EQ(all->size(), 2u);
  EXPECT_EQ((*all)[1].previous_hash, (*all)[0].hash);
}

TEST_F(SqliteJournalTest, an_altered_record_in_the_middle_is_named) {
  write_five();
  run_sql(directory.path,
          "UPDATE records SET body = CAST(replace(CAST(body AS TEXT), 'actor', 'actur') AS BLOB) WHERE number = 3");
  const Error error = open_error(directory.path);
  EXPECT_EQ(error.code, ErrorCode::journal_corrupt);
  EXPECT_NE(error.message.find("record 3: its content"), std::string::npos) << error.message;
  EXPECT_NE(error.message.find("records 1 to 2 are whole, 2 later ones can be read"), std::string::npos)
      << error.message;
}

TEST_F(SqliteJournalTest, an_altered_record_with_a_right_hash_of_its_own_breaks_the_chain) {
  write_five();
  const std::string body = encode_record(record("forged", 3), 1);
  std::string previous;
  {
    auto journal = open_ok(directory.path);
    previous = (*journal->read(3, 1))[0].previous_hash;
  }
  std::string raw;
  for (std::size_t i = 0; i < 64; i += 2)
    raw.push_back(static_cast<char>(std::stoi(previous.substr(i, 2), nullptr, 16)));
  std::string hash;
  for (const unsigned char c : chain_hash(3, raw, body)) {
    char two[3];
    snprintf(two, sizeof two, "%02x", c);
    hash += two;
  }
  run_sql(directory.path,
          "UPDATE records SET body = CAST('" + body + "' AS BLOB), hash = x'" + hash + "' WHERE number = 3");
  EXPECT_NE(open_error(directory.path).message.find("record 4 doesn't follow record 3"), std::string::npos);
}

TEST_F(SqliteJournalTest, a_missing_record_in_the_middle_is_named) {
  write_five();
  run_sql(directory.path, "DELETE FROM records WHERE number = 2");
  EXPECT_NE(open_error(directory.path).message.find("record 2 is missing"), std::string::npos);
}

TEST_F(SqliteJournalTest, records_lost_at_the_end_are_harmless) {
  write_five();
  run_sql(directory.path, "DELETE FROM records WHERE number > 3");
  auto journal = open_ok(directory.path);
  EXPECT_EQ(journal->last_number(), 3);
  EXPECT_TRUE(journal->append(group({4}), 1));
}

TEST_F(SqliteJournalTest, what_was_appended_survives_a_process_that_dies_at_once) {
  const pid_t child = fork();
  if (child == 0) {
    auto journal = open_ok(directory.path);
    _exit(journal->append(group({1, 2}), 1) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(open_ok(directory.path)->last_number(), 2);
}

TEST_F(SqliteJournalTest, a_second_opener_is_refused_with_the_holder_named) {
  auto journal = open_ok(directory.path);
  const Error error = open_error(directory.path);
  EXPECT_EQ(error.code, ErrorCode::conflict);
  EXPECT_NE(error.message.find("process " + std::to_string(getpid())), std::string::npos) << error.message;
  journal.reset();
  EXPECT_TRUE(open_ok(directory.path));
}

TEST_F(SqliteJournalTest, a_file_that_is_no_database_is_an_error_and_not_overwritten) {
  const std::string name = directory.path + "/journal.db";
  FILE* file = fopen(name.c_str(), "w");
  fputs("this was something else, longer than a header of SQLite would be, and nobody may lose it....................",
        file);
  fclose(file);
  const auto size = std::filesystem::file_size(name);
  EXPECT_EQ(open_error(directory.path).code, ErrorCode::journal_failed);
  EXPECT_EQ(std::filesystem::file_size(name), size);
}

TEST_F(SqliteJournalTest, a_full_disk_gives_up_the_reserve_before_it_fails) {
  write_five();
  auto journal = open_ok(directory.path, 8);
  EXPECT_TRUE(std::filesystem::exists(directory.path + "/journal.reserve"));
  protocol::Record big = record("u", 2);
  big.body["text"] = std::string(200'000, 'x');
  EXPECT_FALSE(journal->append({big}, 1));
  EXPECT_FALSE(std::filesystem::exists(directory.path + "/journal.reserve"));
}

TEST_F(SqliteJournalTest, a_directory_that_cannot_be_made_is_an_error) {
  EXPECT_EQ(open_error("/proc/nowhere").code, ErrorCode::journal_failed);
}

TEST(Encoding, keys_are_in_byte_order_whatever_order_they_were_set_in) {
  protocol::Record one = record("u", 1);
  protocol::Record two = one;
  two.body.clear();
  two.body["a"] = "text";
  two.body["z"] = 1;
  EXPECT_EQ(encode_record(one, 5), encode_record(two, 5));
  EXPECT_EQ(
      encode_record(one, 5),
      R"({"body":{"a":"text","z":1},"kind":"intent","pair":"actor","update":"u","wall_ms":5,"worker":"http://10.0.0.7:30000"})");
}

}  // namespace
}  // namespace weighlock
