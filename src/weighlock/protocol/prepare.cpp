// PREPARING: engines serve all the while (protocol.md section 1).
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "weighlock/core/limits.hpp"
#include "weighlock/protocol/awex.hpp"
#include "weighlock/protocol/lora.hpp"
#include "weighlock/protocol/mutant.hpp"
#include "weighlock/protocol/ownership.hpp"
#include "weighlock/protocol/phases.hpp"

namespace weighlock::protocol {
namespace {

using namespace std::chrono_literals;

// A collective that lost a rank ends by itself after this long (AReaL's process group time-out).
constexpr Milliseconds kTrainerCollectiveTimeout = 7200s;
// After the first rank failed the others get this long to say their own words before the client is answered.
constexpr Milliseconds kSaveGrace = 200ms;

Error about(const Update& update, ErrorCode code, std::string_view text) {
  return Error{code, fmt::format("pair '{}': v{}: {}", update.pair, update.version.version, text), nullptr};
}

std::string busy_trainers(Context& context, const Pair& pair) {
  auto& busy = context.state().busy;
  std::erase_if(busy,
                [&](const auto& entry) { return context.now() - entry.second.since > kTrainerCollectiveTimeout; });
  std::string names;
  for (const std::string& url : pair.spec.trainer_urls) {
    if (busy.contains(url)) names += (names.empty() ? "" : ", ") + url;
  }
  return names;
}

std::optional<Error> refuse_admission(Context& context, const Update& update, Pair& pair) {
  if (update.rollback) return refuse_rollback_now(pair, update);
  const VersionRef& version = update.version;
  if (pair.committed && pair.committed->lineage == version.lineage && version.version < pair.committed->version)
    return about(update, ErrorCode::version_not_newer,
                 fmt::format("v{} is committed; a lower version is refused", pair.committed->version));
  const bool is_used = pair.highest && pair.highest->lineage == version.lineage &&
                       version.version <= pair.highest->version && !pair.committed->same_version(version);
  if (is_used)
    return about(update, ErrorCode::version_not_newer,
                 fmt::format("v{} was committed before the pair was rolled back to v{}; a number is used once, so "
                             "publish a higher one",
                             pair.highest->version, pair.committed->version));
  const auto spoiled = pair.spoiled.find(version_key(version));
  if (spoiled != pair.spoiled.end() && !spoiled->second.empty())
    return about(update, ErrorCode::version_reused,
                 fmt::format("an attempt at it left {} in an unknown or quarantined state; publish a "
                             "higher version",
                             *spoiled->second.begin()));
  if (pair.spec.lora) {
    if (auto error = refuse_adapter_policy(update)) return error;
  }
  if (update.transfer && pair.committed && pair.committed->same_version(version))
    return about(update, ErrorCode::version_reused,
                 "it is committed already, and what was transferred can't be compared; publish a higher version");
  const std::string busy = update.path.empty() ? busy_trainers(context, pair) : "";
  if (!busy.empty()) {
    return about(update, ErrorCode::trainer_busy,
                 fmt::format("the save of an earlier attempt still runs on {}; a second one would break "
                             "its collective",
                             busy));
  }
  return std::nullopt;
}

bool is_committed_version(const Pair& pair, const Update& update) {
  return pair.committed && pair.committed->same_version(update.version);
}

// Before the first commit: the model that every engine of the pair started with, if they agree; "" = none (protocol.md
// section 6). An engine may have been started from a version of ours, and a directory that is on its way out is no
// ground to stand on.
std::string start_model(const State& state, const std::string& pair) {
  std::set<std::string> starts;
  for (const auto& [url, worker] : state.workers) {
    if (worker.pair == pair && !worker.start_path.empty()) starts.insert(worker.start_path);
  }
  if (starts.size() != 1 || !starts.begin()->starts_with('/')) return "";
  const auto is_doomed = [&](const auto& entry) {
    const std::deque<DoomedDirectory>& doomed = entry.second.doomed;
    return std::any_of(doomed.begin(), doomed.end(),
                       [&](const DoomedDirectory& one) { return one.directory == *starts.begin(); });
  };
  return std::any_of(state.pairs.begin(), state.pairs.end(), is_doomed) ? "" : *starts.begin();
}

// The start model was inspected, and is what it was when the inspection began: last good, until the first commit.
void trust_start_model(Context& context, const Update& update) {
  if (update.start_model.empty() || update.start_model != start_model(context.state(), update.pair)) return;
  const auto& workers = context.state().workers;
  const auto first = std::find_if(workers.begin(), workers.end(), [&](const auto& entry) {
    return entry.second.pair == update.pair && entry.second.start_path == update.start_model;
  });
  const std::string& label = first->second.start_label;
  context.pair_of(update).last_good = VersionRef{0, 0, update.start_model, label, ""};
  context.record(RecordKind::last_good, update, "", {{"directory", update.start_model}, {"label", label}});
}

}  // namespace

void seal_when_ready(Context& context, Update& update) {
  if (!update.save_done || !update.survey_done) return;
  const Pair& pair = context.pair_of(update);
  Seal seal;
  seal.update = update.id;
  seal.pair = update.pair;
  seal.save_path = pair.spec.save_path;
  seal.directory = update.version.directory;
  seal.foreign = !update.path.empty();
  if (pair.spec.lora) {
    describe_adapter(context, update, seal);
  } else if (pair.last_good) {
    seal.reference_directory = pair.last_good->directory;
  } else {
    seal.reference_directory = start_model(context.state(), update.pair);
    if (!pair.committed) update.start_model = seal.reference_directory;
  }
  seal.lineage = update.version.lineage;
  seal.version = update.version.version;
  seal.attempt = update.attempt;
  seal.allow_layout_change = update.policy.allow_layout_change;
  seal.digest_now = update.policy.digest == DigestPolicy::before || is_committed_version(pair, update);
  if (update.rollback) describe_stored(pair, update, seal);
  context.emit(std::move(seal));
}

namespace {

void trigger_saves(Context& context, Update& update) {
  Pair& pair = context.pair_of(update);
  json::array ranks;
  const std::size_t count = pair.spec.save_trigger == SaveTrigger::rank0 ? 1 : pair.spec.trainer_urls.size();
  for (std::size_t i = 0; i < count; ++i) ranks.push_back(json::string(pair.spec.trainer_urls[i]));
  context.record(
      RecordKind::save_intent, update, "",
      {{"directory", update.version.directory}, {"save_path", update.save_path}, {"ranks", std::move(ranks)}});
  for (std::size_t i = 0; i < count; ++i) {
    const std::string& url = pair.spec.trainer_urls[i];
    const CallId call = context.state().next_id++;
    update.ranks.push_back(Rank{url, call, false, SaveOutcomeKind::unknown, ""});
    context.state().saves[call] = {update.pair, url};
    context.state().busy[url] = TrainerBusy{update.id, update.save_path, call, context.now(), update.version.directory};
    context.emit(TriggerSave{call, url, update.version.directory, update.id});
  }
}

std::string words_of_ranks(const Update& update) {
  std::string text;
  for (std::size_t i = 0; i < update.ranks.size(); ++i) {
    const Rank& rank = update.ranks[i];
    const std::string_view word = !rank.ended                        ? "no answer yet"
                                  : rank.kind == SaveOutcomeKind::ok ? "ok"
                                                                     : std::string_view(rank.text);
    text += fmt::format("{}rank {} ({}): {}", i == 0 ? "" : "; ", i, rank.trainer, word);
  }
  return text;
}

void fail_save(Context& context, Update& update, ErrorCode code, std::string_view what) {
  end_before_pause(context, update, UpdateState::aborted,
                   about(update, code, fmt::format("save: {}: {}", what, words_of_ranks(update))));
}

// Its pair may be gone meanwhile; then nobody starts on a record of it.
void discard_ended(Context& context, DoomedDirectory doomed) {
  const Update* update = context.find_update(doomed.update);
  if (update && context.state().pairs.contains(update->pair)) {
    const std::string pair = update->pair;
    return discard_directory(context, pair, std::move(doomed));
  }
  context.emit(Discard{doomed.update, doomed.save_path, doomed.directory});
}

// A late answer of an attempt that ended: the rank is free again, and the attempt's directory is discarded once more
// when its last rank has answered, since a late save may have made files there.
void discard_if_last(Context& context, const TrainerBusy& ended) {
  const auto& all = context.state().busy;
  const bool last =
      std::none_of(all.begin(), all.end(), [&](const auto& e) { return e.second.update == ended.update; });
  const Update* update = context.find_update(ended.update);
  const bool discarded = !update || update->state == UpdateState::aborted || update->state == UpdateState::rejected;
  if (last && discarded) discard_ended(context, {ended.directory, ended.save_path, ended.update});
}

void all_ranks_saved(Context& context, Update& update) {
  update.save_done = true;
  if (is_lora(context, update)) return begin_adapter_survey(context, update);
  list_before_pause(context, update);
  seal_when_ready(context, update);
}

// The same version again: `ok` without touching an engine if its bytes are the committed ones and the quorum serves
// them.
void end_equal_version(Context& context, Update& update) {
  const Pair& pair = context.pair_of(update);
  int members = static_cast<int>(pair.adapters.size());
  int ready = serving_adapters(pair);
  for (const auto& [url, worker] : context.state().workers) {
    if (pair.spec.lora || worker.pair != update.pair || worker.state == WorkerState::draining) continue;
    ++members;
    if (worker.state == WorkerState::ready && worker.version && worker.version->same_version(*pair.committed)) ++ready;
  }
  if (pair.committed->digest.empty() || update.sealed->digest.empty())
    return end_before_pause(context, update, UpdateState::rejected,
                            about(update, ErrorCode::version_reused,
                                  "it is committed already, and there is no digest to compare the new "
                                  "save with; publish a higher version"));
  if (pair.committed->digest != update.sealed->digest)
    return end_before_pause(context, update, UpdateState::rejected,
                            about(update, ErrorCode::version_reused,
                                  fmt::format("it is committed already with other bytes (digest {}, new "
                                              "{}); publish a higher version",
                                              pair.committed->digest, update.sealed->digest)));
  if (ready < update.policy.quorum.needed(members))
    return end_before_pause(context, update, UpdateState::rejected,
                            about(update, ErrorCode::conflict,
                                  fmt::format("it is committed already, and only {}/{} workers serve it; publish "
                                              "a higher version to bring the others back",
                                              ready, members)));
  if (update.directory_made)
    discard_directory(context, update.pair, {update.version.directory, update.save_path, update.id});
  update.committed = true;
  end_update(context, update, ready == members ? UpdateState::succeeded : UpdateState::degraded, std::nullopt);
}

}  // namespace

void begin_update(Context& context, Update& update) {
  Pair& pair = context.pair_of(update);
  context.set_state(update, UpdateState::requested);
  if (auto error = refuse_admission(context, update, pair)) {
    return end_before_pause(context, update, UpdateState::rejected, std::move(*error));
  }
  context.set_state(update, UpdateState::preparing);
  epoch_at_update(context, update);
  context.start_timer(update, "whole", update.policy.deadlines.whole_or_default());
  context.start_timer(update, "save", update.policy.deadlines.save);
  if (update.transfer) return prepare_transfer(context, update);
  const UpdateId id = update.id;
  const bool knows_all =
      std::all_of(context.state().workers.begin(), context.state().workers.end(),
                  [&](const auto& e) { return e.second.pair != update.pair || e.second.dialect.has_value(); });
  if (update.rollback || !update.path.empty()) {
    if (!update.rollback) update.version.directory = update.path;
    update.save_done = true;
    list_before_pause(context, update);
  } else {
    update.save_path = pair.spec.save_path;
    context.emit(Prepare{update.id, update.save_path, update.version.lineage, update.version.version, update.attempt,
                         pair.bytes_last});
  }
  if (pair.spec.lora) {
    // What each worker serves is read when the save is done; handed directories are there already.
    if (update.save_done) begin_adapter_survey(context, update);
  } else if (pair.last_good && knows_all) {
    update.survey_done = true;
    seal_when_ready(context, update);
  } else {
    begin_survey(context, update);  // finds the dialects, and the start model to compare with
  }
}

void first_survey_done(Context& context, Update& update) {
  if (is_lora(context, update)) return adapter_survey_done(context, update);
  if (update.transfer) return transfer_survey_done(context, update);
  update.survey_done = true;
  update.targets.clear();
  seal_when_ready(context, update);
}

void on_prepared(Context& context, const Prepared& event) {
  Update* update = context.find_update(event.update);
  if (!update) return;
  if (update->state != UpdateState::preparing) {
    // Cancelled meanwhile: what was made is ours and unused.
    if (event.directory) discard_ended(context, {*event.directory, update->save_path, update->id});
    return;
  }
  if (!event.directory) {
    Error error =
        about(*update, event.directory.error().code, fmt::format("prepare: {}", event.directory.error().text()));
    return end_before_pause(context, *update, UpdateState::aborted, std::move(error));
  }
  update->directory_made = true;
  update->version.directory = *event.directory;
  // Asked again: another pair with the same trainers may have begun a save while the directory was made.
  const std::string busy = busy_trainers(context, context.pair_of(*update));
  if (!busy.empty())
    return end_before_pause(context, *update, UpdateState::rejected,
                            about(*update, ErrorCode::trainer_busy, fmt::format("a save still runs on {}", busy)));
  trigger_saves(context, *update);
}

void on_save_ended(Context& context, const SaveEnded& event) {
  if (on_trainer_transferred(context, event)) return;
  const auto it = context.state().saves.find(event.call);
  if (it == context.state().saves.end()) return;
  const auto [pair_name, trainer] = it->second;
  context.state().saves.erase(it);
  const auto busy = context.state().busy.find(trainer);
  if (busy == context.state().busy.end() || busy->second.call != event.call) return;
  const TrainerBusy save = busy->second;
  if (event.may_run) {
    context.state().saves[event.call] = {pair_name, trainer};  // its own answer, or the collective's time-out, frees it
  } else {
    context.state().busy.erase(busy);
  }
  Update* update = context.find_update(save.update);
  context.record(RecordKind::save_ended, pair_name, save.update, "",
                 {{"trainer", trainer},
                  {"ok", event.kind == SaveOutcomeKind::ok},
                  {"may_run", event.may_run},
                  {"text", event.text}});
  if (!event.may_run) discard_if_last(context, save);
  if (mutant(Mutant::save_is_retried) && event.kind == SaveOutcomeKind::unknown && update) {
    const CallId again = context.state().next_id++;
    context.state().saves[again] = {pair_name, trainer};
    context.state().busy[trainer] = save;
    context.state().busy[trainer].call = again;
    for (Rank& rank : update->ranks) {
      if (rank.call == event.call) rank.call = again;
    }
    context.emit(TriggerSave{again, trainer, save.directory, save.update});
    return;
  }
  if (!update || update->state != UpdateState::preparing) return;
  for (Rank& rank : update->ranks) {
    if (rank.call != event.call) continue;
    rank.ended = true;
    rank.kind = event.kind;
    rank.text = event.text.empty() ? "an answer without a text" : event.text;
  }
  const auto ended = [](const Rank& rank) { return rank.ended; };
  const auto failed = [](const Rank& rank) { return rank.ended && rank.kind != SaveOutcomeKind::ok; };
  const bool all_ended = std::all_of(update->ranks.begin(), update->ranks.end(), ended);
  const bool any_failed = std::any_of(update->ranks.begin(), update->ranks.end(), failed);
  if (any_failed && all_ended) return fail_save(context, *update, ErrorCode::trainer_failed, "a rank failed");
  if (any_failed && !update->save_error) {
    update->save_error = about(*update, ErrorCode::trainer_failed, "a rank failed");
    context.start_timer(*update, "save_grace", kSaveGrace);
  }
  if (all_ended && !any_failed) all_ranks_saved(context, *update);
}

void on_save_grace_timer(Context& context, Update& update) {
  if (update.state == UpdateState::preparing) fail_save(context, update, ErrorCode::trainer_failed, "a rank failed");
}

void on_save_timer(Context& context, Update& update) {
  if (update.state != UpdateState::preparing) return;
  const std::string what = fmt::format("not done within {} ms", update.policy.deadlines.save.count());
  if (!update.save_done) return fail_save(context, update, ErrorCode::timed_out, what);
  end_before_pause(context, update, UpdateState::aborted,
                   about(update, ErrorCode::timed_out,
                         (update.transfer ? "prepare: the transfer group is " : "prepare: inspection ") + what));
}

void on_sealed(Context& context, const Sealed& event) {
  Update* update = context.find_update(event.update);
  if (!update || update->state != UpdateState::preparing) return;
  if (!event.version) {
    Error error = about(*update, event.version.error().code, fmt::format("inspect: {}", event.version.error().text()));
    return end_before_pause(context, *update, UpdateState::aborted, std::move(error));
  }
  context.cancel_timer(*update, "save");
  update->sealed = *event.version;
  if (!update->rollback || !event.version->digest.empty()) update->version.digest = event.version->digest;
  Pair& pair = context.pair_of(*update);
  json::object body{{"directory", update->version.directory},
                    {"bytes", event.version->bytes},
                    {"tensors", event.version->tensors},
                    {"blind", event.version->blind},
                    {"reference_reason", event.version->reference_reason},
                    {"digest", update->version.digest}};
  if (event.version->adapter_rank) body["rank"] = *event.version->adapter_rank;
  if (!event.version->adapter_base_reason.empty()) body["base_not_compared"] = event.version->adapter_base_reason;
  context.record(RecordKind::sealed, *update, "", std::move(body));
  if (pair.spec.lora && is_committed_version(pair, *update)) return end_equal_version(context, *update);
  if (pair.spec.lora) return adapter_sealed(context, *update);
  if (update->rollback) return begin_pausing(context, *update);
  if (!pair.last_good && !pair.committed && event.version->reference_clean) trust_start_model(context, *update);
  if (!pair.last_good)
    pair.rollback_reason = event.version->reference_reason.empty() ? "the start model is not readable here"
                                                                   : event.version->reference_reason;
  if (is_committed_version(pair, *update)) return end_equal_version(context, *update);
  begin_pausing(context, *update);
}

// Committed, and its files can't be trusted: no worker is healed with them any more.
static void distrust_last_good(Context& context, const Update& update, const std::string& text) {
  const auto it = context.state().pairs.find(update.pair);
  if (it == context.state().pairs.end()) return;
  Pair& pair = it->second;
  if (!pair.last_good || !pair.last_good->same_version(update.version)) return;
  pair.distrusted = true;
  pair.last_good = std::exchange(pair.previous_good, std::nullopt);
  if (!pair.last_good)
    pair.rollback_reason = fmt::format("the files of v{} can't be trusted: {}", update.version.version, text);
  context.record(RecordKind::last_good, update, "",
                 {{"directory", pair.last_good ? pair.last_good->directory : std::string()}, {"reason", text}});
}

void on_digest_done(Context& context, const DigestDone& event) {
  Update* update = context.find_update(event.update);
  if (!update) return;
  json::object body{{"ok", event.digest.has_value()}};
  if (event.digest)
    body["digest"] = *event.digest;
  else
    body["error"] = event.digest.error().text();
  context.record(RecordKind::digest, *update, "", std::move(body));
  if (event.digest) {
    update->version.digest = *event.digest;
    const auto it = context.state().pairs.find(update->pair);
    if (it == context.state().pairs.end()) return;
    note_digest(it->second, update->version);
    return;
  }
  // Bytes that changed, or can't be read, are not what was inspected.
  const std::string text = "digest: " + event.digest.error().text();
  if (update->state == UpdateState::loading || update->state == UpdateState::verifying)
    return begin_restoring(context, *update, about(*update, event.digest.error().code, text));
  distrust_last_good(context, *update, text);
}

void end_before_pause(Context& context, Update& update, UpdateState state, Error error) {
  for (auto& [url, target] : update.targets) context.give_up(target);
  update.targets.clear();
  error.message += hold_without_memory(context, update);
  if (update.directory_made)
    discard_directory(context, update.pair, {update.version.directory, update.save_path, update.id});
  if (state == UpdateState::rejected)
    context.record(RecordKind::update_rejected, update, "", {{"error", error.text()}});
  end_update(context, update, state, std::move(error));
}

}  // namespace weighlock::protocol
