#include "weighlock/reshard/matching.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "weighlock/tensor/quote.hpp"

namespace weighlock::reshard {
namespace {

constexpr std::size_t kNamedMax = 8;  // enough to see what is wrong with the names

// Names, for an error.
class Missing {
 public:
  void add(const std::string& name) {
    if (count_++ < kNamedMax) named_ += fmt::format("{}{}", named_.empty() ? "" : ", ", quote_name(name));
  }
  std::size_t count() const { return count_; }
  std::string text() const {
    return count_ > kNamedMax ? fmt::format("{} and {} more", named_, count_ - kNamedMax) : named_;
  }

 private:
  std::string named_;
  std::size_t count_ = 0;
};

Error bad(std::string message) {
  return Error{ErrorCode::invalid_argument, std::move(message)};
}

Status compare(const Side& sources, const Tensor& source, const Side& targets, const Tensor& target) {
  if (source.shape != target.shape)
    return bad(fmt::format(
        "tensor {}: {} has shape {}, {} has {}: where one side pads it, give both the logical shape "
        "and the padded one beside it",
        quote_name(target.name), sources.name(), shape_text(source.shape), targets.name(), shape_text(target.shape)));
  if (source.dtype != target.dtype)
    return bad(fmt::format("tensor {}: {} has dtype {}, {} has {}: nothing is converted on the way",
                           quote_name(target.name), sources.name(), name(source.dtype), targets.name(),
                           name(target.dtype)));
  return {};
}

}  // namespace

const std::string& source_name(const Tensor& target) {
  return target.source.empty() ? target.name : target.source;
}

Result<Matching> match_tensors(const Side& sources, const Side& targets, bool unused_sources_allowed) {
  Matching out;
  out.source_of.resize(targets.tensors().size(), kNone);
  std::vector<bool> used(sources.tensors().size());
  Missing without_source, without_target;
  for (TensorId t = 0; t < targets.tensors().size(); ++t) {
    const std::optional<TensorId> found = sources.find(source_name(targets.tensors()[t]));
    if (!found) {
      without_source.add(targets.tensors()[t].name);
      continue;
    }
    out.source_of[t] = *found;
    used[*found] = true;
  }
  for (TensorId t = 0; t < used.size(); ++t) {
    if (used[t]) continue;
    ++out.unused_sources;
    if (!unused_sources_allowed) without_target.add(sources.tensors()[t].name);
  }
  if (without_source.count() > 0 || without_target.count() > 0) {
    std::string message;
    if (without_source.count() > 0)
      message = fmt::format("{} tensors of {} aren't in {}: {}", without_source.count(), targets.name(), sources.name(),
                            without_source.text());
    if (without_target.count() > 0)
      message += fmt::format("{}{} tensors of {} aren't in {}: {}", message.empty() ? "" : "; ", without_target.count(),
                             sources.name(), targets.name(), without_target.text());
    return bad(message + ". Both sides must use the same names");
  }
  for (TensorId t = 0; t < out.source_of.size(); ++t) {
    if (Status ok = compare(sources, sources.tensors()[out.source_of[t]], targets, targets.tensors()[t]); !ok)
      return std::move(ok).error();
  }
  out.order.resize(targets.tensors().size());
  std::iota(out.order.begin(), out.order.end(), TensorId{0});
  std::sort(out.order.begin(), out.order.end(),
            [&](TensorId a, TensorId b) { return targets.tensors()[a].name < targets.tensors()[b].name; });
  return out;
}

ShardsByTensor shards_by_tensor(const Side& side) {
  ShardsByTensor out;
  std::vector<std::uint32_t> next(side.tensors().size() + 1);
  for (const Shard& shard : side.shards()) ++next[shard.tensor + 1];
  std::partial_sum(next.begin(), next.end(), next.begin());
  out.ends.assign(next.begin() + 1, next.end());
  out.shards.resize(side.shards().size());
  for (ShardId s = 0; s < side.shards().size(); ++s) out.shards[next[side.shards()[s].tensor]++] = s;
  return out;
}

}  // namespace weighlock::reshard
