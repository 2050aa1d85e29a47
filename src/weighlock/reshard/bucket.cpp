#include "weighlock/reshard/bucket.hpp"

#include <algorithm>

namespace weighlock::reshard {

Result<std::vector<std::vector<BucketRun>>> cut_into_buckets(const Side& targets, const Plan& plan,
                                                             std::span<const Operation> operations,
                                                             std::uint64_t bucket_bytes) {
  if (bucket_bytes == 0)
    return Error{ErrorCode::invalid_argument, "a bucket of 0 bytes holds nothing: it needs at least 1"};
  std::vector<std::vector<BucketRun>> buckets;
  std::uint64_t room = 0;
  for (std::uint32_t i = 0; i < operations.size(); ++i) {
    const std::uint64_t bytes =
        plan.elements(operations[i]) * (bits(targets.tensors()[operations[i].tensor].dtype) / 8);
    for (std::uint64_t begin = 0; begin < bytes;) {
      if (room == 0) {
        buckets.emplace_back();
        room = bucket_bytes;
      }
      const std::uint64_t taken = std::min(room, bytes - begin);
      buckets.back().push_back({i, begin, taken});
      begin += taken;
      room -= taken;
    }
  }
  return buckets;
}

}  // namespace weighlock::reshard
