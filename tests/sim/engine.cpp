#include "sim/engine.hpp"

#include <algorithm>
#include <utility>

#include "sim/answers.hpp"
#include "sim/violation.hpp"

namespace weighlock::sim {
bool only_reads(OperationKind kind) {
  return kind == OperationKind::identify || kind == OperationKind::read_state || kind == OperationKind::verify ||
         kind == OperationKind::barrier || kind == OperationKind::list_adapters;
}

Engine::Engine(std::string url, DialectKind kind, std::size_t places, const protocol::Dialects& dialects,
               Random& random, Faults& faults, Scheduler& scheduler, Store& store, const Trace& trace, Answer answer,
               Broken broken)
    : url_(std::move(url)),
      kind_(kind),
      places_(places),
      dialects_(dialects),
      random_(random),
      faults_(faults),
      scheduler_(scheduler),
      store_(store),
      trace_(trace),
      answer_(std::move(answer)),
      broken_(std::move(broken)) {
  boot();
}

void Engine::boot() {
  const int life = truth_.life + 1;
  truth_ = EngineTruth{};
  truth_.life = life;
  truth_.incarnation = fmt::format("{}.{}", 1'700'000'000 + scheduler_.now().ms, life);
  truth_.label = truth_.old_label = "default";
  queue_.clear();
  busy_ = in_transfer_ = keeps_requests_ = false;
  frozen_until_ = busy_until_ = Instant{};
  held_for_ = Milliseconds(0);
}

bool Engine::has_no_route(const Request& request) const {
  const bool is_shared = request.operation.kind == OperationKind::set_label || request.operation.transfer.has_value();
  return request.dialect && *request.dialect != kind_ && !is_shared;
}

bool Engine::queued(OperationKind kind) const {
  if (kind_ == DialectKind::vllm) return true;
  return kind != OperationKind::read_state && kind != OperationKind::identify && kind != OperationKind::pause &&
         kind != OperationKind::resume && kind != OperationKind::list_adapters;
}

bool Engine::has_queued(OperationKind kind, const std::function<bool(protocol::CallId sent_as)>& counts) const {
  return std::any_of(queue_.begin(), queue_.end(),
                     [&](const Request& r) { return r.operation.kind == kind && counts(r.sent_as); });
}

bool Engine::idle() const {
  return std::all_of(queue_.begin(), queue_.end(), [](const Request& r) { return only_reads(r.operation.kind); });
}

void Engine::pause_is_forgotten() {
  truth_.foreign_paused = truth_.paused;
  forgotten_until_ = scheduler_.now();
}

bool Engine::has(protocol::CallId call) const {
  return std::any_of(queue_.begin(), queue_.end(), [&](const Request& r) { return r.call == call; });
}

bool Engine::has_queued_adapter(const std::string& directory) const {
  return std::any_of(queue_.begin(), queue_.end(), [&](const Request& r) {
    return r.operation.kind == OperationKind::load_adapter && r.operation.directory == directory;
  });
}

std::int64_t Engine::duration(OperationKind kind) {
  const bool loads = kind == OperationKind::load || kind == OperationKind::load_empty;
  // An unload waits for the requests that use the name.
  if (kind == OperationKind::unload_adapter && faults_.strikes(Fault::flush_busy))
    return random_.between(3'000, 60'000);
  const std::int64_t usual = loads ? random_.between(500, 6'000) : random_.between(5, 300);
  return faults_.strikes(Fault::slow) ? usual * random_.between(5, 40) : usual;
}

void Engine::deliver(Request request) {
  request.arrived = scheduler_.now();
  if (faults_.strikes(Fault::restart)) {
    queue_.push_back(std::move(request));
    die("restart");
    return;
  }
  if (faults_.strikes(Fault::freeze)) freeze_for(random_.between(1'000, 90'000));
  if ((queued(request.operation.kind) && !has_no_route(request)) || in_transfer_) {
    queue_.push_back(std::move(request));
    pump();
    return;
  }
  scheduler_.after(random_.between(1, 50), [this, request = std::move(request), life = truth_.life] {
    if (life != truth_.life || !truth_.alive) return;
    answer_(request.call, perform(request));
  });
}

void Engine::pump() {
  if (busy_ || queue_.empty()) return;
  busy_ = true;
  const Instant start = std::max(scheduler_.now(), frozen_until_);
  if (queue_.front().operation.transfer && queue_.front().operation.memory.empty()) {
    scheduler_.at(start + Milliseconds{random_.between(1, 20)}, [this, life = truth_.life] { begin_transfer(life); });
    return;
  }
  const bool is_memory = !queue_.front().operation.memory.empty();  // no load, but in our books
  const OperationKind kind = is_memory ? OperationKind::flush : queue_.front().operation.kind;
  scheduler_.at(start + Milliseconds{duration(kind)}, [this, life = truth_.life] { finish(life); });
}

void Engine::finish(int life) {
  if (life != truth_.life || !truth_.alive) return;
  if (scheduler_.now() < frozen_until_) {
    scheduler_.at(frozen_until_ + Milliseconds{random_.between(1, 500)}, [this, life] { finish(life); });
    return;
  }
  const Request request = queue_.front();
  const bool loads =
      request.operation.kind == OperationKind::load || request.operation.kind == OperationKind::load_adapter;
  if (loads && faults_.strikes(Fault::die_in_load)) {
    die("died in a load");
    return;
  }
  Outcome outcome = perform(request);
  if (!truth_.alive || life != truth_.life) return;  // it died of this
  queue_.pop_front();
  busy_ = false;
  const bool hangs = request.operation.kind == OperationKind::probe && truth_.paused;
  const bool drains = request.operation.kind == OperationKind::pause && request.operation.pause_mode == PauseMode::wait;
  if (drains) {
    scheduler_.after(random_.between(10, 8'000), [this, call = request.call, outcome, life] {
      if (life == truth_.life && truth_.alive) answer_(call, outcome);
    });
  } else if (!hangs) {
    answer_(request.call, std::move(outcome));
  }
  pump();
}

void Engine::die(const char* why) {
  if (!truth_.alive) return;
  trace_.line("engine {} dies: {}", url_, why);
  truth_.alive = false;
  const std::deque<Request> lost = std::move(queue_);
  queue_.clear();
  busy_ = in_transfer_ = false;
  if (died_) died_(*this);
  for (const Request& request : lost) broken_(request.call);
  const bool stays_away = faults_.strikes(Fault::never_back);
  scheduler_.after(stays_away ? 3'000'000 : random_.between(200, 40'000), [this] {
    if (faults_.strikes(Fault::replaced))
      kind_ = kind_ == DialectKind::sglang ? DialectKind::vllm : DialectKind::sglang;
    boot();
    trace_.line("engine {} starts anew as {}, {}", url_, truth_.incarnation, name(kind_));
  });
}

void Engine::freeze_for(std::int64_t ms) {
  frozen_until_ = std::max(frozen_until_, scheduler_.now() + Milliseconds{ms});
  trace_.line("engine {} is frozen until {}", url_, frozen_until_.ms);
}

void Engine::thaw() {
  frozen_until_ = std::min(frozen_until_, scheduler_.now());
}

// It runs: requests are served with what it holds.
void Engine::run_or_die() {
  if (!truth_.alive || truth_.paused) return;
  if (truth_.poisoned) {
    scheduler_.after(random_.between(1, 800), [this, life = truth_.life] {
      if (life == truth_.life && truth_.poisoned && !truth_.paused) die("generated with a half-made model");
    });
    return;
  }
  if (truth_.cached < 0) truth_.cached = truth_.content;
  if (truth_.cached != truth_.content) truth_.stale = true;
}

void Engine::set_weights(std::int64_t content, bool torn) {
  truth_.content = content;
  truth_.torn = torn;
  truth_.undetected = false;
  if (torn) truth_.visible_at = random_.chance(700) ? Evidence::spot : Evidence::checksum;
  run_or_die();
}

void Engine::set_label(const std::string& label) {
  if (label != truth_.label) truth_.old_label = std::exchange(truth_.label, label);
}

StateReading Engine::reading() {
  const bool old = truth_.old_label != truth_.label && faults_.strikes(Fault::old_label);
  return StateReading{truth_.incarnation, old ? truth_.old_label : truth_.label, truth_.paused,
                      std::string(kStartPath)};
}

Outcome Engine::perform(const Request& request) {
  if (!request.operation.memory.empty()) return resume_memory(request.operation.memory);
  if (has_no_route(request)) {
    Outcome unheard = failed(OutcomeKind::untouched, "404");
    unheard.code = ErrorCode::not_supported;
    return unheard;
  }
  Outcome outcome = perform(request.operation);
  const bool is_pause = request.operation.kind == OperationKind::pause;
  if (is_pause && request.arrived <= forgotten_until_) truth_.foreign_paused = truth_.paused;
  if (done_) done_(*this, request);
  return outcome;
}

Outcome Engine::perform(const Operation& operation) {
  trace_.line("engine {} does {} {}{}{}", url_, name(operation.kind), operation.directory, operation.label,
              operation.adapter);
  if (faults_.strikes(Fault::deny)) {
    Outcome denied = failed(OutcomeKind::untouched, "401");
    denied.code = ErrorCode::permission_denied;
    return denied;
  }
  const bool changes = operation.kind == OperationKind::pause || operation.kind == OperationKind::set_label ||
                       operation.kind == OperationKind::resume;
  if (changes && faults_.strikes(Fault::reject)) return failed(OutcomeKind::untouched, "refused by the engine");
  Outcome outcome = ok();
  switch (operation.kind) {
    case OperationKind::identify:
      outcome.dialect = kind_;
      outcome.reading = reading();
      return outcome;
    case OperationKind::read_state:
    case OperationKind::barrier:
      outcome.reading = reading();
      if (operation.brief) outcome.reading->incarnation.clear();
      return outcome;
    case OperationKind::set_label:
      set_label(operation.label);
      return outcome;
    case OperationKind::pause:
      return pause(operation);
    case OperationKind::resume:
      return resume(operation);
    case OperationKind::load:
      return load(operation);
    case OperationKind::load_empty:
      return load_empty();
    case OperationKind::flush:
      return flush();
    case OperationKind::verify:
      return verify(operation);
    case OperationKind::probe:
      return probe();
    case OperationKind::load_adapter:
      return load_adapter(operation);
    case OperationKind::unload_adapter:
      return unload_adapter(operation);
    case OperationKind::list_adapters:
      return list_adapters();
  }
  return outcome;
}

Outcome Engine::pause(const Operation& operation) {
  truth_.paused = true;
  keeps_requests_ = operation.pause_mode == PauseMode::keep;
  if (!keeps_requests_) {
    busy_until_ = Instant{};
    held_for_ = Milliseconds(0);
  } else if (scheduler_.now() < busy_until_) {
    held_for_ = std::chrono::duration_cast<Milliseconds>(busy_until_ - scheduler_.now());
  }
  if (kind_ == DialectKind::vllm && operation.pause_mode == PauseMode::abort) truth_.cached = -1;
  return ok();
}

Outcome Engine::resume(const Operation& operation) {
  truth_.paused = false;
  truth_.foreign_paused = false;
  run_or_die();
  const Milliseconds held = std::exchange(held_for_, Milliseconds(0));
  if (held > Milliseconds(0)) {
    busy_until_ = scheduler_.now() + held;
  } else if (keeps_requests_ && faults_.on() && random_.chance(300)) {  // what was kept runs on for a while
    busy_until_ = scheduler_.now() + Milliseconds{random_.between(100, 90'000)};
  }
  Outcome outcome = ok();
  if (!operation.brief) return outcome;
  outcome.reading = reading();
  outcome.reading->incarnation.clear();
  return outcome;
}

Outcome Engine::load_goes_wrong(const Operation& operation, bool& handled) {
  handled = true;
  if (faults_.strikes(Fault::lie)) {  // ok, and nothing or half of it was done
    if (random_.chance(400)) set_weights(truth_.content, true);
    if (traits().load_sets_label && !operation.label.empty()) set_label(operation.label);
    truth_.undetected = operation.evidence == Evidence::acknowledged;  // nobody asks further
    truth_.lied_of_caches = traits().load_flushes && operation.pause_mode != PauseMode::keep;
    return ok();
  }
  if (faults_.strikes(Fault::tear)) {
    if (kind_ == DialectKind::sglang && random_.chance(500)) {
      die("a truncated file");
      return failed(OutcomeKind::unknown, "");
    }
    truth_.poisoned = kind_ == DialectKind::vllm;
    truth_.needs_empty = kind_ == DialectKind::vllm && random_.chance(350);
    set_weights(truth_.content, true);
    return failed(OutcomeKind::touched, "a tensor is missing");
  }
  if (kind_ == DialectKind::vllm && faults_.strikes(Fault::stuck)) {
    truth_.stuck = truth_.poisoned = true;
    set_weights(truth_.content, true);
    Outcome outcome = failed(OutcomeKind::touched, "start (0) + length (128) exceeds dimension size (64)");
    outcome.needs_restart = true;
    return outcome;
  }
  if (faults_.strikes(Fault::reject)) {
    if (kind_ == DialectKind::sglang) {
      Outcome refused = failed(OutcomeKind::untouched, "no such directory");
      if (random_.chance(500)) refused.code = ErrorCode::checkpoint_missing;  // a mount that lags
      return refused;
    }
    truth_.poisoned = true;
    return failed(OutcomeKind::touched, "no such directory");
  }
  handled = false;
  return ok();
}

Outcome Engine::load(const Operation& operation) {
  if (!truth_.released.empty()) throw Violation{5, fmt::format("{} is loaded, and its memory is released", url_)};
  const Directory* directory = store_.find(operation.directory);
  const bool there = directory != nullptr && !directory->discarded && directory->content >= 0;
  if (!there) {
    if (kind_ == DialectKind::sglang) return failed(OutcomeKind::untouched, "no such directory");
    truth_.poisoned = true;
    return failed(OutcomeKind::touched, "no such directory");
  }
  if (truth_.stuck) {
    Outcome outcome = failed(OutcomeKind::touched, "start (0) + length (128) exceeds dimension size (64)");
    outcome.needs_restart = true;
    return outcome;
  }
  if (truth_.needs_empty) return failed(OutcomeKind::touched, "'Parameter' object has no attribute 'weight_loader'");
  bool handled = false;
  Outcome wrong = load_goes_wrong(operation, handled);
  if (handled) return wrong;
  truth_.poisoned = false;
  set_weights(directory->content, false);
  const bool flushes = traits().load_flushes && operation.pause_mode != PauseMode::keep;
  if ((flushes && is_busy()) || faults_.strikes(Fault::new_but_failed))
    return failed(OutcomeKind::touched, "updated, but the cache was not flushed");
  if (flushes) {
    truth_.cached = -1;
    truth_.stale = truth_.lied_of_caches = false;
  }
  if (traits().load_sets_label && !operation.label.empty()) set_label(operation.label);
  return ok();
}

Outcome Engine::load_empty() {
  if (truth_.stuck || faults_.strikes(Fault::tear)) return failed(OutcomeKind::touched, "still of the wrong shape");
  truth_.needs_empty = false;
  truth_.poisoned = false;
  return ok();
}

bool Engine::is_busy() const {
  return (truth_.paused && held_for_ > Milliseconds(0)) || scheduler_.now() < busy_until_;
}

Outcome Engine::flush() {
  if (is_busy() || faults_.strikes(Fault::flush_busy)) return failed(OutcomeKind::untouched, "requests are running");
  truth_.cached = truth_.paused ? -1 : truth_.content;
  truth_.stale = truth_.lied_of_caches = false;
  return ok();
}

Outcome Engine::verify(const Operation& operation) {
  Outcome outcome = ok();
  outcome.reading = reading();
  const Directory* expected = store_.find(operation.directory);
  Evidence level = std::min(std::min(operation.evidence, traits().evidence_best), Evidence::checksum);
  if (level > Evidence::label && (expected == nullptr || expected->blind)) level = Evidence::label;
  if (level == Evidence::spot && expected->vacuous) {
    level = Evidence::label;
    outcome.vacuous = true;
  }
  outcome.evidence = level;
  if (truth_.label != operation.label) {
    outcome.kind = OutcomeKind::mismatch;
    outcome.text = fmt::format("label '{}' instead of '{}'", truth_.label, operation.label);
    return outcome;
  }
  if (operation.directory.empty()) return outcome;  // transferred: there is nothing to compare with
  const bool same = expected != nullptr && expected->content == truth_.content && !truth_.torn && !truth_.poisoned;
  // A half-made model shows when its tensors are read (vLLM's checker fails on it).
  const Evidence visible_at = truth_.torn ? truth_.visible_at : Evidence::spot;
  if (!same && level >= visible_at) {
    outcome.kind = OutcomeKind::mismatch;
    outcome.text = "values differ from the file";
    return outcome;
  }
  if (!same) {
    truth_.undetected = true;
    trace_.line("engine {}: verify by {} can't see that the weights are wrong", url_, name(level));
  }
  return outcome;
}

Outcome Engine::probe() {
  if (truth_.poisoned) {
    die("a probe on a half-made model");
    return failed(OutcomeKind::unknown, "");
  }
  Outcome outcome = ok();
  outcome.evidence = Evidence::probe;
  return outcome;
}

void Engine::foreign_pause() {
  if (!truth_.alive || truth_.paused) return;
  trace_.line("engine {} is paused by somebody else", url_);
  truth_.paused = truth_.foreign_paused = true;
}

void Engine::foreign_resume() {
  if (!truth_.alive || !truth_.paused) return;
  trace_.line("engine {} is continued by somebody else", url_);
  truth_.paused = truth_.foreign_paused = false;
  run_or_die();
}

void Engine::foreign_label() {
  if (!truth_.alive) return;
  set_label("from-somewhere-else");
  truth_.foreign = true;
  trace_.line("engine {} gets a foreign label", url_);
}

}  // namespace weighlock::sim
