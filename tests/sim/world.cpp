#include "sim/world.hpp"

#include <algorithm>
#include <utility>

#include "sim/pairs.hpp"
#include "sim/violation.hpp"
#include "weighlock/core/json.hpp"

namespace weighlock::sim {

using protocol::Record;
using protocol::RecordKind;

namespace {

constexpr std::uint64_t kStepsMax = 400'000;  // a machine that turns in a circle must not turn for ever

protocol::State first_state() {
  protocol::State state;
  state.boot = "sim";
  return state;
}

}  // namespace

World::World(std::uint64_t seed, Coverage& coverage, std::FILE* story, const Plan* plan)
    : coverage_(coverage),
      random_(seed),
      faults_(random_, coverage.faults),
      no_faults_(random_, coverage.faults),
      trace_(scheduler_, story),
      scenario_(plan == nullptr ? draw_scenario(seed, random_, faults_) : planned_scenario(seed, random_)),
      store_(random_, faults_, scheduler_, [this](protocol::EventBody event) { post(std::move(event)); }),
      network_(scenario_, random_, faults_, no_faults_, scheduler_, store_, trace_,
               [this](protocol::CallId call, Outcome outcome) {
                 post(protocol::CallEnded{call, std::move(outcome)});
               }),
      clients_(scenario_, random_, network_, store_, scheduler_, trace_,
               [this](protocol::EventBody event) { post(std::move(event)); }),
      invariants_(Witness{scenario_, scheduler_, network_, store_, clients_, trace_, coverage}),
      driver_(std::make_unique<protocol::Driver>(first_state(), scenario_.dialects, *this)),
      death_dice_(seed ^ 0x9e3779b97f4a7c15ULL),
      plan_(plan) {
  invariants_.watch(*driver_);
  const bool any_calm = std::find(scenario_.calm.begin(), scenario_.calm.end(), true) != scenario_.calm.end();
  if (plan_ != nullptr) {
    lives_left_ = 2;
  } else if (seed % 3 != 1 && !any_calm) {
    death_permille_ = static_cast<unsigned>(death_dice_.between(5, 60));
    if (death_dice_.chance(500)) effect_death_permille_ = static_cast<unsigned>(death_dice_.between(1, 15));
    loses_tails_ = death_dice_.chance(250);
    lives_left_ = kDeathsMax;
  }
  was_alive_.resize(scenario_.engines.size(), true);
  for (std::size_t i = 0; i < scenario_.pairs.size(); ++i) {
    StoreSettings settings = scenario_.stores[i];
    settings.calm = scenario_.calm[i];
    store_.add_save_path(scenario_.pairs[i].save_path, settings);
    trainers_.push_back(std::make_unique<TrainerGroup>(random_, settings.calm ? no_faults_ : faults_, scheduler_,
                                                       store_, trace_,
                                                       [this](protocol::EventBody event) { post(std::move(event)); }));
  }
}

void World::fold(std::uint64_t value) {
  fingerprint_ = (fingerprint_ ^ value) * 0x100000001b3ULL;
}

void World::post(protocol::EventBody event) {
  if (invariants_.stopped() || dying_) return;
  const bool is_answer =
      std::holds_alternative<protocol::CallEnded>(event) || std::holds_alternative<protocol::SaveEnded>(event);
  if (is_answer && faults_.strikes(Fault::told_twice)) {
    scheduler_.after(random_.between(0, 3'000), [this, event, life = life_] {
      if (life == life_) post(event);
    });
  }
  fold(event.index());
  invariants_.before_event(event);
  if (trace_.on()) {
    if (const auto* ended = std::get_if<protocol::CallEnded>(&event)) {
      trace_.line("-> call {} ended: {} {}{}", ended->call, name(ended->outcome.kind), ended->outcome.text,
                  ended->outcome.reading
                      ? fmt::format(" [{} '{}'{}]", ended->outcome.reading->incarnation, ended->outcome.reading->label,
                                    ended->outcome.reading->paused ? " paused" : "")
                      : "");
    } else if (const auto* fired = std::get_if<protocol::TimerFired>(&event)) {
      trace_.line("-> timer {}", fired->timer);
    } else {
      trace_.line("-> event {}", event.index());
    }
  }
  driver_->post(std::move(event));
}

void World::append(std::vector<Record> group, std::function<void()> durable) {
  if (dying_) return;
  if (appending_) throw Violation{0, "a group is appended while another is on its way"};
  const Fate fate = plan_ == nullptr ? Fate::goes_on : planned_fate();
  const bool doomed = fate == Fate::dies_after;
  if (fate != Fate::goes_on && !doomed) return doom(0);  // a journal that can't be written ends the process
  appending_ = true;
  invariants_.on_append(group);
  const std::int64_t delay = faults_.strikes(Fault::slow_journal) ? random_.between(10, 500) : random_.between(0, 2);
  const bool dies = plan_ == nullptr && faults_.on() && lives_left_ > 0 && death_dice_.chance(death_permille_);
  const bool is_lost = dies && death_dice_.chance(300);
  const auto commit =
      std::find_if(group.begin(), group.end(), [](const Record& record) { return record.kind == RecordKind::commit; });
  if (commit != group.end() && faults_.on() && plan_ == nullptr && !scenario_.is_calm(commit->pair) &&
      random_.chance(30))  // in the very moment of the decision
    scheduler_.after(0, [this, pair = scenario_.pair_of(commit->pair)] {
      act(ClientAction{now(), ClientActionKind::cancel, pair});
    });
  group_on_its_way_ = std::move(group);
  scheduler_.after(delay, [this, durable = std::move(durable), dies = dies || doomed, doomed, is_lost, life = life_] {
    if (life != life_) return;
    if (is_lost) {
      group_on_its_way_.clear();
      return die();
    }
    int effects = 0;
    if (dies && !doomed) effects = death_dice_.chance(300) ? 0 : static_cast<int>(death_dice_.between(1, 12));
    on_group_durable(std::exchange(group_on_its_way_, {}), durable, dies, effects);
  });
}

void World::records_held() {
  scheduler_.after(500, [this, life = life_] {
    if (life == life_ && !dying_) driver_->flush();
  });
}

void World::stepping(const protocol::State& state, const protocol::Event& event) {
  note_pair(coverage_, state, event);
}

void World::on_group_durable(const std::vector<Record>& group, const std::function<void()>& durable, bool dies,
                             int effects) {
  if (trace_.on()) {
    for (const Record& record : group) {
      trace_.line("durable {} {} {} {} {}", name(record.kind), record.pair, record.update, record.worker,
                  json::serialize(record.body));
    }
  }
  appending_ = false;
  invariants_.on_durable(group);
  if (lives_left_ > 0 || life_ > 0) {
    journal_.insert(journal_.end(), group.begin(), group.end());
    group_ends_.push_back(journal_.size());
  }
  if (!durable) return;  // nobody is left to be told
  dying_ = dies;
  effects_left_ = effects;
  durable();
  if (dies) die();
}

void World::tell(const protocol::Effect& effect) const {
  if (!trace_.on()) return;
  if (const auto* call = std::get_if<protocol::Call>(&effect)) {
    trace_.line("<- call {} {} {} {} '{}'{} {}", call->call, call->worker, name(call->operation.kind),
                call->operation.directory, call->operation.label, call->operation.adapter, call->update);
  } else if (const auto* cancel = std::get_if<protocol::Cancel>(&effect)) {
    trace_.line("<- cancel {}", cancel->call);
  } else if (const auto* save = std::get_if<protocol::TriggerSave>(&effect)) {
    trace_.line("<- save {} {} {}", save->call, save->trainer, save->directory);
  } else if (const auto* seal = std::get_if<protocol::Seal>(&effect)) {
    trace_.line("<- seal {} (reference '{}')", seal->directory, seal->reference_directory);
  } else if (const auto* discard = std::get_if<protocol::Discard>(&effect)) {
    trace_.line("<- discard {}", discard->directory);
  } else if (const auto* timer = std::get_if<protocol::StartTimer>(&effect)) {
    trace_.line("<- timer {} in {} ms", timer->timer, timer->after.count());
  } else if (const auto* reply = std::get_if<protocol::Reply>(&effect)) {
    trace_.line("<- reply {} update '{}' {}", reply->token, reply->update, reply->error ? reply->error->text() : "ok");
  } else if (const auto* ended = std::get_if<protocol::UpdateEnded>(&effect)) {
    const auto found = driver_->state().updates.find(ended->update);
    if (found == driver_->state().updates.end()) return;
    trace_.line("<- update {} ended as {}: {}", ended->update, name(found->second.state),
                found->second.error ? found->second.error->text() : "");
  } else if (const auto* fence = std::get_if<protocol::Fence>(&effect)) {
    trace_.line("<- fence {}: {}", fence->worker, fence->cause.message);
  } else {
    trace_.line("<- effect {}", effect.index());
  }
}

void World::perform(protocol::Effect effect) {
  if (dying_ && --effects_left_ < 0) return;
  const bool told_only =
      std::holds_alternative<protocol::StartTimer>(effect) || std::holds_alternative<protocol::CancelTimer>(effect);
  const Fate what = dying_ || told_only ? Fate::goes_on : fate();
  if (what == Fate::dies_before || what == Fate::dies_after) doom(0);
  if (what == Fate::dies_before) return;
  const Mishap mishap = what == Fate::fails ? plan_->mishap : Mishap::none;
  const bool is_job = std::holds_alternative<protocol::Prepare>(effect) ||
                      std::holds_alternative<protocol::Seal>(effect) ||
                      std::holds_alternative<protocol::ComputeDigest>(effect);
  if (what == Fate::fails && is_job) store_.fail_next();
  fold(effect.index() + 100);
  fold(static_cast<std::uint64_t>(scheduler_.now().ms));
  tell(effect);
  invariants_.before_effect(effect);
  if (const auto* call = std::get_if<protocol::Call>(&effect)) perform_call(*call, mishap);
  if (const auto* cancel = std::get_if<protocol::Cancel>(&effect)) network_.cancel(cancel->call);
  if (const auto* save = std::get_if<protocol::TriggerSave>(&effect)) perform_save(*save, mishap);
  if (const auto* ask = std::get_if<protocol::AskTrainer>(&effect))
    trainers_[scenario_.pair_of(ask->trainer)]->ask(*ask);
  if (const auto* prepare = std::get_if<protocol::Prepare>(&effect)) store_.prepare(*prepare);
  if (const auto* seal = std::get_if<protocol::Seal>(&effect)) store_.seal(*seal);
  if (const auto* digest = std::get_if<protocol::ComputeDigest>(&effect)) store_.digest(*digest);
  if (const auto* discard = std::get_if<protocol::Discard>(&effect)) store_.discard(*discard);
  if (const auto* timer = std::get_if<protocol::StartTimer>(&effect)) start_timer(*timer);
  if (const auto* timer = std::get_if<protocol::CancelTimer>(&effect)) timers_.erase(timer->timer);
  if (const auto* reply = std::get_if<protocol::Reply>(&effect)) clients_.on_reply(*reply);
  if (const auto* ended = std::get_if<protocol::UpdateEnded>(&effect)) clients_.on_update_ended(ended->update);
}

void World::perform_call(const protocol::Call& call, Mishap mishap) {
  Engine* engine = network_.find(call.worker);
  const bool loads = changes_weights(call.operation.kind);
  Faults& faults = scenario_.is_calm(call.worker) ? no_faults_ : faults_;
  if (loads && faults.strikes(Fault::foreign_resume)) {
    scheduler_.after(random_.between(1, 8'000), [engine] { engine->foreign_resume(); });
  }
  if (faults.strikes(Fault::foreign_label)) {
    scheduler_.after(random_.between(1, 8'000), [engine] { engine->foreign_label(); });
  }
  if (faults.strikes(Fault::restart)) {  // soon, between two requests
    scheduler_.after(random_.between(1, 8'000), [engine] { engine->die("restart soon"); });
  }
  network_.start(call, mishap);
}

void World::perform_save(const protocol::TriggerSave& save, Mishap mishap) {
  const std::size_t pair = scenario_.pair_of(save.trainer);
  const protocol::PairSpec& spec = scenario_.pairs[pair];
  trainers_[pair]->fail_next(mishap);
  trainers_[pair]->save(
      save, spec.save_trigger == protocol::SaveTrigger::rank0 ? 1 : static_cast<int>(spec.trainer_urls.size()));
}

void World::start_timer(const protocol::StartTimer& timer) {
  timers_.insert(timer.timer);
  scheduler_.after(timer.after.count(), [this, id = timer.timer] {
    if (timers_.erase(id) > 0) post(protocol::TimerFired{id});
  });
}

void World::act(const ClientAction& action) {
  if (invariants_.stopped()) return;
  if (!scenario_.calm[action.pair] && action.kind == ClientActionKind::request &&
      faults_.strikes(Fault::foreign_pause)) {
    const std::vector<protocol::WorkerSpec>& workers = scenario_.pairs[action.pair].workers;
    Engine* engine = network_.find(random_.pick(workers).url);
    const bool calm = scenario_.is_calm(engine->url());  // shared with a pair that nothing strikes
    if (!calm) scheduler_.after(random_.between(0, 3'000), [engine] { engine->foreign_pause(); });
  }
  clients_.act(action);
}

// Processes also end while nobody asks anything of them.
void World::schedule_restarts() {
  if (!faults_.enabled(Fault::restart)) return;
  for (Engine& engine : network_.engines()) {
    if (scenario_.is_calm(engine.url()) || !random_.chance(300)) continue;
    scheduler_.at(Instant{random_.between(0, scenario_.faults_end.ms)}, [&engine] { engine.die("restart in peace"); });
  }
}

// Other people do what they like at any time.
void World::schedule_strangers() {
  for (Engine& engine : network_.engines()) {
    if (scenario_.is_calm(engine.url())) continue;
    for (const Fault fault : {Fault::foreign_pause, Fault::foreign_resume}) {
      if (!faults_.enabled(fault) || !random_.chance(300)) continue;
      scheduler_.at(Instant{random_.between(0, scenario_.faults_end.ms)}, [&engine, fault] {
        fault == Fault::foreign_pause ? engine.foreign_pause() : engine.foreign_resume();
      });
    }
  }
}

// In which states of the registry workers' processes end.
void World::look_at_engines() {
  for (std::size_t i = 0; i < was_alive_.size(); ++i) {
    const EngineTruth& real = network_.engines()[i].truth();
    const bool died = was_alive_[i] && !real.alive;
    was_alive_[i] = real.alive;
    if (!died) continue;
    const auto worker = driver_->state().workers.find(network_.engines()[i].url());
    if (worker != driver_->state().workers.end()) ++coverage_.died_in[static_cast<std::size_t>(worker->second.state)];
  }
}

// By when everything must have come to rest: each update that may wait, one after the other.
Instant World::patience() const {
  Milliseconds longest{0};
  for (const protocol::PairSpec& pair : scenario_.pairs) {
    const protocol::Deadlines& d = pair.policy.deadlines;
    longest = std::max(longest, d.save + d.pause + 5 * d.load + 3 * d.verify + 3 * d.resume);
  }
  return scenario_.faults_end + longest * static_cast<std::int64_t>(scenario_.actions.size() + 2 + kDeathsMax) +
         Milliseconds{300'000};
}

void World::tell_scenario() const {
  if (!trace_.on()) return;
  for (const protocol::PairSpec& pair : scenario_.pairs) {
    const protocol::Policy& p = pair.policy;
    trace_.line(
        "{}{}: {} workers, {} ranks, quorum {}/{}, {}, canary {}, max_lag {}, pause {} {}, window {}, evidence {}, "
        "digest {}{}",
        pair.name, scenario_.is_calm(pair.name) ? " (calm)" : "", pair.workers.size(), pair.trainer_urls.size(),
        static_cast<int>(p.quorum.kind), p.quorum.count, name(p.on_failure), p.canary, p.max_lag, name(p.pause),
        name(p.pause_mode), p.load_window, p.evidence ? name(*p.evidence) : "best", name(p.digest),
        p.allow_layout_change ? ", layout may change" : "");
  }
  for (std::size_t i = 0; i < kFaults; ++i) {
    const auto fault = static_cast<Fault>(i);
    if (faults_.enabled(fault)) trace_.line("fault {}", name(fault));
  }
}

void World::run() {
  ++coverage_.runs;
  tell_scenario();
  for (const ClientAction& action : scenario_.actions) scheduler_.at(action.at, [this, action] { act(action); });
  schedule_restarts();
  schedule_deaths();
  schedule_strangers();
  scheduler_.at(scenario_.faults_end, [this] {
    trace_.line("faults stop");
    faults_.stop();
    network_.heal();
  });
  const Instant end = patience();
  std::string why = "faults have not stopped";
  while (!scheduler_.empty() && scheduler_.now() <= end) {
    scheduler_.run_one();
    look_at_engines();
    if (!dying_) invariants_.check_state();
    if (scheduler_.steps() > kStepsMax) throw Violation{16, "the run doesn't come to rest: too many events"};
    if (faults_.on() || dying_) continue;
    why = invariants_.unsettled();
    if (why.empty()) break;
  }
  coverage_.actions += scheduler_.steps();
  if (invariants_.stopped()) ++coverage_.stopped;
  if (!why.empty()) throw Violation{16, why};
  if (plan_ != nullptr) invariants_.check_planned_end();
}

}  // namespace weighlock::sim
