#include "weighlock/awex/parts.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "weighlock/awex/predict.hpp"
#include "weighlock/awex/report_fixture.hpp"

namespace weighlock::awex {
namespace {

enum class Adapter { fsdp, sglang, truthful };

// How one side cuts its tensors, which have `other` elements in the dimension that isn't cut.
struct Cut {
  Adapter adapter;
  std::uint64_t pieces = 1;
  std::uint64_t copies = 1;
  bool side_by_side = false;  // copies of a piece are on neighbouring ranks
  bool balanced = false;      // sizes differ by one at most; else rounded up, the last ones short, as torch.chunk does

  std::uint64_t world() const { return pieces * copies; }
  std::uint64_t piece_of(std::uint64_t rank) const { return side_by_side ? rank / copies : rank % pieces; }
  // Whose the n-th row (or column) is: element by element, so that no box of the code under test is trusted.
  std::uint64_t owner_of(std::uint64_t n, std::uint64_t size) const {
    if (!balanced) return n / ((size + pieces - 1) / pieces);
    const std::uint64_t least = size / pieces, longer = size % pieces * (least + 1);
    return n < longer ? n / (least + 1) : size % pieces + (n - longer) / least;
  }
};

constexpr std::uint64_t kOther = 2;

// A rank's own tensor: each element is its number in the whole one.
struct Local {
  Sizes shape;
  std::vector<std::uint64_t> numbers;
};

Local local(std::uint64_t size, std::size_t dim, const Cut& cut, std::uint64_t rank) {
  Local out;
  const std::uint64_t rows = dim == 0 ? size : kOther, columns = dim == 0 ? kOther : size;
  std::uint64_t own = 0;
  for (std::uint64_t n = 0; n < size; ++n) own += cut.owner_of(n, size) == cut.piece_of(rank);
  for (std::uint64_t i = 0; i < rows; ++i)
    for (std::uint64_t j = 0; j < columns; ++j)
      if (cut.owner_of(dim == 0 ? i : j, size) == cut.piece_of(rank)) out.numbers.push_back(i * columns + j);
  out.shape = dim == 0 ? Sizes{own, kOther} : Sizes{kOther, own};
  return out;
}

std::string name_of(std::uint64_t size) {
  return fmt::format("w{:03}", size);
}

Told told(std::uint64_t size, std::size_t dim, const Cut& cut, std::uint64_t rank) {
  const Sizes whole = dim == 0 ? Sizes{size, kOther} : Sizes{kOther, size};
  Told one{name_of(size), whole, local(size, dim, cut, rank).shape, {0, 0}};
  one.rank = static_cast<int>(rank);
  one.world = static_cast<int>(cut.world());
  one.shards = static_cast<int>(cut.pieces);
  one.dim = static_cast<int>(dim);
  const std::uint64_t place = cut.piece_of(rank), own = one.shape[dim];
  if (cut.adapter == Adapter::fsdp) one.offset[dim] = place * (size / cut.pieces);
  if (cut.adapter == Adapter::sglang) {
    one.offset[dim] = place * own;
    one.whole[dim] = own * cut.pieces;
  }
  if (cut.adapter == Adapter::truthful)
    while (one.offset[dim] < size && cut.owner_of(one.offset[dim], size) < place) ++one.offset[dim];
  return one;
}

// What one rank's tensor holds after the transfer, of which `moved` says who copies what.
std::string wrong_elements(const Repaired& lists, const Plan& plan, std::size_t dim, const Cut& train, const Cut& infer,
                           std::uint64_t first_size) {
  std::vector<std::vector<Local>> written(infer.world());
  std::vector<std::vector<Local>> held(train.world());
  const auto fill = [&](std::vector<std::vector<Local>>& side, const Cut& cut, bool blank) {
    for (std::uint64_t rank = 0; rank < cut.world(); ++rank)
      for (std::size_t t = 0; t < lists.train.tensors.size(); ++t) {
        side[rank].push_back(local(first_size + t, dim, cut, rank));
        if (blank) std::fill(side[rank].back().numbers.begin(), side[rank].back().numbers.end(), ~std::uint64_t{0});
      }
  };
  fill(held, train, false);
  fill(written, infer, true);
  for (const Operation& op : plan.operations) {
    const Local& from = held[op.send_rank - infer.world()][op.tensor];
    Local& to = written[op.recv_rank][op.tensor];
    const Extents sent = send_offset(lists, op), received = recv_offset(lists, op);
    for (std::uint64_t i = 0; i < op.part.shape[0]; ++i)
      for (std::uint64_t j = 0; j < op.part.shape[1]; ++j)
        to.numbers.at((received[0] + i) * to.shape[1] + received[1] + j) =
            from.numbers.at((sent[0] + i) * from.shape[1] + sent[1] + j);
  }
  for (std::uint64_t rank = 0; rank < infer.world(); ++rank)
    for (std::size_t t = 0; t < lists.train.tensors.size(); ++t)
      if (written[rank][t].numbers != local(first_size + t, dim, infer, rank).numbers)
        return fmt::format("rank {} has wrong elements of {}", rank, name_of(first_size + t));
  return "";
}

// "" if after a transfer of tensors of all those sizes each element lies where it belongs.
std::string problem(const Cut& train, const Cut& infer, std::size_t dim, std::uint64_t first, std::uint64_t last) {
  std::vector<std::vector<Told>> trainers(train.world()), engine(1);
  for (std::uint64_t size = first; size <= last; ++size) {
    for (std::uint64_t rank = 0; rank < train.world(); ++rank) trainers[rank].push_back(told(size, dim, train, rank));
    for (std::uint64_t rank = 0; rank < infer.world(); ++rank) engine[0].push_back(told(size, dim, infer, rank));
  }
  const Result<std::vector<Report>> t = reports(Side::train, trainers), i = reports(Side::infer, engine);
  if (!t || !i) return t ? i.error().text() : t.error().text();
  const Result<Repaired> lists =
      repair(*t, *i, {static_cast<std::uint32_t>(train.world()), static_cast<std::uint32_t>(infer.world()), 1});
  if (!lists) return lists.error().text();
  if (lists->train.tensors.size() != last - first + 1) return "tensors are missing";
  const Plan plan = predict(*lists);
  if (const Status proven = prove(*lists, plan); !proven) return proven.error().text();
  return wrong_elements(*lists, plan, dim, train, infer, first);
}

const Cut kOneRank{Adapter::truthful};

TEST(Parts, each_row_or_column_of_any_size_reaches_its_tensor_parallel_rank) {
  for (const std::uint64_t ranks : {2, 3, 4, 5, 7, 8, 16})
    for (const std::size_t dim : {0, 1})
      for (const bool balanced : {false, true})
        EXPECT_EQ(problem(kOneRank, {Adapter::sglang, ranks, 1, false, balanced}, dim, 1, 399), "")
            << ranks << " ranks, dimension " << dim << (balanced ? ", balanced" : "");
}

TEST(Parts, each_row_or_column_of_any_size_comes_from_the_rank_that_fully_sharded_training_gave_it_to) {
  for (const std::uint64_t ranks : {2, 3, 4, 5, 7, 8, 16})
    for (const std::size_t dim : {0, 1})
      for (const auto& [copies, side_by_side] : {std::pair{1, false}, std::pair{2, false}, std::pair{3, true}})
        EXPECT_EQ(
            problem({Adapter::fsdp, ranks, static_cast<std::uint64_t>(copies), side_by_side}, kOneRank, dim, 1, 150),
            "")
            << ranks << " ranks, " << copies << " copies, dimension " << dim;
}

TEST(Parts, uneven_rows_go_from_uneven_trainers_to_uneven_engines) {
  for (const auto& [trainers, ranks] : {std::pair{8, 8}, std::pair{5, 8}, std::pair{7, 4}, std::pair{3, 16}})
    for (const std::size_t dim : {0, 1})
      EXPECT_EQ(problem({Adapter::fsdp, static_cast<std::uint64_t>(trainers)},
                        {Adapter::sglang, static_cast<std::uint64_t>(ranks)}, dim, 1, 200),
                "")
          << trainers << " to " << ranks << ", dimension " << dim;
}

// Data-parallel attention: each of several groups of ranks has the whole.
TEST(Parts, each_copy_of_uneven_rows_of_an_engine_gets_its_own) {
  for (const std::uint64_t ranks : {3, 4, 8})
    for (const bool side_by_side : {false, true})
      EXPECT_EQ(problem({Adapter::fsdp, 3}, {Adapter::sglang, ranks, 2, side_by_side}, 0, 1, 200), "")
          << ranks << " ranks" << (side_by_side ? ", copies side by side" : "");
}

TEST(Parts, true_offsets_of_uneven_parts_are_taken_as_they_are) {
  for (const bool balanced : {false, true})
    EXPECT_EQ(problem({Adapter::truthful, 5, 1, false, balanced}, {Adapter::truthful, 8, 2, true, balanced}, 0, 1, 200),
              "");
}

// One tensor "w" along dimension 0, of which rank i says `offsets[i]` and `sizes[i]`.
std::string refusal(std::uint64_t rows, const Sizes& offsets, const Sizes& sizes, int shards, bool on_trainers) {
  std::vector<Told> parts;
  for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
    Told one{"w", {rows, 4}, {sizes[rank], 4}, {offsets[rank], 0}};
    one.rank = static_cast<int>(rank);
    one.world = static_cast<int>(sizes.size());
    one.shards = shards;
    parts.push_back(one);
  }
  std::vector<std::vector<Told>> trainers{{whole_of("w", {rows, 4}, 0, 1)}}, engine{parts};
  if (on_trainers) {
    trainers.clear();
    for (const Told& one : parts) trainers.push_back({one});
    engine = {{whole_of("w", {rows, 4}, 0, 1)}};
  }
  const Result<std::vector<Report>> t = reports(Side::train, trainers), i = reports(Side::infer, engine);
  if (!t || !i) return "not parsed";
  const auto ranks = static_cast<std::uint32_t>(sizes.size());
  const Result<Repaired> lists = repair(*t, *i, {on_trainers ? ranks : 1, on_trainers ? 1 : ranks, 1});
  return lists ? "" : lists.error().text();
}

void expect_told(const std::string& text, const std::vector<std::string_view>& words) {
  for (const std::string_view word : words) EXPECT_NE(text.find(word), std::string::npos) << word << "\n" << text;
}

TEST(Parts, offsets_that_no_adapter_reports_are_refused_with_what_is_wrong) {
  expect_told(refusal(10, {0, 6}, {5, 5}, 2, true), {"tensor 'w' of shape [10,4]", "train ranks 0..1", "is outside"});
  expect_told(refusal(12, {0, 6}, {5, 5}, 2, true), {"tensor 'w'", "hole [5,6)"});
  expect_told(refusal(10, {0, 0}, {5, 5}, 2, true), {"tensor 'w'", "hole [5,10)"});
  expect_told(refusal(10, {0, 7, 3}, {4, 3, 3}, 3, false), {"tensor 'w'", "inference ranks 0..2", "overlap"});
  expect_told(refusal(10, {0, 3, 9, 9}, {3, 3, 3, 1}, 4, true), {"tensor 'w'", "outside"});
}

// Rank 2 begins at 2 if that is true, at 5 if it is twice its own row.
TEST(Parts, offsets_that_are_true_or_a_guess_with_another_order_are_refused_with_both) {
  for (const bool on_trainers : {false, true})
    expect_told(
        refusal(6, {0, 3, 2}, {2, 3, 1}, 3, on_trainers),
        {"tensor 'w' of shape [6,4] can be read in two ways", "ranks 0..2", "rank 1 holds [3,0]+[3,4] as reported",
         "[2,0]+[3,4] if offsets are place x own size", "report where each part begins"});
}

// FSDP 2 x TP 2: torch gives rank 1 the second half of its first cut, [4, 6), and the adapter says 2.
TEST(Parts, rows_that_fsdp_and_tensor_parallelism_both_cut_are_refused) {
  const auto trainers = [](std::vector<std::int64_t> tp_ranks, int cp_size) {
    std::vector<std::vector<Told>> out;
    for (std::size_t rank = 0; rank < tp_ranks.size(); ++rank) {
      Told one = fsdp_of("w", {8, 4}, static_cast<int>(rank), static_cast<int>(tp_ranks.size()));
      one.tp_rank = tp_ranks[rank];
      one.cp_size = cp_size;
      out.push_back({one});
    }
    return out;
  };
  const auto told_of = [](const std::vector<std::vector<Told>>& train) {
    const Result<std::vector<Report>> t = reports(Side::train, train),
                                      i = reports(Side::infer, {{whole_of("w", {8, 4}, 0, 1)}});
    const Result<Repaired> lists = repair(*t, *i, {static_cast<std::uint32_t>(train.size()), 1, 1});
    return lists ? std::string() : lists.error().text();
  };
  expect_told(told_of(trainers({0, 1, 0, 1}, 1)),
              {"tensor 'w' of shape [8,4]", "train ranks 0..3", "FSDP and tensor parallelism have both cut it"});
  EXPECT_EQ(told_of(trainers({0, 1, 0, 1}, 2)), "");  // sequence parallelism, which cuts no weights
  EXPECT_EQ(told_of(trainers({0, 0, 0, 0}, 1)), "");
  EXPECT_EQ(told_of(trainers({0, 1, 2, 3}, 1)), "");
}

}  // namespace
}  // namespace weighlock::awex
