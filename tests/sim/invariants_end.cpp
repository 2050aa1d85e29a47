// What must hold at the end of an update, and when a run has come to rest.
#include <algorithm>

#include "sim/invariants.hpp"
#include "sim/violation.hpp"

namespace weighlock::sim {

using protocol::UpdateState;
using protocol::WorkerState;

void Invariants::check_ended(const protocol::UpdateEnded& effect) {
  const auto found = state().updates.find(effect.update);
  if (found == state().updates.end()) return;  // forgotten already: bounded history
  const protocol::Update& update = found->second;
  if (!protocol::is_terminal(update.state)) {
    throw Violation{7, fmt::format("update {} is said to have ended and is {}", update.id, name(update.state))};
  }
  if (!ended_.insert(update.id).second) throw Violation{0, fmt::format("update {} ends twice", update.id)};
  if (update.kind == protocol::UpdateKind::update) ++w_.coverage.ended[static_cast<std::size_t>(update.state)];
  if (end_records_.count(update.id) == 0)
    throw Violation{11, fmt::format("the end of update {} isn't durable", update.id)};
  check_outcome(update);
  check_targets_at_end(update);
}

void Invariants::check_outcome(const protocol::Update& update) {
  if (update.kind != protocol::UpdateKind::update) return;
  const bool good = update.state == UpdateState::succeeded || update.state == UpdateState::degraded;
  const bool record = commit_records_.count(update.id) > 0;
  if (!good && !update.error)
    throw Violation{11, fmt::format("update {} is {} without an error", update.id, name(update.state))};
  if (update.committed && *update.committed != record && !(good && *update.committed)) {
    throw Violation{11, fmt::format("update {} says committed={}, and its commit record is {}", update.id,
                                    *update.committed, record ? "durable" : "missing")};
  }
  if (!good && update.state != UpdateState::failed && record) {
    throw Violation{11, fmt::format("update {} is {} although it was committed", update.id, name(update.state))};
  }
  if (!good) return;
  if (record) {
    check_quorum_at_end(update);
    return;
  }
  // The same bytes again: `ok` without touching an engine.
  const auto& commits = pairs_[update.pair].commits;
  const bool same =
      std::any_of(commits.begin(), commits.end(), [&](const auto& c) { return c.same_version(update.version); });
  if (!same)
    throw Violation{11, fmt::format("update {} is {} without a durable commit record", update.id, name(update.state))};
}

void Invariants::check_targets_at_end(const protocol::Update& update) {
  if (is_lora(update)) return;  // it changed nothing of what the registry says
  for (const auto& [url, target] : update.targets) {
    const auto found = state().workers.find(url);
    if (found == state().workers.end()) continue;
    const protocol::Worker& worker = found->second;
    const bool taken = !worker.locked_by.empty() && worker.locked_by != update.id;
    if (taken) continue;  // the next update has it already
    const bool dropped = update.kind == protocol::UpdateKind::join && update.state == UpdateState::aborted;
    const bool moved_on = target.ended_as && *target.ended_as != worker.state;  // by its operator, in the same breath
    if (dropped || moved_on) continue;
    // An extra that nothing was done to waits on for the reconciler.
    const bool waits = worker.state == WorkerState::joining && loads_.count({update.id, url}) == 0;
    const bool rests = waits || worker.state == WorkerState::ready || worker.state == WorkerState::draining ||
                       worker.state == WorkerState::quarantined || worker.state == WorkerState::foreign ||
                       worker.state == WorkerState::gone || worker.state == WorkerState::abandoned;
    if (!rests) {
      throw Violation{
          7, fmt::format("update {} is {} and {} is {}", update.id, name(update.state), url, name(worker.state))};
    }
    if (worker.state != WorkerState::ready && worker.state != WorkerState::draining && !worker.cause) {
      throw Violation{7, fmt::format("{} is {} without a cause", url, name(worker.state))};
    }
    const EngineTruth& real = truth(url);
    const auto book = books_.find(url);
    // An operator who released it, ABANDONED, took its pause over (protocol.md section 2): nobody here knows of it.
    const bool let_go = book != books_.end() && book->second.let_go;
    const bool ours = real.paused && !real.foreign_paused && real.alive && real.incarnation == worker.incarnation &&
                      !excused(url) && !let_go;
    if (worker.state == WorkerState::ready && ours) {
      throw Violation{7, fmt::format("update {} ended as {} and {} is ready, but merely paused", update.id,
                                     name(update.state), url)};
    }
    if (update.state == UpdateState::succeeded && worker.state != WorkerState::ready && target.included) {
      throw Violation{11, fmt::format("update {} succeeded and {} is {}", update.id, url, name(worker.state))};
    }
  }
}

// A quarantined worker stays paused, whoever continues it. One may run: its weights are the committed ones or those
// that it started with. So may one of another process or with somebody's label, which isn't ours to stop, and one to
// which nothing may be sent before an earlier call has ended.
std::string Invariants::unsettled_watch(const protocol::Worker& worker) const {
  const EngineTruth& real = truth(worker.url);
  const auto pair = state().pairs.find(worker.pair);
  if (worker.state != WorkerState::quarantined || pair == state().pairs.end() || stopped_) return "";
  if (pair->second.spec.policy.pause == protocol::PauseOwner::caller) return "";
  if (!comparable(worker) || real.paused) return "";
  const auto book = books_.find(worker.url);
  if (book == books_.end() || !book->second.unresolved.empty()) return "";
  if (gateway_died_ && !worker.earlier.empty()) return "";  // an intent whose call was never sent; only we know that
  const auto& committed = pair->second.committed;
  const std::int64_t good = committed ? content_of(worker.pair, *committed) : book->second.baseline;
  const bool known = real.content == good || real.content == kStartContent || !book->second.loaded_by_us;
  if (!real.torn && !real.poisoned && known) return "";
  return fmt::format("{} is quarantined, and runs with weights {}{}", worker.url, real.content,
                     real.torn || real.poisoned ? ", torn" : "");
}

// Whoever can be brought to the committed version is brought to it, while its pair is in use.
std::string Invariants::unsettled_join(const protocol::Worker& worker) const {
  const auto pair = state().pairs.find(worker.pair);
  const bool out = worker.state == WorkerState::joining || worker.state == WorkerState::quarantined;
  if (!out || stopped_ || pair == state().pairs.end() || !pair->second.committed || pair->second.distrusted) return "";
  if (worker.memory != protocol::EngineMemory::whole) return "";  // a load would end it
  const auto& awex = pair->second.spec.awex;
  if (awex && awex->colocate) return "";  // where devices are shared only an update loads
  if (pair->second.spec.policy.pair_lease == Milliseconds{0} || !truth(worker.url).alive) return "";
  const auto book = books_.find(worker.url);
  const protocol::VersionRef& goal = *pair->second.committed;
  if (goal.directory.empty()) return "";  // transferred: only the next update brings it
  const auto deaths = pair->second.deaths.find(fmt::format("{}/{}", goal.lineage, goal.version));
  if (deaths != pair->second.deaths.end() && deaths->second.size() >= 2) return "";  // suspect
  // Invariant 1 forbids what 18 asks for: READY by less evidence than the pair wants, which this dialect can't give.
  const auto& asked = pair->second.spec.policy.evidence;
  if (worker.dialect && asked && *asked != Evidence::probe &&
      *asked > w_.scenario.dialects.of(*worker.dialect).evidence_best)
    return "";
  const bool doubt = book == books_.end() || !book->second.unresolved.empty() || !worker.earlier.empty();
  if (doubt) return "";
  if (worker.cause) {
    using protocol::CauseCode;
    const CauseCode why = worker.cause->code;
    if (why == CauseCode::operator_hold || why == CauseCode::needs_restart || why == CauseCode::suspect ||
        why == CauseCode::probe_failed)
      return "";
  }
  return fmt::format("{} is {} ({}) and was not brought to version {}", worker.url, name(worker.state),
                     worker.cause ? worker.cause->message : "no cause", pair->second.committed->version);
}

// Mode keep accepts prefixes of other weights for as long as requests run, and not for longer.
std::string Invariants::unsettled_cache(const protocol::Worker& worker) const {
  const EngineTruth& real = truth(worker.url);
  const auto pair = state().pairs.find(worker.pair);
  const auto book = books_.find(worker.url);
  if (worker.state != WorkerState::ready || stopped_ || pair == state().pairs.end() || book == books_.end()) return "";
  if (pair->second.spec.policy.pause == protocol::PauseOwner::caller || !book->second.loaded_by_us) return "";
  if (!comparable(worker) || real.paused || !real.stale || real.lied_of_caches) return "";
  return fmt::format("{} is ready, and serves caches of other weights", worker.url);
}

std::string Invariants::unsettled_worker(const protocol::Worker& worker) const {
  if (!w_.owns(worker.pair)) return "";  // it is another gateway's to bring back
  if (std::string why = unsettled_join(worker); !why.empty()) return why;
  if (std::string why = unsettled_watch(worker); !why.empty()) return why;
  if (std::string why = unsettled_cache(worker); !why.empty()) return why;
  const EngineTruth& real = truth(worker.url);
  const auto book = books_.find(worker.url);
  if (book != books_.end() && book->second.let_go) return "";
  // Here only LoRA pairs use it, and whoever has its model, or had it, holds it: that one's list tells who comes next.
  if (worker.pair.empty() && w_.scenario.has_rivals() && !(book != books_.end() && book->second.paused_by_us))
    return "";
  // It ended before it could look after what it had taken over, or while it took it: its file, which takes its
  // predecessor's list along, tells whoever comes next.
  const auto pair = state().pairs.find(worker.pair);
  const bool takes = pair != state().pairs.end() && pair->second.ownership.epoch == 0 && pair->second.ownership.claim;
  if (stopped_ && (worker.taken_over || takes)) return "";
  if (!real.alive || !real.paused || real.foreign_paused || excused(worker.url)) return "";
  const bool named = worker.state == WorkerState::quarantined || worker.state == WorkerState::abandoned ||
                     worker.state == WorkerState::foreign;
  if (named && worker.cause) return "";
  // Released, and the process ended before it was read: the records say so, and the next one brings it back.
  const bool released =
      worker.state == WorkerState::joining && worker.cause && worker.cause->code == protocol::CauseCode::operator_hold;
  if (stopped_ && released) return "";
  return fmt::format("{} is paused by us and {}", worker.url, name(worker.state));
}

// Where no fault strikes nothing may fail, whatever happens to the other pairs.
std::string Invariants::unsettled_calm(const std::string& name) const {
  for (const auto& [token, ask] : w_.clients.asks()) {
    if (ask.pair == name && ask.refused && ask.kind != AskKind::steal)
      return fmt::format("no fault, and the client with token {} was refused", token);
  }
  for (const auto& [id, update] : state().updates) {
    if (update.pair == name && update.kind == protocol::UpdateKind::update && update.state != UpdateState::succeeded) {
      return fmt::format("no fault, and update {} is {}{}", id, protocol::name(update.state),
                         update.error ? ": " + update.error->text() : "");
    }
  }
  const auto pair = state().pairs.find(name);
  if (pair == state().pairs.end() || !pair->second.committed)
    return fmt::format("no fault, and {} has committed nothing", name);
  if (pair->second.spec.lora) return unsettled_window(pair->second);
  for (const auto& [url, worker] : state().workers) {
    if (worker.pair != name) continue;
    if (worker.state != WorkerState::ready || truth(url).content != content_of(name, *pair->second.committed)) {
      return fmt::format("no fault, and {} is {} with weights {}", url, protocol::name(worker.state),
                         truth(url).content);
    }
  }
  return "";
}

void Invariants::check_planned_end() const {
  const protocol::Update* last = nullptr;
  for (const auto& [id, update] : state().updates) {
    const bool is_newer = last == nullptr || update.number > last->number;
    if (is_newer && update.kind == protocol::UpdateKind::update) last = &update;
  }
  if (last == nullptr || last->state != UpdateState::succeeded)
    throw Violation{
        16, fmt::format("nothing fails any more, and version {} is {}{}", last == nullptr ? 0 : last->version.version,
                        last == nullptr ? "not known" : name(last->state),
                        last != nullptr && last->error ? ": " + last->error->text() : "")};
  if (is_lora(*last)) return;
  for (const auto& [url, worker] : state().workers) {
    const EngineTruth& real = truth(url);
    const bool holds_it = real.content == content_of(last->pair, last->version);
    if (worker.state != WorkerState::ready || !holds_it || real.paused || real.stale)
      throw Violation{
          18, fmt::format("nothing fails any more, and {} is {} with weights {}{}{}", url, name(worker.state),
                          real.content, real.paused ? ", paused" : "", real.stale ? ", and caches of others" : "")};
  }
}

std::string Invariants::unsettled_clients() const {
  for (const auto& [token, ask] : w_.clients.asks()) {
    if (!ask.replied) return fmt::format("the client with token {} was never answered", token);
    const auto update = state().updates.find(ask.update);
    if (ask.kind != AskKind::cancel || ask.refused || update == state().updates.end()) continue;
    if (commit_records_.count(ask.update) > 0) return fmt::format("update {} was cancelled, and committed", ask.update);
  }
  return "";
}

// PREPARING that fails discards its own directory.
std::string Invariants::unsettled_directories() const {
  for (const auto& [id, directory] : prepared_) {
    const auto update = state().updates.find(id);
    if (update == state().updates.end() || discarded_.count(directory) > 0) continue;
    if (!w_.owns(update->second.pair)) continue;  // who has lost a pair deletes nothing
    if (update->second.state == UpdateState::aborted || update->second.state == UpdateState::rejected) {
      return fmt::format("update {} is {}, and '{}' was not discarded", id, name(update->second.state), directory);
    }
  }
  for (const auto& [pair_name, pair] : state().pairs) {
    if (!w_.owns(pair_name) || pair.doomed.empty()) continue;
    return fmt::format("the removal of '{}' is on record, and was not done", pair.doomed.front().directory);
  }
  return "";
}

std::string Invariants::unsettled() const {
  if (!w_.network.quiet()) return "requests are on their way";
  for (const auto& [id, update] : state().updates) {
    if (!protocol::is_terminal(update.state)) return fmt::format("update {} is {}", id, name(update.state));
    if (w_.clients.accepted(id) && ended_.count(id) == 0)
      return fmt::format("nobody was told the end of update {}", id);
  }
  if (std::string why = unsettled_clients(); !why.empty()) return why;
  for (const auto& [pair, token] : w_.clients.last_asks()) {
    if (std::string why = unsettled_last(token); !why.empty()) return why;
  }
  if (w_.clients.shut_down() && !stopped_) return "not stopped";
  for (const auto& [url, worker] : state().workers) {
    if (std::string why = unsettled_worker(worker); !why.empty()) return why;
  }
  for (const auto& [url, book] : books_) {
    if (!book.paused_by_us || state().workers.count(url) > 0 || !w_.owns(book.pair)) continue;
    const EngineTruth& real = truth(url);
    if (real.alive && real.paused && !real.foreign_paused)
      return fmt::format("{} was let go of while we held it paused", url);
  }
  for (std::size_t p = 0; p < w_.scenario.pairs.size(); ++p) {
    if (!w_.scenario.calm[p]) continue;
    if (std::string why = unsettled_calm(w_.scenario.pairs[p].name); !why.empty()) return why;
  }
  for (const auto& [name, pair] : state().pairs) {
    if (std::string why = unsettled_adapters(pair); !why.empty()) return why;
  }
  if (stopped_) return "";
  if (std::string why = unsettled_directories(); !why.empty()) return why;
  return unsettled_versions();
}

}  // namespace weighlock::sim
