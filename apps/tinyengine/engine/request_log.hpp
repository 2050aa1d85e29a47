// What was asked of an engine or a trainer rank, in order, with what became of it; read by tests and the demo.
//
// Loop thread only. Bounded: the oldest entries go when there are more than kEntriesMax.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "weighlock/core/http.hpp"
#include "weighlock/core/json.hpp"
#include "weighlock/core/time.hpp"

namespace weighlock::tiny {

class RequestLog {
 public:
  static constexpr std::size_t kEntriesMax = 4096;
  static constexpr std::size_t kBodyBytesMax = 4096;  // kept of each body

  // The entry's number, from 0.
  std::uint64_t begin(Instant now, const HttpRequest& request, std::string fault);
  void end(std::uint64_t number, Instant now, int status);  // 0: it ended without an answer

  // A load is in flight from its arrival until it has ended inside the engine, whether or not its caller still waits.
  // The later of two that overlap is flagged.
  void load_begins(std::uint64_t number);
  void load_ends();
  void forget_loads() { loads_in_flight_ = 0; }  // the engine died

  json::array listing() const;
  void clear() { entries_.clear(); }

 private:
  struct Entry {
    std::uint64_t number = 0;
    Instant began;
    Instant ended;
    std::string method, target, body, fault;
    int status = -1;  // -1: not ended
    bool overlap = false;
  };
  Entry* find(std::uint64_t number);

  std::deque<Entry> entries_;
  std::uint64_t next_ = 0;
  std::size_t loads_in_flight_ = 0;
};

}  // namespace weighlock::tiny
