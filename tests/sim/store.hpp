// Shared storage, as the machine sees it: directories, what is really in each, and how preparing and sealing go.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "sim/fault.hpp"
#include "sim/scheduler.hpp"
#include "weighlock/protocol/effect.hpp"
#include "weighlock/protocol/event.hpp"

namespace weighlock::sim {

inline constexpr std::int64_t kStartContent = 0;  // what every engine starts with
inline constexpr const char* kStartPath = "/models/start";

struct Directory {
  std::string path;
  std::int64_t content = -1;  // a number for the bytes in it: equal numbers, equal bytes; -1: nothing whole
  bool ours = true;
  std::string save_path;
  bool blind = false;  // can't be seen from the gateway
  bool sealed = false;
  bool discarded = false;
  bool layout_changed = false;
  bool vacuous = false;  // none of the leading values differ from the version before
  int saves_done = 0;
};

struct StoreSettings {  // of one save_path
  bool blind = false;
  bool start_readable = true;
  bool calm = false;  // no fault strikes here
};

class Store {
 public:
  using Post = std::function<void(std::size_t gateway, protocol::EventBody)>;
  Store(Random& random, Faults& faults, Scheduler& scheduler, Post post);
  void add_save_path(const std::string& path, StoreSettings settings) { settings_[path] = settings; }

  // The next job of the gateway's ends with an error.
  void fail_next() { fails_next_ = true; }
  void prepare(std::size_t gateway, const protocol::Prepare& effect);
  void seal(std::size_t gateway, const protocol::Seal& effect);
  void digest(std::size_t gateway, const protocol::ComputeDigest& effect);
  void discard(std::size_t gateway, const protocol::Discard& effect);
  // Of bytes that are in no directory.
  std::int64_t new_content() { return next_content_++; }
  // Its jobs go with it.
  void gateway_died(std::size_t gateway) { ++life_[gateway]; }
  // A directory that somebody else finished; returns its path.
  std::string hand_over(const std::string& save_path);
  // One rank has written its part; the last one makes the content whole.
  void rank_saved(const std::string& path, int ranks);

  const Directory* find(const std::string& path) const;
  const std::map<std::string, Directory>& directories() const { return directories_; }

 private:
  // Work of the gateway's own process.
  void job(std::size_t gateway, std::int64_t after, std::function<void()> work);
  bool strikes(Fault fault, const std::string& save_path);
  std::int64_t delay(const std::string& save_path);
  std::map<std::string, StoreSettings> settings_;  // by save_path
  Random& random_;
  Faults& faults_;
  Scheduler& scheduler_;
  Post post_;
  std::map<std::string, Directory> directories_;
  std::int64_t next_content_ = 1;
  std::map<std::size_t, int> life_;  // of the gateways' processes
  bool fails_next_ = false;
};

}  // namespace weighlock::sim
