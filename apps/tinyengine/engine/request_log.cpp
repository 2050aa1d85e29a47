#include "tinyengine/engine/request_log.hpp"

#include <algorithm>

namespace weighlock::tiny {

std::uint64_t RequestLog::begin(Instant now, const HttpRequest& request, std::string fault) {
  Entry entry;
  entry.number = next_++;
  entry.began = entry.ended = now;
  entry.method = request.method;
  entry.target = request.target;
  entry.body = request.body.substr(0, kBodyBytesMax);
  entry.fault = std::move(fault);
  entries_.push_back(std::move(entry));
  if (entries_.size() > kEntriesMax) entries_.pop_front();
  return entries_.back().number;
}

RequestLog::Entry* RequestLog::find(std::uint64_t number) {
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.number == number; });
  return found == entries_.end() ? nullptr : &*found;
}

void RequestLog::end(std::uint64_t number, Instant now, int status) {
  if (Entry* entry = find(number); entry && entry->status < 0) {
    entry->ended = now;
    entry->status = status;
  }
}

void RequestLog::load_begins(std::uint64_t number) {
  if (Entry* entry = find(number)) entry->overlap = loads_in_flight_ > 0;
  ++loads_in_flight_;
}

void RequestLog::load_ends() {
  if (loads_in_flight_ > 0) --loads_in_flight_;
}

json::array RequestLog::listing() const {
  json::array list;
  for (const Entry& entry : entries_) {
    json::object row;
    row["number"] = entry.number;
    row["at_ms"] = entry.began.ms;
    row["took_ms"] = entry.status < 0 ? json::value(nullptr) : json::value(entry.ended.ms - entry.began.ms);
    row["method"] = entry.method;
    row["target"] = entry.target;
    row["body"] = entry.body;
    row["fault"] = entry.fault;
    row["status"] = entry.status < 0 ? json::value(nullptr) : json::value(entry.status);
    row["overlap"] = entry.overlap;
    list.push_back(std::move(row));
  }
  return list;
}

}  // namespace weighlock::tiny
