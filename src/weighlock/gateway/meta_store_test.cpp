#include "weighlock/gateway/meta_store.hpp"

#include <gtest/gtest.h>

#include <string>

namespace weighlock {
namespace {

MetaStore::Text text(std::string bytes) {
  return std::make_shared<const std::string>(std::move(bytes));
}

TEST(MetaStore, what_was_put_is_what_every_reader_shares) {
  MetaStore store;
  const MetaStore::Text value = text("[1.0]");
  ASSERT_TRUE(store.put("p", "k", value));
  EXPECT_EQ(store.get("p", "k"), value);
  EXPECT_EQ(store.get("p", "other"), nullptr);
  EXPECT_EQ(store.get("other", "k"), nullptr);
}

TEST(MetaStore, a_key_without_a_value_exists_but_reads_as_absent) {
  MetaStore store;
  ASSERT_TRUE(store.put("p", "k", nullptr));
  EXPECT_EQ(store.get("p", "k"), nullptr);
  EXPECT_TRUE(store.erase("p", "k"));
  EXPECT_FALSE(store.erase("p", "k"));
  EXPECT_FALSE(store.erase("nobody", "k"));
}

TEST(MetaStore, a_reader_keeps_what_it_got_when_the_key_is_replaced_or_its_pair_cleared) {
  MetaStore store;
  ASSERT_TRUE(store.put("p", "k", text("first")));
  const MetaStore::Text read = store.get("p", "k");
  ASSERT_TRUE(store.put("p", "k", text("second")));
  EXPECT_EQ(*store.get("p", "k"), "second");
  store.clear("p");
  EXPECT_EQ(*read, "first");
}

TEST(MetaStore, sets_count_each_member_once_and_are_no_keys) {
  MetaStore store;
  EXPECT_EQ(store.set_size("p", "s"), 0u);
  ASSERT_TRUE(store.add_to_set("p", "s", "a"));
  ASSERT_TRUE(store.add_to_set("p", "s", "a"));
  ASSERT_TRUE(store.add_to_set("p", "s", ""));
  EXPECT_EQ(store.set_size("p", "s"), 2u);
  EXPECT_EQ(store.get("p", "s"), nullptr);
  EXPECT_FALSE(store.erase("p", "s"));
  ASSERT_TRUE(store.put("p", "s", text("1")));
  EXPECT_TRUE(store.erase("p", "s"));
  EXPECT_EQ(store.set_size("p", "s"), 2u);
}

TEST(MetaStore, clearing_a_pair_takes_its_keys_and_sets_and_nobody_elses) {
  MetaStore store;
  for (const char* pair : {"p", "q"}) {
    ASSERT_TRUE(store.put(pair, "k", text("1")));
    ASSERT_TRUE(store.add_to_set(pair, "s", "a"));
  }
  store.clear("p");
  store.clear("nobody");
  EXPECT_EQ(store.get("p", "k"), nullptr);
  EXPECT_EQ(store.set_size("p", "s"), 0u);
  EXPECT_NE(store.get("q", "k"), nullptr);
  EXPECT_EQ(store.set_size("q", "s"), 1u);
}

TEST(MetaStore, every_byte_that_was_counted_is_given_back) {
  MetaStore store;
  ASSERT_TRUE(store.put("p", "k", text(std::string(100, 'x'))));
  ASSERT_TRUE(store.put("p", "k", text(std::string(7, 'x'))));
  ASSERT_TRUE(store.put("p", "k", nullptr));
  ASSERT_TRUE(store.put("p", "k2", text("y")));
  ASSERT_TRUE(store.erase("p", "k"));
  ASSERT_TRUE(store.erase("p", "k2"));
  EXPECT_EQ(store.bytes(), 0u);
  ASSERT_TRUE(store.put("q", "k", text("y")));
  ASSERT_TRUE(store.add_to_set("q", "s", "a"));
  ASSERT_TRUE(store.add_to_set("q", "s", "b"));
  ASSERT_TRUE(store.add_to_set("q", "s", "b"));
  store.clear("q");
  EXPECT_EQ(store.bytes(), 0u);
}

TEST(MetaStore, what_no_pair_can_hold_is_too_large_and_what_this_one_cannot_is_full) {
  MetaStore store({.pair_bytes = 100, .total_bytes = 1000, .entry_bytes = 10});
  const Status large = store.put("p", "k", text(std::string(90, 'x')));
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code, ErrorCode::too_large);
  EXPECT_NE(large.error().text().find("key 'k' of pair 'p' has 101 bytes; a pair may hold 100"), std::string::npos)
      << large.error().text();
  ASSERT_TRUE(store.put("p", "k", text(std::string(89, 'x'))));
  const Status full = store.put("p", "l", text(""));
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, ErrorCode::storage_full);
  EXPECT_NE(full.error().text().find("100 of the pair's 100 are taken"), std::string::npos) << full.error().text();
  EXPECT_EQ(store.add_to_set("p", "s", "").error().code, ErrorCode::storage_full);
  EXPECT_TRUE(store.put("q", "l", text("")));
}

