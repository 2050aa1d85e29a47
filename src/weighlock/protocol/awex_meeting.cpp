// Where the ranks of a group meet. The first worker opens a port for it and never closes it, so another worker of the
// same host can't have that one for a later group, while the same worker can: its store takes any number of groups.
#include <algorithm>
#include <utility>

#include "weighlock/core/limits.hpp"
#include "weighlock/core/url.hpp"
#include "weighlock/protocol/awex.hpp"

namespace weighlock::protocol {
namespace {

constexpr int kFirstPort = 29'500;  // torch's own default, and where AReaL's gateway began to count
constexpr int kPortMax = 65'535;
constexpr int kPortMin = 1024;

std::string host_of(const std::string& url) {
  const Result<Url> parsed = parse_url(url);
  return parsed ? parsed->host : url;
}

int port_after(int first, int steps) {
  const int port = first + steps;
  return port <= kPortMax ? port : kPortMin + port - kPortMax - 1;
}

}  // namespace

MeetingPlace meeting_place(const State& state, const std::string& pair, const AwexSpec& awex,
                           const std::string& first_worker) {
  MeetingPlace out{pair, first_worker, host_of(first_worker), 0};
  // What the client gave is the address of the worker that it named first.
  const bool is_clients = awex.master_of.empty() || host_of(awex.master_of) == out.address;
  if (!awex.master_addr.empty() && is_clients) out.address = awex.master_addr;
  const int first = awex.master_port == 0 ? kFirstPort : awex.master_port;
  const auto is_taken = [&](int port) {
    return std::any_of(state.meetings.begin(), state.meetings.end(), [&](const MeetingPlace& other) {
      // Within a pair a host may have two names.
      const bool may_be_there = other.address == out.address || other.pair == pair;
      return other.port == port && other.worker != first_worker && may_be_there;
    });
  };
  int steps = 0;
  while (steps < limits::kMeetingPortsMax && is_taken(port_after(first, steps))) ++steps;
  out.port = port_after(first, steps == limits::kMeetingPortsMax ? 0 : steps);
  return out;
}

void note_meeting(State& state, MeetingPlace place) {
  if (place.port == 0) return;
  std::erase_if(state.meetings, [&](const MeetingPlace& other) {
    return other.port == place.port && other.address == place.address && other.pair == place.pair;
  });
  state.meetings.push_back(std::move(place));
  if (state.meetings.size() > limits::kMeetingsMax) state.meetings.pop_front();
}

}  // namespace weighlock::protocol
