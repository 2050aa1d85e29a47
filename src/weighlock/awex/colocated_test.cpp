#include "weighlock/awex/colocated.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "weighlock/awex/repair_fixture.hpp"

namespace weighlock::awex {
namespace {

using Pairs = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

Pairs never_meeting(std::uint32_t ranks) {
  Pairs out;
  for (std::uint32_t a = 0; a < ranks; ++a)
    for (std::uint32_t b = 0; b < ranks; ++b)
      if (!ranks_meet(a, b, ranks)) out.emplace_back(a, b);
  return out;
}

// Of 1, 2, ... ranks, as the transport of awex 0.9.0 tells which peers it turns to in each round.
TEST(Colocated, ranks_that_the_real_package_never_brings_together_are_known) {
  constexpr std::array<std::size_t, 32> kNever = {0,  0,  2,  0,  4,  4,  10, 0,  8,  10, 20, 8,  20, 26, 38,  0,
                                                  16, 26, 40, 20, 40, 50, 68, 16, 40, 58, 82, 48, 74, 90, 120, 0};
  for (std::uint32_t ranks = 1; ranks <= kNever.size(); ++ranks)
    EXPECT_EQ(never_meeting(ranks).size(), kNever[ranks - 1]) << ranks;
  EXPECT_EQ(never_meeting(3), (Pairs{{1, 2}, {2, 1}}));
  EXPECT_EQ(never_meeting(6), (Pairs{{1, 2}, {2, 1}, {4, 5}, {5, 4}}));
  EXPECT_EQ(never_meeting(7), (Pairs{{1, 2}, {2, 1}, {3, 6}, {4, 5}, {4, 6}, {5, 4}, {5, 6}, {6, 3}, {6, 4}, {6, 5}}));
}

// "" for what is right: reached, proven, and no byte is sent twice.
std::string colocated_problem(const Workers& train, const Workers& infer, std::uint32_t engine_ranks) {
  const Result<Repaired> result = repaired(train, infer, engine_ranks, 0, true);
  if (!result) return result.error().text();
  if (const Status reached = check_reach(*result); !reached) return reached.error().text();
  const Plan plan = predict(*result);
  if (const Status proven = prove(*result, plan); !proven) return proven.error().text();
  const Statistics told = statistics(*result, plan);
  return told.total_sent == told.needed ? "" : "bytes are sent that nobody needs";
}

// Each name on the ranks that `holds` says, whole.
template <typename Holds>
Workers whole_on(int ranks, const std::vector<std::string>& names, Holds holds) {
  Workers all(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank)
    for (int i = 0; i < static_cast<int>(names.size()); ++i)
      if (holds(rank, i))
        all[static_cast<std::size_t>(rank)].push_back(
            whole_of(names[static_cast<std::size_t>(i)], {8, 4}, rank, ranks));
  return all;
}

std::vector<Told> split_engine(const std::vector<std::string>& names, int tp) {
  std::vector<Told> told;
  for (int rank = 0; rank < tp; ++rank)
    for (const std::string& name : names)
      told.push_back(tp == 1 ? whole_of(name, {8, 4}, 0, 1) : split_of(name, {8, 4}, 0, rank, tp));
  return told;
}

TEST(Colocated, rows_that_no_rank_would_ever_send_are_refused_with_tensor_and_ranks) {
  const Workers infer = engines(3, {whole_of("w", {6, 4}, 0, 1)});
  expect_told(colocated_problem(fsdp("w", {6, 4}, 3), infer, 1),
              {"parts of 1 tensor would never be sent", "[4,0]+[2,4] of tensor 'w'", "train rank 2 to inference rank 1",
               "of 3 ranks", "power of two", "mode \"disk\""});
  EXPECT_EQ(problem(fsdp("w", {6, 4}, 3), infer, 1), "");  // not colocated: all ranks are in one group
}

TEST(Colocated, any_layout_of_a_power_of_two_of_ranks_is_taken) {
  for (const int ranks : {1, 2, 4, 8})
    EXPECT_EQ(colocated_problem(fsdp("w", {16, 4}, ranks), engines(ranks, {whole_of("w", {16, 4}, 0, 1)}), 1), "")
        << ranks;
}

TEST(Colocated, readers_of_copies_get_senders_that_reach_them) {
  const std::vector<std::string> names{"a", "b", "c", "d", "e", "f", "g", "h"};
  const auto all = [](int, int) { return true; };
  for (const int ranks : {3, 5, 6, 7, 11, 12, 24})
    EXPECT_EQ(colocated_problem(whole_on(ranks, names, all), engines(ranks, split_engine(names, 1)), 1), "") << ranks;
  EXPECT_EQ(colocated_problem(whole_on(6, names, all), engines(3, split_engine(names, 2)), 2), "");
  EXPECT_EQ(colocated_problem(whole_on(12, names, all), engines(3, split_engine(names, 4)), 4), "");
  // Two pipeline stages of copies.
  const auto stages = [](int rank, int i) { return (rank < 6) == (i < 4); };
  EXPECT_EQ(colocated_problem(whole_on(12, names, stages), engines(6, split_engine(names, 2)), 2), "");
}

// Ranks 4 and 5, which never meet, alone hold "c", and their engine splits it: each must send to itself.
TEST(Colocated, an_engine_that_no_holder_reaches_whole_reads_rank_by_rank) {
  const std::vector<std::string> names{"a", "b", "c"};
  const auto stages = [](int rank, int i) { return rank / 2 == i; };
  EXPECT_EQ(colocated_problem(whole_on(6, names, stages), engines(3, split_engine(names, 2)), 2), "");
}

TEST(Colocated, what_one_rank_alone_has_and_another_needs_that_it_never_meets_is_refused) {
  const std::vector<std::string> names{"a", "b", "c"};
  const auto each_its_own = [](int rank, int i) { return rank == i; };
  expect_told(colocated_problem(whole_on(3, names, each_its_own), engines(3, split_engine(names, 1)), 1),
              {"parts of 2 tensors would never be sent", "of tensor 'b', from train rank 1 to inference rank 2"});
}

}  // namespace
}  // namespace weighlock::awex
