// XXH3-128 as the store uses it: README.md, Digests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

struct XXH3_state_s;

namespace weighlock {

inline constexpr std::size_t kChunkBytes = std::size_t{8} << 20;

// The 16 bytes of a digest, big-endian, and their hex.
std::string digest_bytes(std::string_view data);
std::string hex(std::string_view bytes);

// The digest of a run of bytes that comes in pieces of any size.
class RunHash {
 public:
  RunHash();
  void update(std::string_view bytes);
  std::string finish();  // 16 bytes; afterwards it is as new

 private:
  struct FreeState {
    void operator()(XXH3_state_s* state) const;
  };
  void end_chunk();

  std::unique_ptr<XXH3_state_s, FreeState> chunk_;  // on the heap: it must be aligned to 64 bytes
  std::size_t chunk_filled_ = 0;
  std::uint64_t length_ = 0;
  std::string chunks_;
};

}  // namespace weighlock
