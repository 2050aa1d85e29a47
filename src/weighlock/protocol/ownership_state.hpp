// What a pair knows of its epoch (protocol.md section 9). Plain data; `ownership.cpp` writes it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "weighlock/core/error.hpp"
#include "weighlock/protocol/event.hpp"

namespace weighlock::protocol {

// A worker's predecessor in the registry was another gateway's: what it had sent may still run, and its pause is ours.
struct TakenOver {
  bool listed = false;      // the file lists it
  bool held = false;        // ... as paused by our predecessor
  std::string incarnation;  // of the process that was to be paused; "" = not known
  std::string label;        // HeldWorker::label
  bool tried = false;       // it was to be read and brought back once; what is left is watched
};

struct Ownership {
  // In the journal.
  std::int64_t epoch = 0;              // ours; 0 = none
  std::optional<Epoch> superseded_by;  // another's, which is higher: this gateway only reads
  // What our predecessor's file lists and this gateway's pair doesn't have: who comes to the pair is among them
  // perhaps.
  std::vector<HeldWorker> strangers;

  // Of this process.
  std::string none_because;            // the storage is blind: no epoch can be kept there
  std::optional<Error> look_trouble;   // of the last look; none = it went well
  std::optional<Error> write_trouble;  // of the last claim or write of the list, likewise
  int refusals = 0;                    // of claims and writes, in a row
  std::optional<std::uint64_t> claim;
  std::vector<HeldWorker> writing;                 // what the running claim writes
  std::optional<std::vector<HeldWorker>> written;  // what stands in our file; none = not known
  bool again = false;                              // the list is to be written after the running claim
  std::optional<std::uint64_t> look;
  Instant asked_at;                 // when the running claim began
  Instant look_began;               // when the running look began
  std::optional<Instant> known_at;  // when the newest look or claim began that found nobody above us
  std::optional<Instant> free_at;   // when the newest look began that found the pair to be nobody's
  bool connects = false;            // connected, or started on its records: who has the pair is still to be seen
  bool in_grace = false;            // the running look's limit has all but passed
  bool looked_again = false;        // the running look follows one whose answer was too old to act on
  bool overdue = false;             // a look has no answer within its limit: nothing waits for it any more
  std::optional<TimerId> timer;     // the next look, or the limit of the running one
  Instant due;                      // when that is to fire
  bool update_waits = false;        // the active update waits for the running claim before it goes on
  bool go_on_waits = false;         // ... and for the running look too: the claim's answer was old
  bool recover_waits = false;       // what the process before left waits for a first look
  bool stop_waits = false;          // the gateway stops: the active update is undone after the running look, and what
                                    // waits for that is answered before the process ends
  bool bring_back = false;          // workers were taken over, and nobody has looked after them yet
  std::deque<EventBody> parked;     // wait for the running look: what follows from them could change engines
  bool acts = false;                // within what waited for a look: no other one is due
  // LoRA, what events of other pairs led to and waits for a look: workers that were found lacking adapters, with the
  // process that was read; and names that have left the window.
  std::map<std::string, std::string> joins_wait;
  bool unloads_wait = false;
};

}  // namespace weighlock::protocol
