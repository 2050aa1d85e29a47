// Readiness of descriptors for a Loop: an epoll set of its own behind one wait of Asio's.
//
// Asio's own waits cost a system call for each event of each descriptor; here a descriptor stays registered for as long
// as somebody waits, and one wake-up serves all that are ready. Internal to runtime/: others use watch.hpp, which has
// the contract. Loop thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>

#include "weighlock/runtime/asio_loop.hpp"

namespace weighlock {

class Poller {
 public:
  using Id = std::uint64_t;

  explicit Poller(boost::asio::io_context& context);
  ~Poller();

  Id add(int descriptor);
  void when_readable(Id id, std::function<void()> ready);
  void when_writable(Id id, std::function<void()> ready);
  void remove(Id id);  // before the descriptor is closed

 private:
  struct Entry {
    int descriptor = -1;
    std::uint32_t registered = 0;  // what the kernel watches; 0: not in the set
    std::function<void()> readable;
    std::function<void()> writable;
  };

  void set(Id id, std::function<void()> Entry::*callback, std::uint32_t events, std::function<void()> ready);
  void call(Id id, std::function<void()> Entry::*callback);
  void watch_for(Id id, Entry& entry, std::uint32_t events);
  void on_ready(Id id, std::uint32_t events);
  void serve();
  void wait_or_rest();

  struct Set;  // the epoll set, which is readable when one of its descriptors is ready
  std::unique_ptr<Set> set_;
  std::unordered_map<Id, Entry> entries_;
  Id next_ = 1;
  int armed_ = 0;  // callbacks that wait; while there are any, the loop has something to do
  bool waiting_ = false;
};

}  // namespace weighlock
