#include "sim/gateway.hpp"

#include <algorithm>
#include <utility>

#include "sim/pairs.hpp"
#include "sim/violation.hpp"
#include "weighlock/core/json.hpp"
#include "weighlock/core/limits.hpp"

namespace weighlock::sim {

using protocol::Record;
using protocol::RecordKind;

Gateway::Gateway(std::size_t index, const Around& around)
    : index_(index),
      coverage_(around.coverage),
      random_(around.random),
      faults_(around.faults),
      no_faults_(around.no_faults),
      scheduler_(around.scheduler),
      trace_(around.trace),
      scenario_(around.scenario),
      store_(around.store),
      network_(around.network),
      transfers_(around.transfers),
      epochs_(around.epochs),
      trainers_(around.trainers),
      plan_(around.plan),
      clients_(scenario_, random_, network_, store_, scheduler_, trace_,
               [this](protocol::EventBody event) { post(std::move(event)); }),
      invariants_(Witness{scenario_, scheduler_, network_, store_, transfers_, clients_, trace_, coverage_,
                          [this](const std::string& pair) { return epochs_.owner(pair).value_or(index_) == index_; },
                          [this](const std::string& url) { let_go(url); }}),
      death_dice_(scenario_.seed ^ (0x9e3779b97f4a7c15ULL + index)),
      moment_dice_(scenario_.seed ^ (0xd6e8feb86659fd93ULL + index)),
      driver_(std::make_unique<protocol::Driver>(first_state(), scenario_.dialects, *this)) {
  invariants_.watch(*driver_);
  const bool any_calm = std::find(scenario_.calm.begin(), scenario_.calm.end(), true) != scenario_.calm.end();
  if (plan_ != nullptr) {
    lives_left_ = 2;
  } else if (scenario_.seed % 3 != 1 && !any_calm) {
    death_permille_ = static_cast<unsigned>(death_dice_.between(5, 60));
    if (death_dice_.chance(500)) effect_death_permille_ = static_cast<unsigned>(death_dice_.between(1, 15));
    loses_tails_ = death_dice_.chance(250) && !scenario_.has_rivals();
    lives_left_ = kDeathsMax;
  }
}

void Gateway::fold(std::uint64_t value) {
  fingerprint_ = (fingerprint_ ^ value) * 0x100000001b3ULL;
}

void Gateway::post(protocol::EventBody event) {
  if (invariants_.stopped() || dying_) return;
  if (stands_still_) {
    // The rank has ended, whether or not this process lives to hear of it.
    if (const auto* ended = std::get_if<protocol::SaveEnded>(&event)) invariants_.save_ended(*ended);
    return when_awake([this, event = std::move(event)] { post(event); });
  }
  const bool is_answer =
      std::holds_alternative<protocol::CallEnded>(event) || std::holds_alternative<protocol::SaveEnded>(event);
  if (is_answer && faults_.strikes(Fault::told_twice)) {
    scheduler_.after(random_.between(0, 3'000), [this, event, life = life_] {
      if (life == life_) post(event);
    });
  }
  fold(event.index());
  invariants_.before_event(event);
  if (const auto* seen = std::get_if<protocol::EpochSeen>(&event)) epochs_.told(index_, seen->ask);
  tell(event);
  driver_->post(std::move(event));
}

void Gateway::append(std::vector<Record> group, std::function<void()> durable) {
  if (dying_) return;
  if (appending_) throw Violation{0, "a group is appended while another is on its way"};
  const Fate fate = plan_ == nullptr ? Fate::goes_on : planned_fate();
  const bool doomed = fate == Fate::dies_after;
  if (fate != Fate::goes_on && !doomed) return doom(0);  // a journal that can't be written ends the process
  appending_ = true;
  invariants_.on_append(group);
  check_commits(group);
  const std::int64_t delay = faults_.strikes(Fault::slow_journal) ? random_.between(10, 500) : random_.between(0, 2);
  const bool dies = plan_ == nullptr && faults_.on() && lives_left_ > 0 && death_dice_.chance(death_permille_);
  const bool is_lost = dies && death_dice_.chance(300);
  const auto commit =
      std::find_if(group.begin(), group.end(), [](const Record& record) { return record.kind == RecordKind::commit; });
  if (commit != group.end() && moment_dice_.chance(15)) act_soon(scenario_.pair_of(commit->pair), 0);
  if (commit != group.end() && faults_.on() && plan_ == nullptr && !scenario_.is_calm(commit->pair) &&
      random_.chance(30))  // in the very moment of the decision
    scheduler_.after(0, [this, pair = scenario_.pair_of(commit->pair)] {
      act(ClientAction{now(), ClientActionKind::cancel, pair});
    });
  group_on_its_way_ = std::move(group);
  scheduler_.after(delay, [this, durable = std::move(durable), dies = dies || doomed, doomed, is_lost, life = life_,
                           decided_at = stepped_at_] {
    if (life != life_) return;
    if (is_lost) {
      group_on_its_way_.clear();
      return die();
    }
    int effects = 0;
    if (dies && !doomed) effects = death_dice_.chance(300) ? 0 : static_cast<int>(death_dice_.between(1, 12));
    // What follows was decided before the group went out, whatever was stepped meanwhile.
    const auto perform_as_decided = [this, durable, decided_at] {
      decided_at_ = decided_at;
      durable();
      decided_at_ = stepped_at_;
    };
    on_group_durable(std::exchange(group_on_its_way_, {}), perform_as_decided, dies, effects);
  });
}

void Gateway::records_held() {
  scheduler_.after(500, [this, life = life_] {
    when_awake([this, life] {
      if (life == life_ && !dying_) driver_->flush();
    });
  });
}

void Gateway::stepping(const protocol::State& state, const protocol::Event& event) {
  decided_at_ = stepped_at_ = now();
  note_pair(coverage_, state, event);
  for (const auto& [name, pair] : state.pairs) {
    const bool leaves = !pair.removing.empty() || pair.reconnect || !pair.leaving.empty();
    const auto active = leaves ? state.updates.find(pair.active) : state.updates.end();
    if (active == state.updates.end() || active->second.state != protocol::UpdateState::queued) continue;
    if (moment_dice_.chance(100)) act_soon(scenario_.pair_of(name), moment_dice_.between(0, 100));
  }
}

// A client comes in a moment that is short: while a commit is on its way to the disk, while a removal waits.
void Gateway::act_soon(std::size_t pair, std::int64_t within) {
  constexpr ClientActionKind kKinds[] = {ClientActionKind::change_worker, ClientActionKind::collect,
                                         ClientActionKind::reconnect,     ClientActionKind::remove,
                                         ClientActionKind::request,       ClientActionKind::shutdown};
  const ClientActionKind kind = moment_dice_.pick(std::vector<ClientActionKind>(std::begin(kKinds), std::end(kKinds)));
  const bool allowed = faults_.on() && plan_ == nullptr && !scenario_.calm[pair];
  const bool any_calm = std::find(scenario_.calm.begin(), scenario_.calm.end(), true) != scenario_.calm.end();
  if (!allowed || (kind == ClientActionKind::shutdown && any_calm)) return;
  scheduler_.after(within, [this, kind, pair] {
    if (!dying_) act(ClientAction{now(), kind, pair});
  });
}

void Gateway::on_group_durable(const std::vector<Record>& group, const std::function<void()>& durable, bool dies,
                               int effects) {
  if (trace_.on()) {
    for (const Record& record : group) {
      trace_.line("durable {} {} {} {} {}", name(record.kind), record.pair, record.update, record.worker,
                  json::serialize(record.body));
    }
  }
  appending_ = false;
  invariants_.on_durable(group);
  for (const Record& record : group) {
    const json::value* change = record.body.if_contains("change");
    const bool released = change != nullptr && change->is_string() && change->get_string() == "release";
    if (record.kind == RecordKind::worker_changed && released) network_.find(record.worker)->take_memory_back();
  }
  if (lives_left_ > 0 || life_ > 0) {
    journal_.insert(journal_.end(), group.begin(), group.end());
    group_ends_.push_back(journal_.size());
  }
  if (!durable) return;  // nobody is left to be told
  when_awake([this, durable, dies, effects] {
    dying_ = dies;
    effects_left_ = effects;
    durable();
    if (dies) die();
  });
}

void Gateway::tell(const protocol::EventBody& event) const {
  if (!trace_.on()) return;
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

void Gateway::tell(const protocol::Effect& effect) const {
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
  } else if (const auto* build = std::get_if<protocol::BuildGroup>(&effect)) {
    trace_.line("<- build group {} of {} trainers, {} workers", build->name, build->trainers.size(),
                build->workers.size());
  } else if (const auto* drop = std::get_if<protocol::DropGroup>(&effect)) {
    trace_.line("<- drop group {}", drop->name);
  } else if (const auto* run = std::get_if<protocol::RunTransfer>(&effect)) {
    trace_.line("<- transfer v{} by group {}: {}", run->version, run->name, name(run->step));
  } else {
    trace_.line("<- effect {}", effect.index());
  }
}

void Gateway::perform(protocol::Effect effect) {
  if (dying_ && --effects_left_ < 0) return;
  const bool told_only =
      std::holds_alternative<protocol::StartTimer>(effect) || std::holds_alternative<protocol::CancelTimer>(effect);
  const Fate what = dying_ || told_only ? Fate::goes_on : fate();
  if (what == Fate::dies_before || what == Fate::dies_after) doom(0);
  if (what == Fate::dies_before) {
    const auto* run = std::get_if<protocol::RunTransfer>(&effect);
    if (run == nullptr || plan_ != nullptr) return;
    invariants_.before_effect(effect);
    return run_transfer(*run, Mishap::none, true);
  }
  const Mishap mishap = what == Fate::fails ? plan_->mishap : Mishap::none;
  const bool is_job = std::holds_alternative<protocol::Prepare>(effect) ||
                      std::holds_alternative<protocol::Seal>(effect) ||
                      std::holds_alternative<protocol::ComputeDigest>(effect);
  if (what == Fate::fails && is_job) store_.fail_next();
  fold(effect.index() + 100);
  fold(static_cast<std::uint64_t>(scheduler_.now().ms));
  tell(effect);
  invariants_.before_effect(effect);
  perform_epochs(effect);
  perform_groups(effect, mishap);
  if (const auto* call = std::get_if<protocol::Call>(&effect)) perform_call(*call, mishap);
  if (const auto* cancel = std::get_if<protocol::Cancel>(&effect)) network_.cancel(cancel->call);
  if (const auto* save = std::get_if<protocol::TriggerSave>(&effect)) perform_save(*save, mishap);
  if (const auto* ask = std::get_if<protocol::AskTrainer>(&effect))
    trainers_[scenario_.pair_of(ask->trainer)]->ask(*ask);
  if (const auto* prepare = std::get_if<protocol::Prepare>(&effect)) store_.prepare(index_, *prepare);
  if (const auto* seal = std::get_if<protocol::Seal>(&effect)) store_.seal(index_, *seal);
  if (const auto* digest = std::get_if<protocol::ComputeDigest>(&effect)) store_.digest(index_, *digest);
  if (const auto* discard = std::get_if<protocol::Discard>(&effect)) store_.discard(index_, *discard);
  if (const auto* timer = std::get_if<protocol::StartTimer>(&effect)) start_timer(*timer);
  if (const auto* timer = std::get_if<protocol::CancelTimer>(&effect)) timers_.erase(timer->timer);
  if (const auto* reply = std::get_if<protocol::Reply>(&effect)) clients_.on_reply(*reply);
  if (const auto* ended = std::get_if<protocol::UpdateEnded>(&effect)) clients_.on_update_ended(ended->update);
}

void Gateway::perform_call(const protocol::Call& call, Mishap mishap) {
  check_rivalry(call);
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
  if (call.operation.transfer) {
    parts_[call.call] = {call, mishap};
    return;
  }
  network_.start(call, mishap);
}

void Gateway::perform_save(const protocol::TriggerSave& save, Mishap mishap) {
  const std::size_t pair = scenario_.pair_of(save.trainer);
  const protocol::PairSpec& spec = scenario_.pairs[pair];
  trainers_[pair]->fail_next(mishap);
  trainers_[pair]->save(
      save, spec.save_trigger == protocol::SaveTrigger::rank0 ? 1 : static_cast<int>(spec.trainer_urls.size()));
}

void Gateway::perform_epochs(const protocol::Effect& effect) {
  const auto answer = [this, life = life_](protocol::EventBody event) {
    if (life == life_) post(std::move(event));
  };
  if (const auto* claim = std::get_if<protocol::ClaimEpoch>(&effect)) epochs_.claim(index_, *claim, answer);
  if (const auto* look = std::get_if<protocol::LookEpoch>(&effect)) epochs_.look(index_, *look, answer);
}

void Gateway::perform_groups(const protocol::Effect& effect, Mishap mishap) {
  if (const auto* build = std::get_if<protocol::BuildGroup>(&effect)) transfers_.build(index_, *build, mishap);
  if (const auto* drop = std::get_if<protocol::DropGroup>(&effect)) transfers_.drop(index_, *drop, mishap);
  if (const auto* run = std::get_if<protocol::RunTransfer>(&effect)) run_transfer(*run, mishap, false);
}

void Gateway::run_transfer(const protocol::RunTransfer& run, Mishap mishap, bool dies) {
  const auto asks = [this, dies] { return !dies || death_dice_.chance(500); };
  if (run.step == protocol::HandOverStep::transfer)
    transfers_.run(run, driver_->state().updates.at(run.update).version, mishap, asks);
  else
    transfers_.hand_over(run, mishap, asks);
  for (const auto& member : run.workers) {
    const auto part = parts_.extract(member.call);
    if (asks()) network_.start(part.mapped().first, part.mapped().second);
  }
}

void Gateway::start_timer(const protocol::StartTimer& timer) {
  timers_.insert(timer.timer);
  scheduler_.after(timer.after.count(), [this, id = timer.timer] {
    when_awake([this, id] {
      if (timers_.erase(id) > 0) post(protocol::TimerFired{id});
    });
  });
}

void Gateway::act(const ClientAction& action) {
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

}  // namespace weighlock::sim
