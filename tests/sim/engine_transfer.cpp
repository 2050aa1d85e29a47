// The part of a simulated engine in collectives. Its event loop is in it: nothing else is answered meanwhile.
#include "sim/answers.hpp"
#include "sim/engine.hpp"

namespace weighlock::sim {

void Engine::begin_transfer(int life) {
  if (life != truth_.life || !truth_.alive) return;
  if (scheduler_.now() < frozen_until_) {
    scheduler_.at(frozen_until_ + Milliseconds{random_.between(1, 500)}, [this, life] { begin_transfer(life); });
    return;
  }
  const protocol::CallId call = queue_.front().call;
  in_transfer_ = true;
  trace_.line("engine {} is asked into a collective", url_);
  if (faults_.strikes(Fault::deny)) return end_transfer(call, Received::nothing, 0, "401");
  if (faults_.strikes(Fault::reject)) return end_transfer(call, Received::nothing, 0, "refused by the engine");
  if (faults_.strikes(Fault::die_in_load)) {
    scheduler_.after(random_.between(1, 3'000), [this, life] {
      if (life == truth_.life && in_transfer_) die("died in a collective");
    });
  }
  enter_(*this, call);
}

// Without what was in it. What isn't released can't be resumed: its scheduler dies of that. The routes are the
// plugin's, on both engines, and ask for no key.
Outcome Engine::resume_memory(const std::string& tag) {
  trace_.line("engine {} resumes its {}", url_, tag);
  if (faults_.strikes(Fault::reject)) return failed(OutcomeKind::touched, "out of memory");
  if (truth_.released.erase(tag) == 0) {
    die("resumed what was not released");
    return failed(OutcomeKind::unknown, "");
  }
  if (tag == "weights") set_weights(truth_.content, true);
  if (faults_.strikes(Fault::new_but_failed)) return failed(OutcomeKind::touched, "resumed, but the answer was lost");
  return ok();
}

// `error`: "" when its own operations ended well.
void Engine::end_transfer(protocol::CallId call, Received received, std::int64_t content, const std::string& error,
                          bool blames_a_peer) {
  if (!in_transfer_ || queue_.empty() || queue_.front().call != call) return;
  Outcome outcome = error.empty() ? ok() : failed(OutcomeKind::touched, error);
  outcome.blames_a_peer = blames_a_peer;
  bool lies = false;
  if (error.empty()) {
    if (truth_.stuck) {
      received = Received::half;
      outcome = failed(OutcomeKind::touched, "a tensor has another shape");
    } else if (faults_.strikes(Fault::lie)) {
      lies = true;
      received = random_.chance(400) ? Received::half : Received::nothing;
    } else if (faults_.strikes(Fault::tear)) {
      received = Received::half;
      outcome = failed(OutcomeKind::touched, "a tensor is missing");
    } else if (faults_.strikes(Fault::new_but_failed)) {
      outcome = failed(OutcomeKind::touched, "received, but the workers' answers were lost");
    }
  }
  queue_.pop_front();
  busy_ = in_transfer_ = false;
  const int life = truth_.life;
  if (received == Received::half) set_weights(truth_.content, true);
  if (received == Received::all) {
    truth_.poisoned = truth_.needs_empty = false;
    set_weights(content, false);
  }
  if (lies) truth_.undetected = true;  // no label shows what was transferred
  trace_.line("engine {} ends its part: {} {}", url_, name(outcome.kind), outcome.text);
  if (!truth_.alive || life != truth_.life) return;
  answer_(call, std::move(outcome));
  pump();
}

}  // namespace weighlock::sim
