#include "weighlock/store/hash.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

#include "weighlock/core/check.hpp"

namespace weighlock {
namespace {

std::string canonical(XXH128_hash_t hash) {
  XXH128_canonical_t bytes = {};
  XXH128_canonicalFromHash(&bytes, hash);
  return std::string(reinterpret_cast<const char*>(bytes.digest), sizeof bytes.digest);
}

}  // namespace

std::string digest_bytes(std::string_view data) {
  return canonical(XXH3_128bits(data.data(), data.size()));
}

std::string hex(std::string_view bytes) {
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

void RunHash::FreeState::operator()(XXH3_state_s* state) const {
  XXH3_freeState(state);
}

RunHash::RunHash() : chunk_(XXH3_createState()) {
  WEIGHLOCK_CHECK(chunk_ != nullptr, "memory for a hash's state");
  XXH3_128bits_reset(chunk_.get());
}

void RunHash::update(std::string_view bytes) {
  length_ += bytes.size();
  while (!bytes.empty()) {
    const std::size_t step = std::min(bytes.size(), kChunkBytes - chunk_filled_);
    XXH3_128bits_update(chunk_.get(), bytes.data(), step);
    chunk_filled_ += step;
    bytes.remove_prefix(step);
    if (chunk_filled_ == kChunkBytes) end_chunk();
  }
}

void RunHash::end_chunk() {
  chunks_ += canonical(XXH3_128bits_digest(chunk_.get()));
  XXH3_128bits_reset(chunk_.get());
  chunk_filled_ = 0;
}

std::string RunHash::finish() {
  if (chunk_filled_ > 0) end_chunk();
  std::string text;
  for (int i = 0; i < 8; ++i) text += static_cast<char>(length_ >> (8 * i) & 0xff);
  const std::string digest = digest_bytes(text + chunks_);
  length_ = 0;
  chunks_.clear();
  return digest;
}

}  // namespace weighlock
