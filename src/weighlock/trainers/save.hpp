// How a training rank is told to save, and what its answer means: the worker of AReaL, `POST /save`.
//
// Pure. A save is a collective of all ranks: each gets exactly one request for one attempt, all in flight together, on
// a fresh connection. It is never repeated, unless not a byte was sent. Trainers take no key, so none is sent. Source:
// AReaL's training worker (areal/v2/training_service/worker), and its gateway's requests as recorded on the wire.
#pragma once

#include <string>
#include <string_view>

#include "weighlock/core/error.hpp"
#include "weighlock/core/http.hpp"

namespace weighlock {

// `directory` is absolute, and this attempt's own. The body is the recorded one, to the byte, but for the directory.
HttpRequest make_save_request(std::string_view directory);

enum class SaveKind {
  ok,        // the rank says that its save succeeded: it has written and closed its files, no more
  failed,    // the rank answered, and not that: its part has ended, while other ranks may wait for it in the collective
  unknown,   // no answer, or a proxy's: the rank may be saving still, and owns its engine until it is known to have
             // ended
  not_sent,  // not a byte reached the rank
};

struct SaveOutcome {
  SaveKind kind = SaveKind::unknown;
  ErrorCode code = ErrorCode::trainer_failed;  // when not ok
  std::string text;                            // the rank's own words, bounded and on one line; "" when ok
  bool may_run = false;                        // a proxy's answer: the rank's call may go on
};

// Ok only for 200 with {"status":"success"}. Of other bodies only `status` and the words of an error are looked at.
SaveOutcome classify_save(const HttpResult& result);

// For a save whose answer can't come any more: the rank's engine does one thing at a time, in the order of the
// requests, and this one reads a number. So its answer means that every save that came before has ended.
HttpRequest make_queue_request();
enum class QueueAnswer {
  passed,     // what came before has ended
  none,       // nobody answered, or a proxy did: to be asked again
  not_known,  // a rank that has no such route
};
QueueAnswer classify_queue(const HttpResult& result);

std::string_view name(SaveKind kind);

}  // namespace weighlock
