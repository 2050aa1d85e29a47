// LOADING of a LoRA update: one pipeline per worker. Batches, windows of loads and the decision are shared with
// load.cpp.
//
//   [adapter_listing] -> { [adapter_unloading ->] adapter_loading } for each name that it lacks, the new one last
//   -> adapter_listing -> judged
//
// What to send next follows from what is known and listed (`next_step`), so a lost answer, a restart in between and a
// name with other bytes need no paths of their own.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "weighlock/protocol/lora.hpp"
#include "weighlock/protocol/ownership.hpp"
#include "weighlock/protocol/phases.hpp"

namespace weighlock::protocol {
namespace {

using namespace std::chrono_literals;

constexpr int kLoadTries = 3;       // of one name; each follows a lost answer or an unload
constexpr int kUnloadTries = 2;     // of one name, each perhaps confirmed by a second call
constexpr int kDirectoryTries = 5;  // a lagging mount: 0.5 + 1 + 2 + 4 s
constexpr int kReadTries = 3;
constexpr int kRestartsMax = 1;  // a process that comes and goes isn't waited for
constexpr Milliseconds kRetryFirst = 500ms;
constexpr int kRepairShare = 3;  // older names get a third of the load's deadline: the new one must not wait for them

// One worker's part of the update, as the functions below need it.
struct Work {
  Context& context;
  Update& update;
  Target& target;
  Pair& pair;
  WorkerAdapters& known;
  AdapterProgress& progress;
  AdapterVersion wanted;  // the new version
};

Work work_on(Context& context, Update& update, Target& target) {
  AdapterVersion wanted{new_name(context, update), update.attempt, update.version, may_be_reused(update)};
  return Work{context,         update,           target, context.pair_of(update), adapters_of(context, update, target),
              *target.adapter, std::move(wanted)};
}

// By answers, and by the list where there is a fresh one.
bool serves(const Work& work, const AdapterVersion& version) {
  return holds(work.known, version) && (!work.progress.fresh || work.progress.listed.contains(version.name));
}

// What the list proves of a name that we may have loaded.
void learn(Work& work, const AdapterVersion& version) {
  if (!work.progress.fresh || work.known.taken_over) return;
  const auto listed = work.progress.listed.find(version.name);
  if (listed == work.progress.listed.end()) return;
  const auto it = work.known.names.find(version.name);
  if (it != work.known.names.end()) {
    // Whatever other attempt held the name was surely unloaded before ours was sent.
    if (it->second.attempt == version.attempt) it->second.certain = true;
    return;
  }
  // Not loaded by this process, but from a directory that only this attempt ever had.
  if (version.reused || listed->second != version.version.directory) return;
  work.known.names[version.name] = KnownAdapter{version.version.version, version.attempt, version.version.directory,
                                                true, version.name != work.wanted.name};
}

// The first name that it lacks; the older ones come first, so that an engine that keeps only so many drops those.
std::optional<AdapterVersion> first_lacking(Work& work) {
  for (const AdapterVersion& version : older_of_window(work.pair, work.wanted.name)) {
    learn(work, version);
    if (!serves(work, version) && !work.progress.given_up.contains(version.name)) return version;
  }
  learn(work, work.wanted);
  if (!serves(work, work.wanted)) return work.wanted;
  return std::nullopt;
}

void send_list(Work& work) {
  Operation operation;
  operation.kind = OperationKind::list_adapters;
  work.progress.confirmed = true;
  call_adapter(work.context, work.update, work.target, Step::adapter_listing, std::move(operation));
}

void send_unload(Work& work, const std::string& name, bool again) {
  Operation operation;
  operation.kind = OperationKind::unload_adapter;
  operation.adapter = name;
  work.progress.name = name;
  work.progress.again = again;
  work.progress.fresh = false;
  call_adapter(work.context, work.update, work.target, Step::adapter_unloading, std::move(operation));
}

void send_load(Work& work, const AdapterVersion& version) {
  const auto before = work.known.names.find(version.name);
  work.progress.repeated = before != work.known.names.end();
  work.progress.name = version.name;
  work.progress.fresh = false;
  ++work.progress.loads[version.name];
  work.known.names[version.name] = KnownAdapter{version.version.version, version.attempt, version.version.directory,
                                                false, version.name != work.wanted.name};
  if (version.name == work.wanted.name) {
    if (!work.target.load_sent) work.target.load_started = work.context.now();
    work.target.load_sent = true;
  }
  Operation operation;
  operation.kind = OperationKind::load_adapter;
  operation.adapter = version.name;
  operation.directory = version.version.directory;
  call_adapter(work.context, work.update, work.target, Step::adapter_loading, std::move(operation));
}

void next_step(Work& work);

// The new name decides; an older one that can't be had is only told.
void fail(Work& work, const std::string& name, Verdict verdict, CauseCode code, std::string text) {
  if (name == work.wanted.name) {
    judge_adapter(work.context, work.target, verdict, code, std::move(text));
    return decide_loading(work.context, work.update);
  }
  work.progress.given_up.insert(name);
  work.progress.missing.push_back(std::move(text));
  next_step(work);
}

void judge_verified(Work& work) {
  Target& target = work.target;
  work.context.cancel_timer(work.update, target.worker);
  target.step = Step::judged;
  target.verdict = Verdict::verified;
  target.evidence = work.progress.tells ? Evidence::label : Evidence::acknowledged;
  target.switched_at = work.context.now();
  if (!target.load_took) target.load_took = Milliseconds{0};  // it served it already
  target.cause.reset();
  decide_loading(work.context, work.update);
}

// Older names may take their share of the deadline, and no more.
void limit_repair(Work& work, const AdapterVersion& lacking) {
  if (lacking.name == work.wanted.name) return work.context.cancel_timer(work.update, work.target.worker);
  const Milliseconds left = work.progress.repairs_end - work.context.now();
  work.context.start_timer(work.update, work.target.worker, std::max(Milliseconds{1}, left));
}

void next_step(Work& work) {
  const std::optional<AdapterVersion> lacking = first_lacking(work);
  if (!lacking) {
    if (work.progress.tells && (!work.progress.fresh || !work.progress.confirmed)) return send_list(work);
    return judge_verified(work);
  }
  limit_repair(work, *lacking);
  const auto it = work.known.names.find(lacking->name);
  const bool known = it != work.known.names.end();
  const bool ours = known && it->second.attempt == lacking->attempt;
  const bool listed = work.progress.listed.contains(lacking->name);  // of late, and not unloaded since
  if (work.known.taken_over || ((listed || known) && !ours)) {
    if (++work.progress.unloads[lacking->name] > kUnloadTries)
      return fail(
          work, lacking->name, Verdict::unknown, CauseCode::adapter_failed,
          fmt::format("load of {}: the name holds other bytes, and comes back when it is unloaded", lacking->name));
    work.progress.doubtful = work.known.taken_over || (known && !it->second.certain);
    return send_unload(work, lacking->name, false);
  }
  if (const std::string why = rank_refusal(work.update, work.known); !why.empty() && lacking->name == work.wanted.name)
    return fail(work, lacking->name, Verdict::untouched, CauseCode::adapter_failed,
                fmt::format("load of {}: not sent: it {}", lacking->name, why));
  if (work.progress.loads[lacking->name] >= kLoadTries)
    return fail(work, lacking->name, Verdict::unknown, CauseCode::adapter_failed,
                fmt::format("load of {}: sent {} times, and the engine doesn't list it", lacking->name, kLoadTries));
  if (ours && !it->second.certain && !work.progress.fresh && work.progress.tells) return send_list(work);
  send_load(work, *lacking);
}

void on_unloaded(Work& work, const Outcome& outcome) {
  const std::string name = work.progress.name;
  if (says_gone(outcome)) {
    // A load that was sent before may have come in behind the first unload; nothing comes in behind its answer.
    if (work.progress.doubtful && !work.progress.again) return send_unload(work, name, true);
    work.known.names.erase(name);
    work.progress.listed.erase(name);
    work.progress.seen.erase(name);
    const bool is_barrier = work.progress.again && std::exchange(work.known.taken_over, false);
    if (is_barrier && work.progress.tells) return send_list(work);  // what the former owner left is all there now
    return next_step(work);
  }
  KnownAdapter& entry = work.known.names[name];
  entry.certain = false;
  entry.attempt = 0;
  if (outcome.code == ErrorCode::adapter_half_unloaded) return next_step(work);
  fail(work, name, Verdict::untouched,
       outcome.code == ErrorCode::permission_denied ? CauseCode::credentials : CauseCode::adapter_failed,
       fmt::format("load of {}: the name holds other bytes, which could not be unloaded: {}", name, outcome.text));
}

// The name is held by bytes that are not this attempt's, or half gone: unloaded first.
void take_over(Work& work, const std::string& name) {
  work.known.names[name].attempt = 0;
  work.known.names[name].certain = false;
  next_step(work);
}

// Refused, and nothing of this load is left behind.
void on_refused(Work& work, const std::string& name, const Outcome& outcome) {
  const std::string text = fmt::format("load of {}: {}", name, outcome.text);
  const bool is_new = name == work.wanted.name;
  if (!work.progress.repeated) work.known.names.erase(name);
  const Verdict verdict = work.progress.repeated ? Verdict::unknown : Verdict::untouched;
  if (outcome.kind == OutcomeKind::not_sent) {
    if (is_new && !work.progress.repeated) {
      work.target.included = false;
      work.target.counted_lost = true;
      work.target.load_sent = false;
    }
    return fail(work, name, verdict, CauseCode::unreachable, text);
  }
  if (is_new && outcome.code == ErrorCode::checkpoint_missing && ++work.target.tries < kDirectoryTries) {
    --work.progress.loads[name];
    return start_retry(work.context, work.update, work.target, kRetryFirst * (1 << (work.target.tries - 1)));
  }
  fail(work, name, verdict,
       outcome.code == ErrorCode::permission_denied ? CauseCode::credentials : CauseCode::adapter_failed, text);
}

void on_loaded(Work& work, const Outcome& outcome) {
  const std::string name = work.progress.name;
  const bool refused = outcome.kind == OutcomeKind::untouched || outcome.kind == OutcomeKind::not_sent;
  if (outcome.ok() || (refused && outcome.code == ErrorCode::adapter_exists && work.progress.repeated)) {
    work.known.names[name].certain = true;
    work.progress.seen.insert(name);
    if (name == work.wanted.name) work.target.verdict = Verdict::loaded;
    if (name == work.wanted.name) work.target.load_took = work.context.now() - work.target.load_started;
    return next_step(work);
  }
  if (refused && (outcome.code == ErrorCode::adapter_exists || outcome.code == ErrorCode::adapter_half_unloaded))
    return take_over(work, name);
  if (refused) return on_refused(work, name, outcome);
  if (outcome.kind == OutcomeKind::unknown) {
    if (work.progress.tells || work.progress.loads[name] < kLoadTries) return next_step(work);
  }
  fail(work, name, Verdict::unknown, CauseCode::adapter_failed, fmt::format("load of {}: {}", name, outcome.text));
}

// An engine that has fewer places than the window has versions drops one for each that it loads. What it dropped in
// this update isn't loaded again: that would drop another.
void give_up_dropped(Work& work) {
  if (work.progress.loads.empty()) return;
  for (const AdapterVersion& version : older_of_window(work.pair, work.wanted.name)) {
    const bool dropped = work.progress.seen.contains(version.name) && !work.progress.listed.contains(version.name);
    if (!dropped || !work.progress.given_up.insert(version.name).second) continue;
    work.progress.missing.push_back(fmt::format(
        "{}: the engine dropped it when another was loaded; it keeps fewer adapters than the window (SGLang: "
        "--max-loaded-loras)",
        version.name));
  }
}

void on_listed(Work& work, const Outcome& outcome) {
  Target& target = work.target;
  if (outcome.ok() && outcome.reading) {
    target.tries = 0;
    // Answers since the last list may have been another process's.
    for (const auto& [name, sent] : work.progress.loads) {
      if (const auto it = work.known.names.find(name); it != work.known.names.end() && sent > 0)
        it->second.certain = it->second.certain && !is_of_new_process(work.known, *outcome.reading);
    }
    const bool is_new = observe_adapters(work.context, work.known, *outcome.reading);
    target.incarnation = work.known.incarnation;
    Worker& worker = work.context.worker_of(target);
    if (worker.pair.empty()) worker.incarnation = work.known.incarnation;  // what its own looks read seldom
    work.progress.listed.clear();
    work.progress.tells = outcome.reading->adapters.has_value();
    for (const LoadedAdapter& one : outcome.reading->adapters.value_or(std::vector<LoadedAdapter>{}))
      work.progress.listed[one.name] = one.directory;
    work.progress.fresh = work.progress.tells;
    if (is_new) work.progress.seen.clear();
    if (work.progress.tells) {
      note_listed(work.context, work.pair, work.known, work.progress.listed);
      give_up_dropped(work);
      for (const auto& [name, directory] : work.progress.listed) work.progress.seen.insert(name);
    }
    if (is_new && ++work.progress.restarts > kRestartsMax) {
      judge_adapter(work.context, target, Verdict::unknown, CauseCode::restarted, "list: a new process answers again");
      return decide_loading(work.context, work.update);
    }
    return next_step(work);
  }
  if (outcome.kind == OutcomeKind::unknown && ++target.tries < kReadTries)
    return start_retry(work.context, work.update, target, kRetryFirst * (1 << (target.tries - 1)));
  const bool gone = outcome.kind == OutcomeKind::not_sent;
  judge_adapter(work.context, target, target.load_sent ? Verdict::unknown : Verdict::untouched,
                gone ? CauseCode::unreachable : CauseCode::adapter_failed,
                fmt::format("list of adapters: {}", outcome.text));
  decide_loading(work.context, work.update);
}

}  // namespace

void begin_adapter_loading(Context& context, Update& update) {
  if (waits_for_epoch(context, update)) return;
  std::set<std::string> workers;
  for (const auto& [url, target] : update.targets) {
    if (target.included) workers.insert(url);
  }
  const bool waited = update.waits_for_locks;
  if (!take_locks(context, update, std::move(workers))) return;
  for (auto& [url, target] : update.targets) {
    if (!target.included) continue;
    target.adapter->fresh = target.adapter->fresh && !waited;  // another may have restarted it meanwhile
    if (context.worker_of(target).earlier.empty()) continue;
    judge_adapter(context, target, Verdict::untouched, CauseCode::outstanding, "an earlier call may still run in it");
    target.included = false;
    target.counted_lost = true;
  }
  begin_loading(context, update);
}

void launch_adapter(Context& context, Update& update, Target& target) {
  Work work = work_on(context, update, target);
  target.tries = 0;
  work.progress.repairs_end = context.now() + update.policy.deadlines.load / kRepairShare;
  if (!work.progress.fresh && work.progress.tells) return send_list(work);
  next_step(work);
}

void on_adapter_loading_call(Context& context, Update& update, Target& target, const Outcome& outcome) {
  Work work = work_on(context, update, target);
  if (target.step == Step::adapter_listing) return on_listed(work, outcome);
  if (target.step == Step::adapter_loading) return on_loaded(work, outcome);
  on_unloaded(work, outcome);
}

// The pause before a repetition is over, or the time for older names is.
void on_adapter_timer(Context& context, Update& update, Target& target) {
  Work work = work_on(context, update, target);
  if (!target.call && target.step == Step::adapter_listing) return send_list(work);
  if (!target.call && target.step == Step::adapter_loading) return next_step(work);
  if (!target.call) return;
  const bool changes = target.step == Step::adapter_loading || target.step == Step::adapter_unloading;
  for (const AdapterVersion& version : older_of_window(work.pair, work.wanted.name)) {
    if (serves(work, version) || !work.progress.given_up.insert(version.name).second) continue;
    work.progress.missing.push_back(fmt::format("load of {}: no time was left for it", version.name));
  }
  if (!changes || work.progress.name == work.wanted.name) return;
  give_up_adapter_call(context, target);
  next_step(work);
}

void judge_adapter(Context& context, Target& target, Verdict verdict, CauseCode code, std::string text) {
  const bool kept = code == CauseCode::unreachable || code == CauseCode::restarted || code == CauseCode::credentials ||
                    code == CauseCode::outstanding;
  target.step = Step::judged;
  target.verdict = verdict == Verdict::torn ? Verdict::unknown : verdict;  // weights are not touched
  target.cause = context.cause(kept ? code : CauseCode::adapter_failed, std::move(text));
}

}  // namespace weighlock::protocol
