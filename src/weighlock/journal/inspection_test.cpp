// A journal looked at from outside: whole, damaged, in use, and none at all.
#include "weighlock/journal/inspection.hpp"

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <filesystem>

#include "weighlock/io/temporary_directory.hpp"
#include "weighlock/journal/sqlite_journal.hpp"

namespace weighlock {
namespace {

class Inspecting : public ::testing::Test {
 protected:
  std::unique_ptr<SqliteJournal> open() {
    SqliteJournal::Settings settings;
    settings.directory = state();
    settings.reserve_bytes = 64 * 1024;
    auto opened = SqliteJournal::open(settings);
    EXPECT_TRUE(opened) << (opened ? "" : opened.error().text());
    return opened ? *std::move(opened) : nullptr;
  }
  static void append(SqliteJournal& journal, std::int64_t count) {
    protocol::Record record;
    record.kind = protocol::RecordKind::intent;
    record.pair = "actor";
    record.body["text"] = std::string(100, 'x');
    ASSERT_TRUE(journal.append(std::vector<protocol::Record>(static_cast<std::size_t>(count), record), 1'000));
  }
  void write(std::int64_t count) {
    const auto journal = open();
    append(*journal, count);
  }
  void run_sql(const std::string& sql) {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open((state() + "/journal.db").c_str(), &db), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(db);
    sqlite3_close(db);
  }
  JournalInspection look() {
    rows.clear();
    auto made = inspect_journal(state(), [&](const InspectedRow& row) { rows.push_back(row); });
    EXPECT_TRUE(made) << (made ? "" : made.error().text());
    return made ? *std::move(made) : JournalInspection{};
  }
  std::string state() const { return directory.path("state"); }

  TemporaryDirectory directory;
  std::vector<InspectedRow> rows;
};

TEST_F(Inspecting, a_whole_journal_is_shown_and_sound) {
  write(5);
  const JournalInspection seen = look();
  EXPECT_TRUE(seen.faults.empty());
  EXPECT_EQ(seen.readable, 5);
  EXPECT_EQ(seen.good_before, 5);
  ASSERT_EQ(rows.size(), 5U);
  EXPECT_EQ(rows[4].entry->record.pair, "actor");
  EXPECT_EQ(rows[4].entry->wall_ms, 1'000);
}

TEST_F(Inspecting, a_record_that_is_missing_in_the_middle_is_named_and_the_rest_is_shown) {
  write(6);
  run_sql("DELETE FROM records WHERE number = 3");
  const JournalInspection seen = look();
  ASSERT_EQ(seen.faults.size(), 1U);
  EXPECT_EQ(seen.faults[0].number, 3);
  EXPECT_EQ(seen.faults[0].damage, JournalDamage::missing);
  EXPECT_EQ(seen.faults[0].text, "record 3 is missing: 4 comes after 2, and 3 was expected");
  EXPECT_EQ(seen.good_before, 2);
  EXPECT_EQ(seen.readable, 5);
  EXPECT_TRUE(rows[2].entry.has_value()) << "record 4 is whole itself";
}

TEST_F(Inspecting, several_missing_ones_are_one_gap) {
  write(6);
  run_sql("DELETE FROM records WHERE number IN (2, 3, 4)");
  const JournalInspection seen = look();
  ASSERT_EQ(seen.faults.size(), 1U);
  EXPECT_EQ(seen.faults[0].text, "records 2 to 4 are missing: 5 comes after 1, and 2 was expected");
}

TEST_F(Inspecting, an_altered_record_is_named_with_both_hashes_and_its_stored_text_is_there) {
  write(5);
  run_sql("UPDATE records SET body = CAST(replace(CAST(body AS TEXT), 'actor', 'actur') AS BLOB) WHERE number = 3");
  const JournalInspection seen = look();
  ASSERT_EQ(seen.faults.size(), 1U);
  EXPECT_EQ(seen.faults[0].number, 3);
  EXPECT_EQ(seen.faults[0].damage, JournalDamage::altered);
  EXPECT_NE(seen.faults[0].text.find("the content gives"), std::string::npos) << seen.faults[0].text;
  EXPECT_FALSE(rows[2].entry.has_value());
  EXPECT_NE(rows[2].body.find("actur"), std::string::npos);
  EXPECT_EQ(seen.readable, 4);
}

TEST_F(Inspecting, a_record_put_in_the_place_of_another_breaks_the_link) {
  write(5);
  run_sql("UPDATE records SET previous = zeroblob(32) WHERE number = 4");
  const JournalInspection seen = look();
  ASSERT_EQ(seen.faults.size(), 2U);
  EXPECT_EQ(seen.faults[0].damage, JournalDamage::unlinked);
  EXPECT_NE(seen.faults[0].text.find("000000000000..."), std::string::npos) << seen.faults[0].text;
  EXPECT_EQ(seen.faults[1].damage, JournalDamage::altered);
}

TEST_F(Inspecting, a_lost_tail_is_no_damage) {
  write(5);
  run_sql("DELETE FROM records WHERE number > 3");
  const JournalInspection seen = look();
  EXPECT_TRUE(seen.faults.empty());
  EXPECT_EQ(seen.good_before, 3);
}

TEST_F(Inspecting, an_empty_journal_and_an_empty_file_are_sound) {
  write(0);
  EXPECT_TRUE(look().faults.empty());
  std::filesystem::remove_all(state());
  std::filesystem::create_directories(state());
  write_file(state() + "/journal.db", "");
  EXPECT_TRUE(look().faults.empty());
  EXPECT_TRUE(rows.empty());
}

TEST_F(Inspecting, what_is_no_journal_is_refused_with_its_name) {
  const auto refused = [&](const std::string& place) {
    const auto made = inspect_journal(place, [](const InspectedRow&) {});
    return made ? Error{ErrorCode::internal, "accepted"} : made.error();
  };
  EXPECT_EQ(refused(state()).code, ErrorCode::not_found);
  write_file(directory.path("other"), std::string(4096, 'a'));
  const Error other = refused(directory.path("other"));
  EXPECT_EQ(other.code, ErrorCode::journal_corrupt);
  EXPECT_NE(other.message.find(directory.path("other")), std::string::npos) << other.message;
  write(1);
  run_sql("DROP TABLE records");
  EXPECT_EQ(refused(state()).code, ErrorCode::journal_corrupt);
}

TEST_F(Inspecting, pages_that_cannot_be_read_are_a_fault_and_what_lies_behind_is_shown) {
  write(800);
  const std::string name = state() + "/journal.db";
  std::string bytes = read_file(name);
  ASSERT_GT(bytes.size(), std::size_t{40} * 4096);
  std::fill_n(bytes.begin() + 20 * 4096, 4096, '\xff');
  write_file(name, bytes);
  const JournalInspection seen = look();
  ASSERT_FALSE(seen.faults.empty());
  EXPECT_EQ(seen.faults[0].damage, JournalDamage::unreadable) << seen.faults[0].text;
  EXPECT_GT(seen.good_before, 0);
  EXPECT_EQ(rows.back().number, 800);
  EXPECT_TRUE(rows.back().entry.has_value());
}

TEST_F(Inspecting, a_journal_in_use_is_read_without_disturbing_its_gateway_and_left_as_it_is) {
  const auto journal = open();
  append(*journal, 5);
  const std::string before = read_file(state() + "/journal.db");
  const JournalInspection seen = look();
  EXPECT_TRUE(seen.faults.empty());
  EXPECT_EQ(seen.readable, 5) << "what is still in the log alone, too";
  EXPECT_EQ(read_file(state() + "/journal.db"), before);
  EXPECT_FALSE(std::filesystem::exists(state() + "/journal.db-shm"));
  for (int i = 0; i < 6; ++i) append(*journal, 10'000);  // over a checkpoint
  EXPECT_EQ(look().readable, 60'005);
  append(*journal, 1);
}

}  // namespace
}  // namespace weighlock
