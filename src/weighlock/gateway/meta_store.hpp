// Metadata that workers leave for each other (the compatible API's /weight_meta): keys and sets of each pair, in
// memory.
//
// A value is the finished answer, shared and never changed: any number of readers are sent the same bytes. Pairs need
// not be connected. Values and sets have names of their own. All pairs together and each alone are bounded; every entry
// counts its bytes and `entry_bytes` more, so that small ones are bounded, too. The lists that the gateway itself puts
// there for AWEX workers are as large as models are: they have a bound of their own and take no room from clients.
//
// Thread rule: loop thread only; a Text may be read anywhere.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "weighlock/core/limits.hpp"
#include "weighlock/core/result.hpp"

namespace weighlock {

class MetaStore {
 public:
  using Text = std::shared_ptr<const std::string>;
  struct Limits {
    std::size_t pair_bytes = limits::kMetaBytesPerPairMax;
    std::size_t total_bytes = limits::kMetaBytesMax;
    std::size_t list_bytes = limits::kListBytesMax;  // of all pairs' lists
    std::size_t entry_bytes = limits::kMetaEntryBytes;
  };

  MetaStore() = default;
  explicit MetaStore(Limits limits) : limits_(limits) {}

  // Replaces what the key had; when there is no room it keeps that. `text` null: the key exists without a value.
  // Errors: too_large for what no pair can hold, storage_full for what this one can't hold now.
  Status put(const std::string& pair, const std::string& key, Text text);
  // One of the gateway's own lists, under a name that is a group's. Error: storage_full.
  Status put_list(const std::string& group, const std::string& key, Text text);
  std::size_t list_bytes_max() const { return limits_.list_bytes; }
  // Null for a key that is absent or has no value.
  Text get(const std::string& pair, const std::string& key) const;
  // Whether there was such a key.
  bool erase(const std::string& pair, const std::string& key);

  // Adding again changes nothing. Errors as `put`.
  Status add_to_set(const std::string& pair, const std::string& set, const std::string& member);
  std::size_t set_size(const std::string& pair, const std::string& set) const;

  void clear(const std::string& pair);

  // Bodies that are still being read take memory, too: `hold` before, `let_go` of the same after. Error: storage_full
  // when they and what is stored would be more than all pairs may hold.
  Status hold(std::size_t bytes);
  void let_go(std::size_t bytes);

  // As counted against the limits: what clients put, and the lists.
  std::size_t bytes() const { return bytes_; }
  std::size_t list_bytes() const { return list_bytes_; }

 private:
  struct Value {
    Text text;
    bool is_list = false;
  };
  struct PairData {
    std::map<std::string, Value> values;
    std::map<std::string, std::set<std::string>> sets;
    std::size_t bytes = 0;  // without lists
  };
  Status reserve(const std::string& pair, std::size_t now, std::size_t then, const std::string& what);
  void release_if_empty(const std::string& pair);
  std::size_t cost(const std::string& key, const Text& text) const;
  const Value* find(const std::string& pair, const std::string& key) const;
  void forget(PairData& pair, const std::string& key, const Value& value);

  Limits limits_;
  std::map<std::string, PairData> pairs_;
  std::size_t bytes_ = 0;
  std::size_t list_bytes_ = 0;
  std::size_t held_ = 0;
};

}  // namespace weighlock
