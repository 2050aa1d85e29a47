// What must hold after every event.
#include "sim/invariants.hpp"

#include <algorithm>
#include <variant>

#include "sim/violation.hpp"

namespace weighlock::sim {

using protocol::Record;
using protocol::RecordKind;
using protocol::UpdateState;
using protocol::VersionRef;
using protocol::WorkerState;

namespace {

// On top of the update's deadline and one compensation deadline: groups that wait for a slow disk.
constexpr std::int64_t kTimeSlackMs = 120'000;

int quorum_needed(const protocol::Policy& policy, int members) {
  int needed = (members + 1) / 2;
  if (policy.quorum.kind == protocol::Quorum::Kind::all) needed = members;
  if (policy.quorum.kind == protocol::Quorum::Kind::count) needed = policy.quorum.count;
  if (policy.on_failure == protocol::OnFailure::rollback_all) needed = members;
  return std::max(needed, 1);
}

}  // namespace

std::int64_t Invariants::content_of(const std::string& directory) const {
  const Directory* found = w_.store.find(directory);
  return found == nullptr ? -2 : found->content;
}

bool Invariants::comparable(const protocol::Worker& worker) const {
  const EngineTruth& real = truth(worker.url);
  return real.alive && real.incarnation == worker.incarnation && !real.undetected && !real.foreign &&
         !excused(worker.url);
}

bool Invariants::excused(const std::string& url) const {
  const auto book = books_.find(url);
  return book != books_.end() && (book->second.excused || !w_.owns(book->second.pair));
}

// Where records were lost, the machine may know of an earlier registration than the books, and of what it held then.
bool Invariants::is_baseline(const Book& book, std::int64_t content) const {
  return content == book.baseline || (records_lost_ && book.baselines.count(content) > 0);
}

// Whatever it holds now is what its new owner found.
void Invariants::pair_taken(const std::string& pair) {
  for (auto& [url, book] : books_) {
    const bool was_of_it = book.pair.empty() && w_.scenario.pairs[w_.scenario.pair_of(url)].name == pair;
    if (was_of_it) book.paused_by_us = false;  // let go of, and anybody's since
    if (book.pair != pair) continue;
    book.loaded_by_us = book.paused_by_us = book.excused = false;
    book.was_told = book.misled = false;
    book.baseline = truth(url).content;
  }
  for (const auto& [path, directory] : w_.store.directories()) {
    if (directory.sealed) sealed_.insert(path);
  }
  if (const auto& lora = w_.scenario.pairs[w_.scenario.pair_of(pair)].lora)
    std::erase_if(disturbed_adapters_, [&](const auto& one) { return one.second.starts_with(lora->name + "-v"); });
}

void Invariants::stood_still(Milliseconds time) {
  for (auto& [update, at] : admitted_at_) at = at + time;
}

void Invariants::disturbed(const std::string& url) {
  books_[url].excused = true;
}

// Another gateway's versions are whole, too, and nobody here knows which of them it committed.
bool Invariants::is_of_rival(std::int64_t content) const {
  if (!w_.scenario.has_rivals()) return false;
  return std::any_of(w_.store.directories().begin(), w_.store.directories().end(),
                     [&](const auto& entry) { return entry.second.sealed && entry.second.content == content; });
}

void Invariants::before_event(const protocol::EventBody& event) {
  if (const auto* ended = std::get_if<protocol::CallEnded>(&event)) on_call_ended(*ended);
  if (const auto* ended = std::get_if<protocol::SaveEnded>(&event)) on_save_ended(*ended);
  if (const auto* built = std::get_if<protocol::GroupBuilt>(&event)) on_group_built(*built);
  if (const auto* made = std::get_if<protocol::Prepared>(&event); made != nullptr && made->directory.has_value()) {
    prepared_[made->update] = *made->directory;
  }
  if (const auto* sealed = std::get_if<protocol::Sealed>(&event); sealed != nullptr && sealed->version.has_value()) {
    for (const auto& [path, directory] : w_.store.directories()) {
      if (directory.sealed) sealed_.insert(path);
    }
  }
}

void Invariants::before_effect(const protocol::Effect& effect) {
  if (std::holds_alternative<protocol::Append>(effect) || std::holds_alternative<protocol::AwaitDurable>(effect)) {
    throw Violation{0, "the driver passes on what it must do itself"};
  }
  if (const auto* call = std::get_if<protocol::Call>(&effect)) check_call(*call);
  if (const auto* cancel = std::get_if<protocol::Cancel>(&effect)) on_cancel(cancel->call);
  if (const auto* save = std::get_if<protocol::TriggerSave>(&effect)) check_save(*save);
  if (const auto* build = std::get_if<protocol::BuildGroup>(&effect)) check_build(*build);
  if (const auto* drop = std::get_if<protocol::DropGroup>(&effect)) check_drop(*drop);
  if (const auto* run = std::get_if<protocol::RunTransfer>(&effect)) check_transfer(*run);
  if (const auto* seal = std::get_if<protocol::Seal>(&effect)) check_seal(*seal);
  if (const auto* discard = std::get_if<protocol::Discard>(&effect)) check_discard(*discard);
  if (const auto* ended = std::get_if<protocol::UpdateEnded>(&effect)) check_ended(*ended);
  if (const auto* fence = std::get_if<protocol::Fence>(&effect)) check_fence(*fence);
  if (std::holds_alternative<protocol::Stopped>(effect)) {
    if (!w_.clients.shut_down()) throw Violation{0, "Stopped, and nobody asked for it"};
    stopped_ = true;
  }
}

void Invariants::gateway_died(const std::vector<Record>& journal) {
  gateway_died_ = true;
  forget_groups();
  pairs_.clear();  // what a step had done and the disk never saw didn't happen
  for (const Record& record : journal) {
    if (record.kind == RecordKind::pair_removed) pairs_.erase(record.pair);
    if (record.kind != RecordKind::commit) continue;
    PairBook& book = pairs_[record.pair];
    const auto update = commits_of_.find(record.update);
    book.commits.push_back(update->second);
    book.went_back = record.body.contains("rollback");
    book.pointer = update->second;
    book.contents.insert(commit_contents_.at(record.update));
  }
  for (auto& [url, book] : books_) {
    for (OpenCall& open : book.in_flight) {
      const bool doubt = changes_engine(open.operation.kind) && !pays_flush(open.operation.kind, open.update);
      if (doubt) book.unresolved.push_back(std::move(open));
    }
    book.in_flight.clear();
    for (OpenCall& open : book.unresolved) open.connected = false;
  }
  for (const auto& [id, call] : adapter_calls_) doubt_adapter(call);
  adapter_calls_.clear();  // what still runs of them in an engine is behind the lock that any later one waits for
  ended_.insert(end_records_.begin(), end_records_.end());  // whoever asks finds it ended
  intents_.clear();                                         // no call of the next process rests on one of these
  admitted_at_.clear();                                     // its deadlines begin anew
  prepared_.clear();                                        // a directory that the journal never heard of stays, empty
}

void Invariants::tail_lost(const std::vector<Record>& journal) {
  for (auto& [url, book] : books_) {
    book.in_flight.clear();
    book.unresolved.clear();
    book.paused_by_us = false;
    book.excused = book.adapters_excused = true;
    book.known = book.loaded_by_us = false;  // it is registered anew with what it holds by now
  }
  for (auto& [call, save] : saves_) save.ended = true;
  records_lost_ = true;
  commit_records_.clear();
  end_records_.clear();
  ended_.clear();
  for (const Record& record : journal) {
    if (record.kind == RecordKind::commit) commit_records_.insert(record.update);
    if (record.kind == RecordKind::update_ended) end_records_.insert(record.update);
  }
}

void Invariants::look_at_registry() {
  for (auto& [url, book] : books_) {
    if (book.known && state().workers.count(url) == 0) {
      book.known = false;
      book.loaded_by_us = false;
    }
  }
  for (const auto& [url, worker] : state().workers) {
    Book& book = books_[url];
    // One that only LoRA pairs use any more begins anew.
    if (!book.pair.empty() && worker.pair.empty()) {
      book.known = book.loaded_by_us = false;
      book.paused_by_us = book.paused_by_us && w_.scenario.has_rivals();  // else whoever is paused at rest counts
    }
    // So does one that was let go of and listed again in one go: nobody has read it since.
    const bool is_unread = worker.incarnation.empty() && worker.start_label.empty() && worker.start_path.empty();
    if (book.loaded_by_us && is_unread) book.known = book.loaded_by_us = false;
    book.pair = worker.pair;
    if (book.known) continue;
    book.known = true;
    if (const Engine* engine = w_.network.find(url)) book.baseline = engine->truth().content;
    book.baselines.insert(book.baseline);
  }
  std::erase_if(pairs_, [&](const auto& entry) { return state().pairs.count(entry.first) == 0; });
}

void Invariants::check_state() {
  look_at_registry();
  for (const auto& [url, worker] : state().workers) check_worker(worker);
  for (const auto& [name, pair] : state().pairs) {
    check_pair(name, pair);
    check_adapters(pair);
    const auto active = state().updates.find(pair.active);
    if (active == state().updates.end()) continue;
    ++w_.coverage.phases[static_cast<std::size_t>(active->second.state)];
    for (const auto& [url, target] : active->second.targets) ++w_.coverage.steps[static_cast<std::size_t>(target.step)];
    check_verdicts(active->second);
    check_time(active->second);
  }
}

void Invariants::check_worker(const protocol::Worker& worker) {
  ++w_.coverage.workers[static_cast<std::size_t>(worker.state)];
  const bool out = worker.state == WorkerState::quarantined || worker.state == WorkerState::abandoned;
  if (worker.pair.empty() && worker.state != WorkerState::ready)
    throw Violation{15, fmt::format("only LoRA pairs use {}, and it is {}", worker.url, name(worker.state))};
  if (out && !worker.cause) throw Violation{7, fmt::format("{} is {} without a cause", worker.url, name(worker.state))};
  if (worker.state == WorkerState::ready) check_ready(worker);
}

void Invariants::check_ready(const protocol::Worker& worker) {
  if (!w_.owns(worker.pair) || worker.taken_over) return;  // another's, or its former owner's until it was read
  if (worker.pair.empty()) return;  // what its model is, and whether it is paused, is nobody's here
  const Book& book = books_[worker.url];
  for (const OpenCall& earlier : book.unresolved) {
    if (changes_weights(earlier.operation.kind) || earlier.operation.kind == OperationKind::pause) {
      throw Violation{1, fmt::format("{} is ready although {} (call {}) may still take effect", worker.url,
                                     name(earlier.operation.kind), earlier.call)};
    }
  }
  if (comparable(worker) && !truth(worker.url).released.empty())
    throw Violation{1, fmt::format("{} is ready without its memory", worker.url)};
  const auto owner = state().pairs.find(worker.pair);
  const bool caller = owner != state().pairs.end() && owner->second.spec.policy.pause == protocol::PauseOwner::caller;
  if (book.paused_by_us && !caller && comparable(worker) && truth(worker.url).paused &&
      !truth(worker.url).foreign_paused) {
    throw Violation{7, fmt::format("{} is ready, and paused by us", worker.url)};
  }
  if (book.loaded_by_us && comparable(worker)) {
    const EngineTruth& real = truth(worker.url);
    const std::int64_t expected = worker.version ? content_of(worker.pair, *worker.version) : book.baseline;
    const bool start = !worker.version && real.content == kStartContent;
    if (real.torn || real.poisoned || (real.content != expected && !start)) {
      throw Violation{1, fmt::format("{} is ready and said to hold '{}' ({}), but holds {}{}", worker.url,
                                     worker.version ? worker.version->directory : "its start weights", expected,
                                     real.content, real.torn || real.poisoned ? ", torn" : "")};
    }
    // At rest its label is the version's; of start weights each engine has its own.
    const bool ours = worker.version && worker.version->lineage != 0;
    const bool wrong = ours ? real.label != worker.version->label : real.label.starts_with("loading:");
    if (worker.locked_by.empty() && wrong) {
      throw Violation{1, fmt::format("{} is ready and its label is '{}'", worker.url, real.label)};
    }
    const auto pair = state().pairs.find(worker.pair);
    const bool keeps = pair != state().pairs.end() && pair->second.spec.policy.pause_mode == PauseMode::keep;
    if (real.stale && !keeps && !real.lied_of_caches)
      throw Violation{1, fmt::format("{} is ready and serves caches of other weights", worker.url)};
    if (pair != state().pairs.end() && worker.version && worker.version->lineage != 0 &&
        pair->second.spec.policy.evidence) {
      const Evidence asked = std::min(*pair->second.spec.policy.evidence, Evidence::checksum);
      const Directory* directory = w_.store.find(worker.version->directory);
      const bool vacuous = worker.version->directory.empty() || (directory != nullptr && directory->vacuous);
      const bool probe = pair->second.spec.policy.evidence == Evidence::probe;
      if (!vacuous && !probe && worker.evidence < asked) {
        throw Violation{1, fmt::format("{} is ready by '{}', the pair asks for '{}'", worker.url, name(worker.evidence),
                                       name(asked))};
      }
    }
  }
  check_lag(worker);
}

void Invariants::check_lag(const protocol::Worker& worker) {
  const auto found = state().pairs.find(worker.pair);
  if (found == state().pairs.end() || !found->second.active.empty() || !worker.locked_by.empty()) return;
  const protocol::Pair& pair = found->second;
  if (!pair.committed || !pair.removing.empty()) return;
  if (worker.version && worker.version->same_version(*pair.committed)) return;
  const std::vector<VersionRef>& commits = pairs_[worker.pair].commits;
  std::int64_t lag = static_cast<std::int64_t>(commits.size());
  for (std::size_t i = 0; worker.version && i < commits.size(); ++i) {
    if (commits[i].same_version(*worker.version)) lag = static_cast<std::int64_t>(commits.size() - 1 - i);
  }
  if (lag <= pair.spec.policy.max_lag) return;
  throw Violation{2, fmt::format("{} is ready with version {}, {} has committed {} (max_lag {})", worker.url,
                                 worker.version ? worker.version->version : -1, worker.pair, pair.committed->version,
                                 pair.spec.policy.max_lag)};
}

// A committed version, or what a worker of the pair held when it was registered.
bool Invariants::may_be_last_good(const std::string& pair, std::int64_t content) const {
  if (content == kStartContent || is_of_rival(content)) return true;
  const auto book = pairs_.find(pair);
  if (book != pairs_.end() && book->second.contents.count(content) > 0) return true;
  return std::any_of(state().workers.begin(), state().workers.end(), [&](const auto& entry) {
    const auto own = books_.find(entry.first);
    return entry.second.pair == pair && own != books_.end() && is_baseline(own->second, content);
  });
}

void Invariants::check_pair(const std::string& name, const protocol::Pair& pair) {
  PairBook& book = pairs_[name];
  const bool changed = pair.committed && (!book.pointer || !book.pointer->same_version(*pair.committed) ||
                                          book.pointer->directory != pair.committed->directory);
  // Removed and connected again in one go: another pair of that name.
  if (book.pointer && !pair.committed && !pair.highest && pair.stored.empty()) book = PairBook();
  if (book.pointer && !pair.committed) throw Violation{4, name + " has lost its committed version"};
  if (changed) {
    if (book.commits.empty() || !book.commits.back().same_version(*pair.committed)) {
      throw Violation{
          3, fmt::format("{} points to version {} before its commit record is durable", name, pair.committed->version)};
    }
    if (!book.went_back && book.pointer && book.pointer->lineage == pair.committed->lineage &&
        book.pointer->version >= pair.committed->version) {
      throw Violation{
          4, fmt::format("{} goes from version {} to {}", name, book.pointer->version, pair.committed->version)};
    }
    book.pointer = pair.committed;
  }
  if (pair.last_good && discarded_.count(pair.last_good->directory) > 0) {
    throw Violation{12, fmt::format("the last good version of {} was discarded", name)};
  }
  if (pair.last_good && !may_be_last_good(name, content_of(pair.last_good->directory))) {
    throw Violation{12, fmt::format("the last good version of {} was never committed", name)};
  }
  if (w_.scheduler.steps() % 32 != 0) return;
  int active = 0;
  for (const auto& [id, update] : state().updates) {
    if (update.pair == name && update.kind == protocol::UpdateKind::update && update.state != UpdateState::queued &&
        !protocol::is_terminal(update.state)) {
      ++active;
    }
  }
  if (active > 1) throw Violation{5, fmt::format("{} has {} active updates", name, active)};
}

// What the machine says it has verified is so.
void Invariants::check_verdicts(const protocol::Update& update) {
  if (update.state != UpdateState::loading && update.state != UpdateState::verifying &&
      update.state != UpdateState::committing)
    return;
  for (const auto& [url, target] : update.targets) {
    if (target.verdict != protocol::Verdict::verified || target.step != protocol::Step::judged) continue;
    if (is_lora(update)) {
      check_adapter_verdict(update, url, target);
      continue;
    }
    const auto worker = state().workers.find(url);
    if (worker == state().workers.end() || !comparable(worker->second)) continue;
    const EngineTruth& real = truth(url);
    if (real.torn || real.poisoned || real.content != content_of(update.pair, update.version)) {
      throw Violation{3, fmt::format("{} counts as verified, but holds {}{} instead of '{}'", url, real.content,
                                     real.torn ? ", torn" : "", update.version.directory)};
    }
  }
}

void Invariants::check_time(const protocol::Update& update) {
  if (update.state == UpdateState::queued) return;
  const Instant admitted = admitted_at_.emplace(update.id, w_.scheduler.now()).first->second;
  const protocol::Deadlines& d = update.policy.deadlines;
  const Milliseconds restore = d.restore.value_or(2 * d.load + d.verify + d.resume);
  const Milliseconds whole = d.whole.value_or(d.save + d.pause + d.load + d.verify + d.resume + restore);
  const std::int64_t took = (w_.scheduler.now() - admitted).count();
  if (took > (whole + restore).count() + kTimeSlackMs) {
    throw Violation{16, fmt::format("update {} runs for {} s and is {}", update.id, took / 1000, name(update.state))};
  }
}

int Invariants::members_of(const protocol::Update& update) const {
  int members = 0;
  for (const auto& [url, target] : update.targets) {
    const bool left_early = !target.included && loads_.count({update.id, url}) == 0;
    if (target.role == protocol::Role::member && !left_early) ++members;
  }
  return members;
}

void Invariants::on_append(const std::vector<Record>& group) {
  for (const Record& record : group) {
    if (record.kind == RecordKind::commit) check_commit(record);
  }
}

void Invariants::check_commit(const Record& record) {
  const auto found = state().updates.find(record.update);
  if (found == state().updates.end()) throw Violation{3, "a commit of an unknown update " + record.update};
  const protocol::Update& update = found->second;
  if (update.version.directory.empty()) {
    check_transferred(update);
  } else if (sealed_.count(update.version.directory) == 0) {
    throw Violation{3, fmt::format("{} commits '{}', which isn't sealed", record.pair, update.version.directory)};
  }
  int verified = 0;
  for (const auto& [url, target] : update.targets) {
    if (target.role == protocol::Role::member && target.verdict == protocol::Verdict::verified) ++verified;
  }
  const int needed = quorum_needed(update.policy, members_of(update));
  needed_at_commit_[update.id] = needed;
  if (verified < needed)
    throw Violation{3, fmt::format("{} commits with {} of {} verified", record.pair, verified, needed)};
  for (const VersionRef& earlier : pairs_[record.pair].commits) {
    const bool other = update.version.directory.empty() ||  // trainers go on: what is sent again is never the same
                       content_of(record.pair, earlier) != content_of(record.pair, update.version);
    if (earlier.same_version(update.version) && other) {
      throw Violation{13,
                      fmt::format("{} commits version {} again with other bytes", record.pair, update.version.version)};
    }
  }
}

// The rest of section 13 that belongs to the end of an update stands here, beside the quorum's arithmetic.
void Invariants::check_quorum_at_end(const protocol::Update& update) {
  if (state().pairs.count(update.pair) == 0) return;  // removed in the same breath
  int ready = 0;
  for (const auto& [url, target] : update.targets) {
    const auto worker = state().workers.find(url);
    if (target.role != protocol::Role::member) continue;
    // Its pair let it go in the same breath; LoRA pairs may use it still.
    const bool left = worker == state().workers.end() || worker->second.pair != update.pair;
    if (is_lora(update)) {
      ready += target.verdict == protocol::Verdict::verified ? 1 : 0;
      continue;
    }
    const bool serves =
        target.ended_as.value_or(left ? WorkerState::ready : worker->second.state) == WorkerState::ready;
    const bool moved_on = !left && worker->second.state != WorkerState::ready;  // by its operator, in the same breath
    const bool holds_it =
        left || moved_on || (worker->second.version && worker->second.version->same_version(update.version));
    if (serves && holds_it) {
      ++ready;
    }
  }
  const auto counted = needed_at_commit_.find(update.id);
  const int needed =
      counted != needed_at_commit_.end() ? counted->second : quorum_needed(update.policy, members_of(update));
  if (ready < needed) {
    throw Violation{11,
                    fmt::format("update {} is {} with {} of {} ready", update.id, name(update.state), ready, needed)};
  }
}

}  // namespace weighlock::sim
