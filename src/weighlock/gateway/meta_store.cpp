#include "weighlock/gateway/meta_store.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "weighlock/core/check.hpp"
#include "weighlock/core/words.hpp"

namespace weighlock {

std::size_t MetaStore::cost(const std::string& key, const Text& text) const {
  return key.size() + (text ? text->size() : 0) + limits_.entry_bytes;
}

// Accounts for an entry that grows from `now` to `then` bytes, if there is room.
Status MetaStore::reserve(const std::string& pair, std::size_t now, std::size_t then, const std::string& what) {
  const std::string name = printable(pair);
  if (then > limits_.pair_bytes)
    return Error{ErrorCode::too_large, fmt::format("metadata {} of pair '{}' has {} bytes; a pair may hold {}", what,
                                                   name, then, limits_.pair_bytes)};
  const auto found = pairs_.find(pair);
  const std::size_t held = (found == pairs_.end() ? 0 : found->second.bytes) - now;
  if (then > limits_.pair_bytes - held)
    return Error{ErrorCode::storage_full,
                 fmt::format("metadata {} of pair '{}' needs {} bytes, and {} of the pair's {} are taken; delete keys "
                             "that nobody reads any more, or disconnect the pair",
                             what, name, then, held, limits_.pair_bytes)};
  const std::size_t all = bytes_ - now;
  if (then > limits_.total_bytes - all)
    return Error{
        ErrorCode::storage_full,
        fmt::format("metadata {} of pair '{}' needs {} bytes, and {} of the {} for all pairs are taken; delete "
                    "keys that nobody reads any more, or disconnect pairs",
                    what, name, then, all, limits_.total_bytes)};
  pairs_[pair].bytes = held + then;
  bytes_ = all + then;
  return {};
}

const MetaStore::Value* MetaStore::find(const std::string& pair, const std::string& key) const {
  const auto found = pairs_.find(pair);
  if (found == pairs_.end()) return nullptr;
  const auto held = found->second.values.find(key);
  return held == found->second.values.end() ? nullptr : &held->second;
}

// The bytes of a value that goes.
void MetaStore::forget(PairData& pair, const std::string& key, const Value& value) {
  const std::size_t freed = cost(key, value.text);
  if (value.is_list) {
    list_bytes_ -= freed;
    return;
  }
  pair.bytes -= freed;
  bytes_ -= freed;
}

Status MetaStore::put(const std::string& pair, const std::string& key, Text text) {
  const Value* held = find(pair, key);
  const std::size_t now = held && !held->is_list ? cost(key, held->text) : 0;
  if (Status room = reserve(pair, now, cost(key, text), fmt::format("key '{}'", printable(key))); !room) return room;
  if (held && held->is_list) forget(pairs_[pair], key, *held);
  pairs_[pair].values[key] = {std::move(text), false};
  return {};
}

Status MetaStore::put_list(const std::string& group, const std::string& key, Text text) {
  const Value* held = find(group, key);
  const std::size_t others = list_bytes_ - (held && held->is_list ? cost(key, held->text) : 0);
  const std::size_t then = cost(key, text);
  if (then > limits_.list_bytes - std::min(limits_.list_bytes, others))
    return Error{ErrorCode::storage_full,
                 fmt::format("list '{}' of group '{}' has {} bytes, and the lists of all AWEX groups take {} of the {} "
                             "that a gateway keeps for them; disconnect a pair that isn't updated any more, or serve "
                             "this one by a gateway of its own",
                             printable(key), printable(group), then, others, limits_.list_bytes)};
  PairData& pair = pairs_[group];
  if (held) forget(pair, key, *held);
  list_bytes_ += then;
  pair.values[key] = {std::move(text), true};
  return {};
}

MetaStore::Text MetaStore::get(const std::string& pair, const std::string& key) const {
  const Value* held = find(pair, key);
  return held ? held->text : nullptr;
}

bool MetaStore::erase(const std::string& pair, const std::string& key) {
  const auto found = pairs_.find(pair);
  if (found == pairs_.end()) return false;
  const auto held = found->second.values.find(key);
  if (held == found->second.values.end()) return false;
  forget(found->second, key, held->second);
  found->second.values.erase(held);
  release_if_empty(pair);
  return true;
}

Status MetaStore::add_to_set(const std::string& pair, const std::string& set, const std::string& member) {
  const auto found = pairs_.find(pair);
  bool is_new = true;
  if (found != pairs_.end()) {
    const auto held = found->second.sets.find(set);
    is_new = held == found->second.sets.end();
    if (!is_new && held->second.count(member) > 0) return {};
  }
  const std::size_t bytes = member.size() + limits_.entry_bytes + (is_new ? set.size() + limits_.entry_bytes : 0);
  if (Status room = reserve(pair, 0, bytes, fmt::format("set '{}'", printable(set))); !room) return room;
  pairs_[pair].sets[set].insert(member);
  return {};
}

std::size_t MetaStore::set_size(const std::string& pair, const std::string& set) const {
  const auto found = pairs_.find(pair);
  if (found == pairs_.end()) return 0;
  const auto held = found->second.sets.find(set);
  return held == found->second.sets.end() ? 0 : held->second.size();
}

void MetaStore::clear(const std::string& pair) {
  const auto found = pairs_.find(pair);
  if (found == pairs_.end()) return;
  bytes_ -= found->second.bytes;
  for (const auto& [key, value] : found->second.values)
    if (value.is_list) list_bytes_ -= cost(key, value.text);
  pairs_.erase(found);
}

Status MetaStore::hold(std::size_t bytes) {
  if (bytes > limits_.total_bytes - std::min(limits_.total_bytes, bytes_ + held_))
    return Error{
        ErrorCode::storage_full,
        fmt::format("a body of {} bytes finds {} of {} for metadata taken, {} of them by bodies that are being "
                    "read; delete keys that nobody reads any more, or try again later",
                    bytes, bytes_ + held_, limits_.total_bytes, held_)};
  held_ += bytes;
  return {};
}

void MetaStore::let_go(std::size_t bytes) {
  WEIGHLOCK_CHECK(bytes <= held_, "no more is let go than was held");
  held_ -= bytes;
}

void MetaStore::release_if_empty(const std::string& pair) {
  const auto found = pairs_.find(pair);
  if (!found->second.values.empty() || !found->second.sets.empty()) return;
  WEIGHLOCK_CHECK(found->second.bytes == 0, "an empty pair holds no bytes");
  pairs_.erase(found);
}

}  // namespace weighlock
