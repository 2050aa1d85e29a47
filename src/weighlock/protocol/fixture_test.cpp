#include "weighlock/protocol/fixture_test.hpp"

#include <algorithm>

namespace weighlock::protocol {
namespace {

Dialects dialects() {
  using K = OperationKind;
  Dialects d;
  d.sglang = {DialectKind::sglang, {PauseMode::abort, PauseMode::keep, PauseMode::retract}, true, true, true, false,
              Evidence::spot,      {K::load, K::set_label, K::flush, K::pause, K::resume},  false};
  d.vllm = {DialectKind::vllm,
            {PauseMode::abort, PauseMode::keep, PauseMode::wait},
            false,
            false,
            false,
            true,
            Evidence::checksum,
            {K::load, K::load_empty, K::set_label, K::flush, K::pause, K::resume},
            false};
  return d;
}

}  // namespace

Outcome failed(OutcomeKind kind, std::string text, ErrorCode code) {
  Outcome outcome;
  outcome.kind = kind;
  outcome.code = code;
  outcome.text = std::move(text);
  return outcome;
}

Fixture::Fixture() {
  State state;
  state.boot = "boot";
  driver_ = std::make_unique<Driver>(std::move(state), dialects(), *this);
}

ClaimedEpoch FakeEpochs::claim(const ClaimEpoch& effect) {
  ClaimedEpoch out;
  written.push_back(effect.paused);
  const Epoch top = highest();
  Epoch mine{effect.epoch, effect.owner, effect.owner + "-host", "", "", effect.paused};
  if (effect.epoch == 0) {
    mine.number = top.owner == effect.owner ? top.number : top.number + 1;
    const auto before = files.find(mine.number - 1);
    if (before != files.end() && before->second.owner != effect.owner) out.predecessor = before->second;
  } else if (top.number >= effect.epoch && top.owner != effect.owner && !top.owner.empty()) {
    out.superseded_by = top;
  }
  out.epoch = mine.number;
  if (!out.superseded_by) files[mine.number] = mine;
  return out;
}

void Fixture::keep_epochs(const std::string& id, std::shared_ptr<FakeEpochs> storage) {
  epochs = std::move(storage);
  engines_.clear();
  scripts_.clear();
  pending_.clear();
  timers_.clear();
  silenced_.clear();
  records.clear();
  replies.clear();
  saves.clear();
  hold_commit = dead_ = dying_ = false;
  State state;
  state.boot = "boot";
  state.owner = id;
  records.push_back(Record{RecordKind::owner, "", "", "", {{"owner", id}}});
  driver_ = std::make_unique<Driver>(std::move(state), dialects(), *this);
}

void Fixture::append(std::vector<Record> group, std::function<void()> durable) {
  if (dying_) return;
  groups.push_back(group.size());
  records.insert(records.end(), group.begin(), group.end());
  dying_ = dies_in_ > 0 && --dies_in_ == 0;
  for (const Record& record : group) {
    const json::value body(record.body);
    const bool named = dies_at_ && dies_at_->first == record.kind &&
                       (dies_at_->second.empty() || find_string(body, "operation") == dies_at_->second);
    dying_ = dying_ || named;
  }
  if (dying_) at_death_ = driver_->state();
  const bool dies = dying_;
  const bool commits =
      std::any_of(group.begin(), group.end(), [](const Record& r) { return r.kind == RecordKind::commit; });
  if (hold_commit && commits) {
    held_durable = std::move(durable);
    return;
  }
  if (!dies || effects_performed_) durable();
  dead_ = dead_ || dies;
}

State Fixture::replayed() const {
  static const Dialects kDialects = dialects();
  Replay replay(kDialects);
  for (const Record& record : records) {
    // As the journal gives it back: numbers without a sign become numbers with one.
    Record read = record;
    read.body = parse_json(json::serialize(record.body), "record")->as_object();
    replay.take(read, now_);
  }
  return replay.finish("again", now_);
}

void Fixture::die_at_record(RecordKind kind, std::string operation, bool effects_performed) {
  dies_at_.emplace(kind, std::move(operation));
  effects_performed_ = effects_performed;
}

void Fixture::start_again_with(const std::function<void()>& prepare) {
  pending_.clear();
  timers_.clear();
  silenced_.clear();
  scripts_.clear();
  dead_ = dying_ = false;
  dies_in_ = std::exchange(dies_again_in_, 0);
  dies_at_.reset();
  stopped = false;
  State state = replayed();
  driver_ = std::make_unique<Driver>(std::move(state), dialects(), *this);
  records.push_back(Record{RecordKind::gateway_started, "", "", "", {{"boot", "again"}}});
  prepare();
  post(Recover{});
}

Outcome Fixture::good(const std::string& at, const Call& call) {
  FakeWorker& e = engines_[at];
  const bool shares_route = call.operation.kind == OperationKind::set_label;
  if (call.dialect && *call.dialect != e.dialect && !shares_route)
    return failed(OutcomeKind::untouched, "answered 404 \"Not Found\"", ErrorCode::not_supported);
  Outcome outcome;
  outcome.kind = OutcomeKind::ok;
  switch (call.operation.kind) {
    case OperationKind::identify:
      outcome.dialect = e.dialect;
      break;
    case OperationKind::pause:
      e.paused = true;
      if (call.operation.pause_mode != PauseMode::keep) e.holds_requests = false;
      break;
    case OperationKind::resume:
      e.paused = false;
      break;
    case OperationKind::set_label:
      e.label = call.operation.label;
      break;
    case OperationKind::load:
      if (!call.operation.memory.empty()) break;
      e.loaded = call.operation.directory;
      if (e.holds_requests && e.dialect == DialectKind::sglang && call.operation.pause_mode != PauseMode::keep)
        return failed(OutcomeKind::touched, "answered 400 \"Weights were updated, but the cache was not flushed\"");
      if (e.dialect == DialectKind::sglang && !call.operation.transfer) e.label = call.operation.label;
      break;
    case OperationKind::flush:
      if (e.holds_requests) return failed(OutcomeKind::untouched, "answered 400 \"Flush cache failed.\"");
      break;
    case OperationKind::verify:
      if (e.loaded != call.operation.directory || e.label != call.operation.label)
        outcome = failed(OutcomeKind::mismatch, "other weights");
      outcome.evidence = call.operation.evidence;
      break;
    case OperationKind::load_adapter:
      if (e.adapters.contains(call.operation.adapter))
        return failed(OutcomeKind::untouched, "already loaded", ErrorCode::adapter_exists);
      if (e.adapter_places > 0 && e.adapters.size() >= e.adapter_places) e.adapters.erase(e.adapters.begin());
      e.adapters[call.operation.adapter] = call.operation.directory;
      break;
    case OperationKind::unload_adapter:
      if (e.adapters.erase(call.operation.adapter) == 0)
        return failed(OutcomeKind::untouched, "does not exist", ErrorCode::adapter_missing);
      break;
    default:
      break;
  }
  const bool brief = call.operation.brief && call.operation.kind == OperationKind::read_state;
  outcome.reading = StateReading{brief ? "" : e.incarnation, e.label, e.paused, "/models/start"};
  if (call.operation.kind == OperationKind::list_adapters) {
    outcome.reading->adapters.emplace();
    for (const auto& [name, directory] : e.adapters) outcome.reading->adapters->push_back({name, directory});
    outcome.reading->adapter_rank_max = e.rank_max;
  }
  return outcome;
}

namespace {

HandOverStep step_of(const Operation& operation) {
  if (operation.memory == "weights") return HandOverStep::resume_weights;
  return operation.memory.empty() ? HandOverStep::transfer : HandOverStep::resume_kv_cache;
}

}  // namespace

bool Fixture::answer_step(const Call& call) {
  if (!call.operation.transfer) return false;
  const HandOverStep step = step_of(call.operation);
  engines_[call.worker].steps.push_back(step);
  const auto scripted = step_answers.find({call.worker, step});
  if (scripted == step_answers.end()) return false;
  if (scripted->second)
    pending_.push_back(CallEnded{call.call, *scripted->second});
  else
    silenced_.emplace_back(call.worker, call.call);
  return true;
}

void Fixture::perform(Effect effect) {
  if (dead_) return;
  if (auto* call = std::get_if<Call>(&effect)) {
    engines_[call->worker].operations.push_back(call->operation.kind);
    if (call->operation.kind == OperationKind::read_state) reads.push_back(call->operation);
    if (call->operation.kind == OperationKind::load_adapter)
      engines_[call->worker].adapter_calls.push_back("load " + call->operation.adapter);
    if (call->operation.kind == OperationKind::unload_adapter)
      engines_[call->worker].adapter_calls.push_back("unload " + call->operation.adapter);
    if (answer_step(*call)) return;
    auto& script = scripts_[{call->worker, call->operation.kind}];
    if (script.empty()) {
      pending_.push_back(CallEnded{call->call, good(call->worker, *call)});
      return;
    }
    Answer answer = script.front();
    if (answer.times > 0 && --script.front().times == 0) script.pop_front();
    if (answer.outcome) {
      pending_.push_back(CallEnded{call->call, *answer.outcome});
    } else {
      silenced_.emplace_back(call->worker, call->call);
    }
  } else if (auto* save = std::get_if<TriggerSave>(&effect)) {
    saves.push_back(*save);
    if (std::find(silent_trainers.begin(), silent_trainers.end(), save->trainer) != silent_trainers.end()) return;
    const auto it = save_answers.find(save->trainer);
    SaveEnded answer = it == save_answers.end() ? SaveEnded{0, SaveOutcomeKind::ok, ""} : it->second;
    answer.call = save->call;
    pending_.push_back(answer);
  } else if (auto* build = std::get_if<BuildGroup>(&effect)) {
    builds.push_back(*build);
    const bool well = build_failures == 0;
    if (build_failures > 0) --build_failures;
    if (!builds_silent && well) pending_.push_back(GroupBuilt{build->ask, std::nullopt});
    if (!builds_silent && !well) pending_.push_back(GroupBuilt{build->ask, build_error, port_taken, build_refused});
  } else if (auto* drop = std::get_if<DropGroup>(&effect)) {
    drops.push_back(*drop);
  } else if (auto* run = std::get_if<RunTransfer>(&effect)) {
    transfers.push_back(*run);
    for (const RunTransfer::Member& member : run->trainers) {
      if (std::find(silent_trainers.begin(), silent_trainers.end(), member.url) != silent_trainers.end()) continue;
      const auto scripted = step_answers.find({member.url, run->step});
      if (scripted != step_answers.end()) {
        if (scripted->second)
          pending_.push_back(SaveEnded{member.call, SaveOutcomeKind::failed, scripted->second->text});
        continue;
      }
      const auto it = save_answers.find(member.url);
      SaveEnded answer = it == save_answers.end() ? SaveEnded{0, SaveOutcomeKind::ok, ""} : it->second;
      answer.call = member.call;
      pending_.push_back(answer);
    }
  } else if (auto* ask = std::get_if<AskTrainer>(&effect)) {
    asked_trainers.push_back(*ask);
    if (std::find(silent_trainers.begin(), silent_trainers.end(), ask->trainer) != silent_trainers.end()) return;
    pending_.push_back(SaveEnded{ask->call, SaveOutcomeKind::unknown, "it has ended since"});
  } else if (auto* prepare = std::get_if<Prepare>(&effect)) {
    pending_.push_back(Prepared{
        prepare->update, "/shared/v" + std::to_string(prepare->version) + ".a" + std::to_string(prepare->attempt)});
  } else if (auto* seal = std::get_if<Seal>(&effect)) {
    seals.push_back(*seal);
    if (seals_silent) return;
    if (seal_error)
      pending_.push_back(Sealed{seal->update, *seal_error});
    else
      pending_.push_back(Sealed{seal->update, sealed});
  } else if (auto* claim = std::get_if<ClaimEpoch>(&effect)) {
    if (epochs->claims_silent) return;
    pending_.push_back(epochs->claim_error ? EpochClaimed{claim->ask, claim->pair, *epochs->claim_error}
                                           : EpochClaimed{claim->ask, claim->pair, epochs->claim(*claim)});
  } else if (auto* look = std::get_if<LookEpoch>(&effect)) {
    ++epochs->looks;
    if (epochs->looks_silent) return;
    pending_.push_back(epochs->look_error ? EpochSeen{look->ask, look->pair, *epochs->look_error}
                                          : EpochSeen{look->ask, look->pair,
                                                      epochs->takers.contains(look->pair) ? epochs->takers[look->pair]
                                                                                          : epochs->highest()});
  } else if (auto* timer = std::get_if<StartTimer>(&effect)) {
    timers_[timer->timer] = now_ + timer->after;
  } else if (auto* gone = std::get_if<CancelTimer>(&effect)) {
    timers_.erase(gone->timer);
  } else if (auto* reply = std::get_if<Reply>(&effect)) {
    replies.push_back(*reply);
  } else if (auto* done = std::get_if<UpdateEnded>(&effect)) {
    ended.push_back(done->update);
  } else if (auto* discard = std::get_if<Discard>(&effect)) {
    discards.push_back(*discard);
    if (!discards_silent) pending_.push_back(Discarded{discard->directory, discard_error});
  } else if (auto* mark = std::get_if<MarkLatest>(&effect)) {
    marks.push_back(*mark);
  } else if (auto* fence = std::get_if<Fence>(&effect)) {
    fences.push_back(*fence);
  } else if (auto* cancel = std::get_if<Cancel>(&effect)) {
    cancels.push_back(*cancel);
  } else if (std::holds_alternative<Stopped>(effect)) {
    stopped = true;
  }
}

void Fixture::settle() {
  while (!pending_.empty() && !dead_) {
    EventBody body = std::move(pending_.front());
    pending_.pop_front();
    driver_->post(std::move(body));
  }
}

void Fixture::advance(Milliseconds by) {
  const Instant end = now_ + by;
  while (true) {
    const auto next = std::min_element(timers_.begin(), timers_.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    if (next == timers_.end() || next->second > end) break;
    if (dead_) return;
    now_ = std::max(now_, next->second);
    const TimerId id = next->first;
    timers_.erase(next);
    post(TimerFired{id});
  }
  now_ = end;
}

void Fixture::connect(int workers, int trainers) {
  ConnectPair event;
  event.token = 1;
  event.spec.name = "actor";
  event.spec.save_path = "/shared";
  if (by_transfer) event.spec.awex = awex;
  if (!reconciles) event.spec.policy.pair_lease = Milliseconds(0);
  for (int i = 0; i < workers; ++i) {
    event.spec.workers.push_back(WorkerSpec{url(i), std::nullopt});
    engines_[url(i)];
  }
  for (int i = 0; i < trainers; ++i) event.spec.trainer_urls.push_back(trainer(i));
  post(event);
}

UpdateId Fixture::request(std::int64_t version, Policy policy, std::string key) {
  RequestUpdate event;
  event.token = 100 + static_cast<ReplyToken>(version);
  event.pair = "actor";
  event.version = version;
  event.policy = std::move(policy);
  event.key = std::move(key);
  const std::size_t before = replies.size();
  post(event);
  return replies.size() > before ? replies[before].update : UpdateId{};
}

UpdateId Fixture::rollback(std::optional<std::int64_t> to, std::string key) {
  RequestUpdate event;
  event.token = 500;
  event.pair = "actor";
  event.rollback = true;
  event.rollback_to = to;
  event.policy = state().pairs.at("actor").spec.policy;
  event.key = std::move(key);
  const std::size_t before = replies.size();
  post(event);
  return replies.size() > before ? replies[before].update : UpdateId{};
}

void Fixture::script(int worker, OperationKind kind, Outcome outcome, int times) {
  scripts_[{url(worker), kind}].push_back(Answer{std::move(outcome), times});
}

void Fixture::silence(int worker, OperationKind kind) {
  scripts_[{url(worker), kind}].push_back(Answer{std::nullopt, 1});
}

void Fixture::answer_silenced(int worker, Outcome outcome) {
  const auto it =
      std::find_if(silenced_.begin(), silenced_.end(), [&](const auto& e) { return e.first == url(worker); });
  ASSERT_NE(it, silenced_.end());
  const CallId call = it->second;
  silenced_.erase(it);
  post(CallEnded{call, std::move(outcome)});
}

void Fixture::replace(int worker, DialectKind dialect) {
  restart(worker);
  engine(worker).dialect = dialect;
}

void Fixture::restart(int worker) {
  FakeWorker& e = engine(worker);
  e.incarnation += "'";
  e.label = "default";
  e.loaded = "/models/start";
  e.paused = false;
  e.adapters.clear();
}

int Fixture::count(int worker, OperationKind kind) {
  const auto& list = engines_[url(worker)].operations;
  return static_cast<int>(std::count(list.begin(), list.end(), kind));
}

std::vector<std::string> Fixture::record_names() const {
  std::vector<std::string> names;
  for (const Record& record : records) names.emplace_back(name(record.kind));
  return names;
}

}  // namespace weighlock::protocol