TEST(MetaStore, a_refused_value_leaves_the_old_one_and_the_same_size_always_fits) {
  MetaStore store({.pair_bytes = 100, .total_bytes = 100, .entry_bytes = 10});
  ASSERT_TRUE(store.put("p", "k", text(std::string(89, 'a'))));
  EXPECT_FALSE(store.put("p", "k", text(std::string(90, 'b'))));
  EXPECT_EQ(store.get("p", "k")->front(), 'a');
  EXPECT_TRUE(store.put("p", "k", text(std::string(89, 'c'))));
  EXPECT_EQ(store.get("p", "k")->front(), 'c');
}

TEST(MetaStore, all_pairs_together_are_bounded) {
  MetaStore store({.pair_bytes = 100, .total_bytes = 150, .entry_bytes = 10});
  ASSERT_TRUE(store.put("p", "k", text(std::string(89, 'x'))));
  const Status full = store.put("q", "k", text(std::string(89, 'x')));
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, ErrorCode::storage_full);
  EXPECT_NE(full.error().text().find("100 of the 150 for all pairs are taken"), std::string::npos)
      << full.error().text();
  EXPECT_EQ(store.bytes(), 100u);
  store.clear("p");
  EXPECT_TRUE(store.put("q", "k", text(std::string(89, 'x'))));
}

TEST(MetaStore, bodies_that_are_being_read_are_bounded_with_what_is_stored) {
  MetaStore store({.pair_bytes = 100, .total_bytes = 100, .entry_bytes = 10});
  ASSERT_TRUE(store.put("p", "k", text(std::string(39, 'x'))));
  ASSERT_TRUE(store.hold(40));
  const Status full = store.hold(11);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, ErrorCode::storage_full);
  EXPECT_NE(full.error().text().find("90 of 100 for metadata taken, 40 of them by bodies"), std::string::npos)
      << full.error().text();
  ASSERT_TRUE(store.hold(10));
  store.let_go(40);
  store.let_go(10);
  EXPECT_TRUE(store.hold(50));
}

TEST(MetaStore, lists_of_the_gateway_have_a_bound_of_their_own_and_take_no_room_from_clients) {
  MetaStore store({.pair_bytes = 100, .total_bytes = 100, .list_bytes = 1000, .entry_bytes = 10});
  ASSERT_TRUE(store.put_list("p.e1-1", "l", text(std::string(689, 'x'))));
  EXPECT_EQ(store.list_bytes(), 700u);
  EXPECT_EQ(store.bytes(), 0u);
  EXPECT_EQ(store.get("p.e1-1", "l")->size(), 689u);
  EXPECT_TRUE(store.put("p.e1-1", "k", text(std::string(89, 'x'))));
  const Status full = store.put_list("q.e1-2", "l", text(std::string(290, 'x')));
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, ErrorCode::storage_full);
  for (const char* word : {"list 'l' of group 'q.e1-2' has 301 bytes", "take 700 of the 1000", "disconnect a pair"})
    EXPECT_NE(full.error().text().find(word), std::string::npos) << full.error().text();
  EXPECT_EQ(store.get("q.e1-2", "l"), nullptr);
  EXPECT_TRUE(store.put_list("q.e1-2", "l", text(std::string(289, 'x'))));
  store.clear("p.e1-1");
  EXPECT_EQ(store.list_bytes(), 300u);
  EXPECT_EQ(store.bytes(), 0u);
}

TEST(MetaStore, a_list_that_is_put_again_erased_or_replaced_by_a_client_is_counted_once) {
  MetaStore store({.pair_bytes = 100, .total_bytes = 100, .list_bytes = 100, .entry_bytes = 10});
  ASSERT_TRUE(store.put_list("p", "l", text(std::string(89, 'x'))));
  ASSERT_TRUE(store.put_list("p", "l", text(std::string(89, 'y'))));
  EXPECT_EQ(store.list_bytes(), 100u);
  ASSERT_TRUE(store.put("p", "l", text("z")));
  EXPECT_EQ(store.list_bytes(), 0u);
  EXPECT_EQ(store.bytes(), 12u);
  ASSERT_TRUE(store.put_list("p", "l", text("y")));
  EXPECT_EQ(store.bytes(), 0u);
  EXPECT_TRUE(store.erase("p", "l"));
  EXPECT_EQ(store.list_bytes(), 0u);
}

}  // namespace
}  // namespace weighlock
