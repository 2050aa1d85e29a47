#include "weighlock/awex/shared_names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "weighlock/core/words.hpp"

namespace weighlock::awex {
namespace {

constexpr std::string_view kHead = "lm_head.weight", kEmbedding = "model.embed_tokens.weight";

std::string told(std::string_view name, const Row& row) {
  return fmt::format("'{}' ({} {})", printable(name), printable(row.dtype), text(row.shape));
}

// The first part of `alone` that can't be memory of `written`: its rank has none of that, or another part.
std::optional<Held> part_of_its_own(std::span<const Held> alone, std::span<const Held> written) {
  for (const Held& one : alone) {
    if (elements(one.box.shape) == 0) continue;
    const auto same = std::lower_bound(written.begin(), written.end(), one.rank,
                                       [](const Held& held, std::uint32_t rank) { return held.rank < rank; });
    if (same == written.end() || same->rank != one.rank || !(same->box == one.box)) return one;
  }
  return std::nullopt;
}

}  // namespace

std::string_view tied_to(std::string_view name) {
  if (name == kHead) return kEmbedding;
  return name == kEmbedding ? kHead : std::string_view();
}

SharedNames share_names(const Names& names, const Table& train, const Table& infer, Problems& problems) {
  SharedNames out;
  std::vector<std::uint32_t> order(names.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return names[a] < names[b]; });
  std::map<std::string_view, std::uint32_t> may_be_tied;  // of those on both sides
  for (const std::uint32_t id : order) {
    if (!train.rows[id].present || !infer.rows[id].present) continue;
    out.common.push_back(id);
    if (!tied_to(names[id]).empty()) may_be_tied.emplace(names[id], id);
  }
  for (const std::uint32_t id : order) {
    const bool of_train = train.rows[id].present, of_infer = infer.rows[id].present;
    if (of_train == of_infer) continue;
    const auto tied = may_be_tied.find(tied_to(names[id]));
    if (of_train || tied == may_be_tied.end()) {
      problems.add(
          fmt::format("tensor '{}' is on {} {} and on no {}: both sides must name the same tensors (one model, one "
                      "naming)",
                      printable(names[id]), ranks_word(of_train ? Side::train : Side::infer),
                      (of_train ? train : infer).rows[id].rank, of_train ? "inference rank" : "train rank"));
      continue;
    }
    out.infer_only.push_back(id);
    const Row& alone = infer.rows[id];
    const Row& written = infer.rows[tied->second];
    if (alone.dtype != written.dtype || !(alone.shape == written.shape)) {
      problems.add(fmt::format(
          "tensor {} is on inference ranks alone and can't be tied to {}, so nothing would write it: have trainers "
          "report it, or tie it in the engine",
          told(names[id], alone), told(names[tied->second], written)));
      continue;
    }
    const std::optional<Held> own = part_of_its_own(infer.of(alone), infer.of(written));
    if (!own) continue;
    problems.add(fmt::format(
        "tensor '{}' is on inference ranks alone, and rank {} holds {} of it and not the same of '{}': so it is memory "
        "of its own, as in an engine whose pipeline stages split a tied model, and nothing would write it: start the "
        "engine without pipeline parallelism (pp_size 1), or have trainers report it",
        printable(names[id]), own->rank, text(own->box), printable(names[tied->second])));
  }
  return out;
}

}  // namespace weighlock::awex
