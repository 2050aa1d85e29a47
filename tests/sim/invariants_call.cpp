// What must hold before something is asked of an engine, a trainer or the store.
#include <algorithm>

#include "sim/invariants.hpp"
#include "sim/violation.hpp"
#include "weighlock/core/json.hpp"

namespace weighlock::sim {

using protocol::CallId;
using protocol::Record;
using protocol::RecordKind;
using protocol::SaveOutcomeKind;

namespace {

constexpr std::int64_t kTrainerCollectiveTimeoutMs = 7'200'000;  // protocol.md section 5

std::string key_of(const std::string& worker, std::string_view operation) {
  return fmt::format("{} {}", worker, operation);
}

}  // namespace

bool changes_weights(OperationKind kind) {
  return kind == OperationKind::load || kind == OperationKind::load_empty;
}

bool pays_flush(OperationKind kind, const protocol::UpdateId& update) {
  return kind == OperationKind::flush && update.empty();
}

bool changes_engine(OperationKind kind) {
  return changes_weights(kind) || kind == OperationKind::pause || kind == OperationKind::set_label ||
         kind == OperationKind::flush || kind == OperationKind::resume;
}

void Invariants::check_call(const protocol::Call& call) {
  if (stopped_) throw Violation{0, "a call after Stopped"};
  if (call_worker_.count(call.call) > 0) throw Violation{0, fmt::format("call id {} is used twice", call.call)};
  if (w_.network.find(call.worker) == nullptr) throw Violation{0, "a call to an unknown worker " + call.worker};
  ++w_.coverage.operations[static_cast<std::size_t>(call.operation.kind)];
  const auto asks = state().updates.find(call.update);
  if (asks != state().updates.end() && is_lora(asks->second)) {
    check_adapter_call(call);
    call_worker_[call.call] = call.worker;
    return;
  }
  Book& book = books_[call.worker];
  set_aside_given_up(call.worker, book);
  check_in_flight(call, book);
  check_owner(call);
  check_pause_policy(call);
  for (const auto& [id, open] : adapter_calls_) {
    const bool clash = open.worker == call.worker && changes_adapters(open.operation.kind);
    if (clash && changes_engine(call.operation.kind) && !call.update.empty())
      throw Violation{5, fmt::format("{} is sent to {} while call {} about {} is open", name(call.operation.kind),
                                     call.worker, id, open.operation.adapter)};
  }
  if (changes_engine(call.operation.kind)) check_intent(call);
  if (changes_weights(call.operation.kind)) check_load(call);
  if (call.operation.kind == OperationKind::resume) check_resume(call, book);
  if (call.operation.kind == OperationKind::pause) {
    book.paused_by_us = true;
    book.let_go = false;
  }
  const bool was_excused = book.excused;
  if (call.operation.kind == OperationKind::load) book.excused = false;
  if (changes_weights(call.operation.kind)) {
    book.loaded_by_us = true;
    loads_.emplace(call.update, call.worker);
  }
  call_worker_[call.call] = call.worker;
  book.in_flight.push_back(
      OpenCall{call.call, call.worker, call.operation, call.update, truth(call.worker).incarnation, true, was_excused});
}

// A call that timed out keeps its connection for its own answer; the machine says so in its registry.
void Invariants::set_aside_given_up(const std::string& url, Book& book) {
  const auto worker = state().workers.find(url);
  if (book.in_flight.empty() || worker == state().workers.end()) return;
  for (const protocol::EarlierCall& earlier : worker->second.earlier) {
    if (earlier.call != book.in_flight[0].call) continue;
    book.unresolved.push_back(book.in_flight[0]);
    book.in_flight.clear();
    return;
  }
}

void Invariants::check_in_flight(const protocol::Call& call, const Book& book) {
  const std::string_view what = name(call.operation.kind);
  if (!book.in_flight.empty()) {
    throw Violation{5, fmt::format("{} is sent to {} while call {} ({}) is open", what, call.worker,
                                   book.in_flight[0].call, name(book.in_flight[0].operation.kind))};
  }
  const bool reads = call.operation.kind == OperationKind::read_state || call.operation.kind == OperationKind::identify;
  if (book.unresolved.empty() || reads) return;
  const OpenCall& earlier = book.unresolved.front();
  if (call.operation.kind == OperationKind::barrier) {
    if (earlier.connected) {
      throw Violation{
          5, fmt::format("a barrier is sent to {} while the connection of call {} is open", call.worker, earlier.call)};
    }
    return;
  }
  const bool repeats = changes_weights(call.operation.kind) && changes_weights(earlier.operation.kind);
  throw Violation{repeats ? 10 : 5, fmt::format("{} is sent to {} although {} (call {}) may still take effect", what,
                                                call.worker, name(earlier.operation.kind), earlier.call)};
}

// Of somebody who serves, runs in no update and owes it: that stands on the disk since the load, so no intent does.
void Invariants::check_owed_flush(const protocol::Call& call) const {
  const auto found = state().workers.find(call.worker);
  const bool known = found != state().workers.end();
  if (!known || !found->second.in_flight || found->second.in_flight->call != call.call) return;  // forgotten since
  const protocol::Worker& worker = found->second;
  if (worker.state != protocol::WorkerState::ready || !worker.owes_flush)
    throw Violation{0, fmt::format("{} is flushed outside of any update, and owes it not", call.worker)};
  const auto pair = state().pairs.find(worker.pair);
  const auto active = pair == state().pairs.end() ? state().updates.end() : state().updates.find(pair->second.active);
  if (active != state().updates.end() && active->second.targets.count(call.worker) > 0)
    throw Violation{5, fmt::format("{} is flushed by the watch while update {} has it", call.worker, active->first)};
}

void Invariants::check_intent(const protocol::Call& call) {
  if (pays_flush(call.operation.kind, call.update)) return check_owed_flush(call);
  const auto it = intents_.find({call.update, key_of(call.worker, name(call.operation.kind))});
  if (it != intents_.end() && it->second > 0) {
    --it->second;
  } else if (call.operation.kind !=
             OperationKind::resume) {  // a resume after the commit or of an untouched worker needs none
    throw Violation{6, fmt::format("{} of {} has no durable intent", name(call.operation.kind), call.worker)};
  }
  if (changes_adapters(call.operation.kind)) return;
  const auto update = state().updates.find(call.update);
  if (call.update.empty()) return check_watch(call);
  const bool leave = update != state().updates.end() && update->second.kind == protocol::UpdateKind::leave;
  if (call.operation.kind == OperationKind::pause && !leave && target_records_.count(call.update) == 0) {
    throw Violation{6, fmt::format("{} is paused before its update's targets are durable", call.worker)};
  }
}

void Invariants::check_load(const protocol::Call& call) {
  const std::string& directory = call.operation.directory;
  if (call.operation.transfer) return;  // from rank to rank; its group is looked at when the collective begins
  if (call.operation.kind == OperationKind::load_empty) return;  // a fixed zero-tensor checkpoint of our own
  if (directory != kStartPath && sealed_.count(directory) == 0) {
    throw Violation{12, fmt::format("{} is told '{}' before it is sealed", call.worker, directory)};
  }
  if (discarded_.count(directory) > 0)
    throw Violation{12, fmt::format("{} is told '{}', which was discarded", call.worker, directory)};
  const auto update = state().updates.find(call.update);
  if (update == state().updates.end()) return;
  const StoreSettings& store = w_.scenario.stores[w_.scenario.pair_of(update->second.pair)];
  if (directory == kStartPath && (store.blind || !store.start_readable)) {
    throw Violation{12, fmt::format("{} is told the start model, which nobody inspected", call.worker)};
  }
  if (directory != update->second.version.directory) return;
  check_canary(call, update->second);
  check_window(call, update->second);
}

// Of each dialect `canary` members load first; nobody else does before they are verified. (Extras are out of service
// already.)
void Invariants::check_canary(const protocol::Call& call, const protocol::Update& update) {
  if (update.state != protocol::UpdateState::loading && update.state != protocol::UpdateState::verifying) return;
  const auto own = update.targets.find(call.worker);
  if (update.policy.canary <= 0 || own == update.targets.end() || own->second.role == protocol::Role::extra) return;
  std::vector<std::string>& first = canaries_[{update.id, call.dialect.value_or(w_.network.find(call.worker)->kind())}];
  if (std::find(first.begin(), first.end(), call.worker) != first.end()) return;
  if (first.size() < static_cast<std::size_t>(update.policy.canary)) {
    first.push_back(call.worker);
    return;
  }
  for (const std::string& url : first) {
    const auto target = update.targets.find(url);
    if (target != update.targets.end() && target->second.verdict != protocol::Verdict::verified) {
      throw Violation{3, fmt::format("{} loads before the canary {} is verified", call.worker, url)};
    }
  }
}

void Invariants::check_window(const protocol::Call& call, const protocol::Update& update) const {
  if (update.policy.load_window <= 0 || update.state != protocol::UpdateState::loading) return;
  int loading = 1;
  for (const auto& [url, book] : books_) {
    for (const OpenCall& open : book.in_flight) {
      if (url != call.worker && open.operation.kind == OperationKind::load && open.update == update.id) ++loading;
    }
  }
  if (loading > update.policy.load_window) {
    throw Violation{0, fmt::format("{} loads at once, the window is {}", loading, update.policy.load_window)};
  }
}

// Between updates only what may not serve is paused, and nothing else is done to anybody.
void Invariants::check_watch(const protocol::Call& call) const {
  const auto worker = state().workers.find(call.worker);
  const bool known = worker != state().workers.end();
  const bool is_on_its_way =
      known && worker->second.state == protocol::WorkerState::joining && worker->second.paused_by_us;
  const bool out = known && (worker->second.state == protocol::WorkerState::quarantined || is_on_its_way);
  if (call.operation.kind != OperationKind::pause || !out)
    throw Violation{0, fmt::format("{} of {} outside of any update", name(call.operation.kind), call.worker)};
  const std::vector<protocol::EarlierCall>& earlier = worker->second.earlier;
  const auto is_it = [&](const protocol::EarlierCall& one) { return one.call == call.call; };
  // Decided before an update took the worker over, in the same group: the update asks after it.
  if (std::any_of(earlier.begin(), earlier.end(), is_it)) return;
  const auto pair = state().pairs.find(worker->second.pair);
  if (pair == state().pairs.end()) return;
  if (pair->second.spec.policy.pause == protocol::PauseOwner::caller)
    throw Violation{0, fmt::format("{} is paused although the caller pauses", call.worker)};
  const auto active = state().updates.find(pair->second.active);
  if (active != state().updates.end() && active->second.targets.count(call.worker) > 0)
    throw Violation{5, fmt::format("{} is paused by the watch while update {} has it", call.worker, active->first)};
}

// Engines serve while the trainers save; a caller who pauses by itself is left to it.
void Invariants::check_pause_policy(const protocol::Call& call) const {
  const auto found = state().updates.find(call.update);
  if (found == state().updates.end() || found->second.kind != protocol::UpdateKind::update) return;
  const protocol::Update& update = found->second;
  if (changes_engine(call.operation.kind) && update.state <= protocol::UpdateState::preparing) {
    throw Violation{7, fmt::format("{} of {} while update {} is {}", name(call.operation.kind), call.worker, update.id,
                                   name(update.state))};
  }
  const bool switches = call.operation.kind == OperationKind::pause || call.operation.kind == OperationKind::resume;
  const EngineTruth& real = truth(call.worker);
  const bool ours = call.operation.kind == OperationKind::resume && real.paused && !real.foreign_paused;  // before
  if (switches && !ours && update.policy.pause == protocol::PauseOwner::caller) {
    throw Violation{0, fmt::format("{} of {} although the caller pauses", name(call.operation.kind), call.worker)};
  }
}

void Invariants::check_resume(const protocol::Call& call, Book& book) {
  const auto it = state().workers.find(call.worker);
  if (it == state().workers.end()) throw Violation{8, "a worker that isn't registered is resumed: " + call.worker};
  const protocol::Worker& worker = it->second;
  if (worker.state == protocol::WorkerState::torn || worker.state == protocol::WorkerState::unknown) {
    throw Violation{8, fmt::format("{} is {} and resumed", call.worker, name(worker.state))};
  }
  if (!comparable(worker)) return;
  const EngineTruth& real = truth(call.worker);
  // Torn by a former owner, under the label "loading:", and each answer that this one had showed the label before it.
  if ((real.torn || real.poisoned) && book.misled && !book.loaded_by_us) {
    book.excused = true;
    return;
  }
  if (real.torn || real.poisoned) throw Violation{8, fmt::format("{} is torn in truth and resumed", call.worker)};
  if (w_.network.load_pending(call.worker, gateway_of(call.call)))
    throw Violation{8, fmt::format("{} is resumed with a load in its queue", call.worker)};
  const bool committed = real.content == kStartContent || is_baseline(book, real.content) ||
                         pairs_[worker.pair].contents.count(real.content) > 0 || is_of_rival(real.content);
  if (!committed) {
    throw Violation{2,
                    fmt::format("{} is resumed with weights {} that were never committed", call.worker, real.content)};
  }
}

// Pairs are isolated: an update asks only workers of its own pair.
void Invariants::check_owner(const protocol::Call& call) {
  const auto update = state().updates.find(call.update);
  const auto worker = state().workers.find(call.worker);
  if (update == state().updates.end() || worker == state().workers.end()) return;
  if (worker->second.pair.empty() || worker->second.pair == update->second.pair) return;
  throw Violation{15, fmt::format("update {} of {} asks {} of {}", call.update, update->second.pair, call.worker,
                                  worker->second.pair)};
}

void Invariants::on_cancel(CallId call) {
  const auto it = call_worker_.find(call);
  if (it == call_worker_.end()) throw Violation{0, fmt::format("cancel of call {}, which was never sent", call)};
  if (const auto node = adapter_calls_.extract(call); !node.empty()) return doubt_adapter(node.mapped());
  Book& book = books_[it->second];
  for (OpenCall& earlier : book.unresolved) {
    if (earlier.call == call) earlier.connected = false;
  }
  if (book.in_flight.empty() || book.in_flight[0].call != call) return;
  OpenCall open = book.in_flight[0];
  book.in_flight.clear();
  open.connected = false;
  if (changes_engine(open.operation.kind) && !pays_flush(open.operation.kind, open.update))
    book.unresolved.push_back(std::move(open));
}

void Invariants::resolve_by_reading(Book& book, const std::string& worker, const OpenCall& call,
                                    const Outcome& outcome) {
  if (!outcome.reading) return;
  const DialectTraits& traits = w_.scenario.dialects.of(w_.network.find(worker)->kind());
  const bool passed = call.operation.kind == OperationKind::barrier && outcome.ok();
  std::erase_if(book.unresolved, [&](const OpenCall& earlier) {
    const std::string& incarnation = outcome.reading->incarnation;  // "": a brief reading
    if (!incarnation.empty() && incarnation != earlier.incarnation) return true;
    return passed && traits.has_barrier(earlier.operation.kind, earlier.operation.pause_mode);
  });
}

void Invariants::note_told_label(Book& book, const std::string& worker, const Outcome& outcome) const {
  const EngineTruth& real = truth(worker);
  if (!outcome.reading || !real.alive) return;
  const StateReading& reading = *outcome.reading;
  if (!reading.incarnation.empty() && reading.incarnation != real.incarnation) return;
  const bool is_old = reading.label != real.label && reading.label == real.old_label;
  book.was_told = book.was_told || reading.label == real.label;
  book.misled = !book.was_told && (book.misled || is_old);
}

void Invariants::on_call_ended(const protocol::CallEnded& event) {
  note_part_ended(event.call, event.outcome.ok());
  const auto it = call_worker_.find(event.call);
  if (it == call_worker_.end() || on_adapter_call_ended(event)) return;
  Book& book = books_[it->second];
  std::erase_if(book.unresolved, [&](const OpenCall& earlier) {
    return earlier.call == event.call && event.outcome.kind != OutcomeKind::unknown;
  });
  for (OpenCall& earlier : book.unresolved) {
    if (earlier.call == event.call) earlier.connected = false;
  }
  if (book.in_flight.empty() || book.in_flight[0].call != event.call) return;
  OpenCall open = book.in_flight[0];
  book.in_flight.clear();
  if (event.outcome.kind == OutcomeKind::not_sent) {
    loads_.erase({open.update, open.worker});
    // Not a byte came to it, so it wasn't asked for that memory.
    using protocol::HandOverStep;
    const std::string& tag = open.operation.memory;
    if (!tag.empty())
      memory_asked_[open.worker].erase(tag == "weights" ? HandOverStep::resume_weights : HandOverStep::resume_kv_cache);
  }
  const bool did_nothing = event.outcome.kind == OutcomeKind::not_sent || event.outcome.kind == OutcomeKind::untouched;
  if (did_nothing && open.operation.kind == OperationKind::load && open.was_excused) book.excused = true;
  resolve_by_reading(book, it->second, open, event.outcome);
  note_told_label(book, it->second, event.outcome);
  if (event.outcome.kind != OutcomeKind::unknown || !changes_engine(open.operation.kind)) return;
  if (pays_flush(open.operation.kind, open.update)) return;
  open.connected = false;
  book.unresolved.push_back(std::move(open));
}

void Invariants::check_save(const protocol::TriggerSave& save) {
  if (save_intents_.count(save.update) == 0) throw Violation{6, "a save without a durable intent: " + save.update};
  const Instant now = w_.scheduler.now();
  for (const auto& [call, earlier] : saves_) {
    if (earlier.trainer != save.trainer) continue;
    if (earlier.directory == save.directory && !(earlier.ended && earlier.kind == SaveOutcomeKind::not_sent)) {
      throw Violation{10, fmt::format("{} is asked twice to save {}", save.trainer, save.directory)};
    }
    if (!earlier.ended && (now - earlier.since).count() < kTrainerCollectiveTimeoutMs) {
      throw Violation{
          10, fmt::format("{} is asked to save while its save of {} hasn't ended", save.trainer, earlier.directory)};
    }
  }
  if (discarded_.count(save.directory) > 0) throw Violation{12, "a save into a discarded directory " + save.directory};
  if (!saves_.emplace(save.call, Save{save.trainer, save.directory, false, SaveOutcomeKind::unknown, now}).second) {
    throw Violation{0, fmt::format("call id {} is used twice", save.call)};
  }
}

void Invariants::on_save_ended(const protocol::SaveEnded& event) {
  note_part_ended(event.call, event.kind == SaveOutcomeKind::ok);
  const auto it = saves_.find(event.call);
  if (it == saves_.end()) return;
  it->second.ended = true;
  it->second.kind = event.kind;
}

void Invariants::check_seal(const protocol::Seal& seal) {
  for (const auto& [call, save] : saves_) {
    if (save.directory != seal.directory) continue;
    if (!save.ended || save.kind != SaveOutcomeKind::ok) {
      throw Violation{12,
                      fmt::format("{} is sealed although {} didn't say that it saved", seal.directory, save.trainer)};
    }
  }
}

void Invariants::check_discard(const protocol::Discard& discard) {
  const Directory* directory = w_.store.find(discard.directory);
  if (directory != nullptr && !directory->ours)
    throw Violation{12, "somebody else's directory is discarded: " + discard.directory};
  for (const auto& [name, pair] : state().pairs) {
    const bool held = (pair.committed && pair.committed->directory == discard.directory) ||
                      (pair.last_good && pair.last_good->directory == discard.directory);
    if (held) throw Violation{12, fmt::format("{} is discarded, and {} stands on it", discard.directory, name)};
  }
  for (const auto& [url, book] : books_) {
    for (const OpenCall& earlier : book.unresolved) {
      if (changes_weights(earlier.operation.kind) && earlier.operation.directory == discard.directory) {
        throw Violation{12, fmt::format("{} is discarded while {} may still load it", discard.directory, url)};
      }
    }
  }
  check_adapter_directory(discard.directory);
  discarded_.insert(discard.directory);
}

void Invariants::on_durable(const std::vector<Record>& group) {
  for (const Record& record : group) {
    note_stored(record);
    switch (record.kind) {
      case RecordKind::intent: {
        const json::value* operation = record.body.if_contains("operation");
        if (operation != nullptr && operation->is_string()) {
          ++intents_[{record.update, key_of(record.worker, std::string_view(operation->get_string()))}];
        }
        break;
      }
      case RecordKind::worker_changed: {
        const auto worker = state().workers.find(record.worker);
        const json::value* change = record.body.if_contains("change");
        const bool released = change != nullptr && change->is_string() && change->get_string() == "release";
        if (!released || (worker != state().workers.end() && !worker->second.pair.empty())) break;
        books_[record.worker].let_go = true;
        w_.let_go(record.worker);
        books_[record.worker].paused_by_us = false;
        books_[record.worker].unresolved.clear();
        books_[record.worker].in_flight.clear();  // given up, and nothing was sent to it since
        break;
      }
      case RecordKind::group:
        note_group_record(record);
        break;
      case RecordKind::save_intent:
        save_intents_.insert(record.update);
        break;
      case RecordKind::targets:
        target_records_.insert(record.update);
        break;
      case RecordKind::update_ended:
        end_records_.insert(record.update);
        break;
      case RecordKind::commit: {
        commit_records_.insert(record.update);
        const auto update = state().updates.find(record.update);
        if (update == state().updates.end()) break;
        commits_of_[record.update] = update->second.version;
        PairBook& book = pairs_[record.pair];
        book.commits.push_back(update->second.version);
        book.went_back = record.body.contains("rollback");
        commit_contents_[record.update] = content_of(record.pair, update->second.version);
        book.contents.insert(commit_contents_[record.update]);
        break;
      }
      default:
        break;
    }
  }
}

}  // namespace weighlock::sim
