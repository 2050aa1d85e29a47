#include "sim/trainer.hpp"

#include <algorithm>
#include <utility>

namespace weighlock::sim {

using protocol::SaveOutcomeKind;

TrainerGroup::TrainerGroup(Random& random, Faults& faults, Scheduler& scheduler, Store& store, const Trace& trace,
                           Post post)
    : random_(random), faults_(faults), scheduler_(scheduler), store_(store), trace_(trace), post_(std::move(post)) {}

void TrainerGroup::end(protocol::CallId call, SaveOutcomeKind kind, std::string text, std::int64_t after) {
  scheduler_.after(after, [this, call, kind, text = std::move(text)] { ended(call, kind, text); });
}

void TrainerGroup::ended(protocol::CallId call, SaveOutcomeKind kind, const std::string& text) {
  trace_.line("save {} ends: {} {}", call, static_cast<int>(kind), text);
  running_.erase(call);
  post_(protocol::SaveEnded{call, kind, text});
  for (const protocol::AskTrainer& ask : std::exchange(asked_, {})) this->ask(ask);
}

void TrainerGroup::ask(const protocol::AskTrainer& effect) {
  const bool busy =
      std::any_of(running_.begin(), running_.end(), [&](const auto& one) { return one.second == effect.trainer; });
  if (busy) {
    asked_.push_back(effect);
    return;
  }
  scheduler_.after(random_.between(1, 50), [this, call = effect.call] {
    post_(protocol::SaveEnded{call, SaveOutcomeKind::unknown, "it has ended since"});
  });
}

// A collective that lost a rank: it stays in it until the library's own time-out, or until somebody kills the job.
void TrainerGroup::hang(protocol::CallId call) {
  const std::int64_t after = random_.chance(500) ? random_.between(30'000, 600'000) : 7'200'000;
  end(call, random_.chance(500) ? SaveOutcomeKind::failed : SaveOutcomeKind::unknown, "the collective timed out",
      after);
}

void TrainerGroup::save(const protocol::TriggerSave& effect, int ranks) {
  Collective& collective = collectives_[effect.directory];
  running_[effect.call] = effect.trainer;
  const Mishap mishap = std::exchange(mishap_, Mishap::none);
  if (mishap == Mishap::not_sent || faults_.strikes(Fault::save_refuse)) {
    end(effect.call, SaveOutcomeKind::not_sent, "connection refused", random_.between(1, 50));
    return;  // the others wait for it
  }
  ++collective.called;
  const bool lost = mishap == Mishap::request_lost || mishap == Mishap::silent;
  if (lost || faults_.strikes(Fault::save_fail)) {
    collective.broken = true;
    end(effect.call, SaveOutcomeKind::failed, "CUDA error", random_.between(10, 5'000));
    for (const protocol::CallId waiting : collective.waiting) hang(waiting);
    collective.waiting.clear();
    return;
  }
  if (collective.broken) {
    hang(effect.call);
    return;
  }
  collective.waiting.push_back(effect.call);
  if (collective.called == ranks) {
    complete(effect.directory, ranks);
    return;
  }
  // A rank that is never called leaves the others in the collective until their own time-out.
  scheduler_.after(7'200'000, [this, directory = effect.directory, call = effect.call] {
    std::vector<protocol::CallId>& waiting = collectives_[directory].waiting;
    for (auto it = waiting.begin(); it != waiting.end(); ++it) {
      if (*it != call) continue;
      waiting.erase(it);
      ended(call, SaveOutcomeKind::failed, "the collective timed out");
      return;
    }
  });
}

void TrainerGroup::complete(const std::string& directory, int ranks) {
  const std::vector<protocol::CallId> waiting = std::move(collectives_[directory].waiting);
  collectives_[directory].waiting.clear();
  const std::int64_t usual = random_.between(200, 15'000);
  const std::int64_t took = faults_.strikes(Fault::save_late) ? usual + 90'000 : usual;
  for (const protocol::CallId call : waiting) {
    if (faults_.strikes(Fault::save_never)) {
      hang(call);
      continue;
    }
    scheduler_.after(took, [this, directory, ranks] { store_.rank_saved(directory, ranks); });
    const bool lost = faults_.strikes(Fault::save_reset);
    end(call, lost ? SaveOutcomeKind::unknown : SaveOutcomeKind::ok, lost ? "connection reset" : "",
        took + random_.between(1, 200));
  }
}

}  // namespace weighlock::sim
