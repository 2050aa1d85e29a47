// Internal to protocol/: what a call to a worker, and its answer, do to the worker's books: whose pause it has, which
// labels may be in it, what may still run in it.
//
// The machine and the replay of its records both keep them by these, so that a gateway that starts again knows of a
// worker what the one before it knew.
#pragma once

#include <string>

#include "weighlock/protocol/state.hpp"

namespace weighlock::protocol {

bool changes_something(OperationKind kind);

// What the start model of a worker's process is labelled with when the worker is healed to it: the label that was found
// when the process was first read, unless that is one of a version (`format`: its pair's label_format), which somebody
// loaded before we knew the process. Then "start".
std::string start_model_label(const std::string& format, const Worker& worker);

// What the call, if it succeeds, leaves of the worker's prefix cache. `by_files`: a load of a directory. `update`: none
// for a call of the watch.
void note_cache_effect(EarlierCall& call, bool by_files, const Update* update, const DialectTraits* traits);
// What is told beside the verdict of who serves with an owed flush; `words`: the engine's, "" if it had none.
std::string owed_flush_text(const std::string& words);
// Whether it must be known to have ended before anything else is sent.
bool leaves_doubt(const EarlierCall& call);

// The call is on its way. `writes_label`: its success would make `label` the worker's.
void note_sent(Worker& worker, const EarlierCall& call, const std::string& label, bool writes_label);
// The answer of the worker's running call.
void note_ended(Worker& worker, const EarlierCall& call, const Outcome& outcome, bool writes_label);
// Another process answers: what the one before it had been sent has ended with it. What was sent after the last reading
// may have gone to either.
void note_new_process(Worker& worker);
// Not even of its dialect: the process that answers has no route by which the one before it was asked for anything but
// a label (contracts of the engines; an unknown route is 404). So nothing of that is in it.
void note_other_dialect(Worker& worker);
// An answer to a reading that the worker's dialect doesn't know: no such route, or a body of another shape.
bool is_strange(OperationKind kind, const Outcome& outcome);
// Counts them; whoever was asked what it is begins anew.
void note_reading(Worker& worker, OperationKind kind, const Outcome& outcome);
// Which engine answers is in doubt, or was never asked.
bool must_be_identified(const Worker& worker);
// The answer of a call that was given up before; false if it isn't one of the worker's.
bool note_late(Worker& worker, CallId call, OutcomeKind kind);

}  // namespace weighlock::protocol
