#include "weighlock/gateway/executor.hpp"

#include <unistd.h>

#include <utility>

#include "weighlock/core/limits.hpp"
#include "weighlock/core/url.hpp"
#include "weighlock/engines/dialect.hpp"
#include "weighlock/gateway/fence.hpp"
#include "weighlock/gateway/told.hpp"
#include "weighlock/gateway/wall_clock.hpp"
#include "weighlock/runtime/log.hpp"
#include "weighlock/trainers/save.hpp"

namespace weighlock {
namespace {

using namespace protocol;

constexpr Milliseconds kTrainerAskedAgain{1000};  // one that doesn't answer is down, or starts
constexpr Milliseconds kLookForSpace{2000};       // between two tries to put space by again
constexpr Milliseconds kRecordsHeldMax{500};      // who watches /v1/events sees them this late at most

void end_process(const Error& error) {
  log_error("the gateway ends, since it can't record what it does: {}", error.text());
  log_flush(Milliseconds(1000));
  _exit(kExitJournalFailed);
}

Url url_of(const std::string& text) {
  Result<Url> url = parse_url(text);
  WEIGHLOCK_CHECK(url, "URLs are checked where they come in");
  return *std::move(url);
}

SaveOutcomeKind kind_of(SaveKind kind) {
  switch (kind) {
    case SaveKind::ok:
      return SaveOutcomeKind::ok;
    case SaveKind::failed:
      return SaveOutcomeKind::failed;
    case SaveKind::unknown:
      return SaveOutcomeKind::unknown;
    case SaveKind::not_sent:
      return SaveOutcomeKind::not_sent;
  }
  return SaveOutcomeKind::unknown;
}

}  // namespace

Executor::Executor(Parts parts, Hooks hooks) : parts_(parts), hooks_(std::move(hooks)) {
  if (!hooks_.journal_failed) hooks_.journal_failed = end_process;
}

Executor::~Executor() {
  for (const auto& [id, call] : calls_) parts_.engine_calls.cancel(call);
  for (const auto& [id, save] : saves_) parts_.http.cancel(save);
  for (const auto& [id, timer] : timers_) parts_.loop.cancel(timer);
  if (flush_) parts_.loop.cancel(*flush_);
  if (space_look_) parts_.loop.cancel(*space_look_);
}

Instant Executor::now() const {
  return parts_.loop.now();
}

void Executor::post(EventBody body) {
  WEIGHLOCK_CHECK(driver_, "the executor is attached before the first event");
  driver_->post(std::move(body));
}

void Executor::append(std::vector<Record> group, std::function<void()> durable) {
  for (const Record& record : group) tell(record);
  auto shared = std::make_shared<std::vector<Record>>(std::move(group));
  auto outcome = std::make_shared<Status>();
  const std::int64_t wall_ms = unix_now_ms();
  Journal* journal = &parts_.journal;
  parts_.journal_pool.run(
      [journal, shared, outcome, wall_ms] { *outcome = journal->append(std::move(*shared), wall_ms); },
      [this, alive = std::weak_ptr(alive_), outcome, durable = std::move(durable)] {
        if (alive.expired()) return;
        if (!*outcome) return hooks_.journal_failed(outcome->error());
        tell_space();
        durable();
        if (!alive.expired()) parts_.waiters.changed();
      });
}

void Executor::tell_space() {
  const bool low = parts_.journal.space_low();
  if (low && !space_told_)
    log_error(
        "the disk of the journal is full: what was put by for that is used to bring running updates to their end, and "
        "new ones are refused until there is space");
  if (!low && space_told_) log_info("the disk of the journal has space again; updates are taken");
  space_told_ = low;
  if (low && !space_look_) space_look_ = parts_.loop.after(kLookForSpace, [this] { look_for_space(); });
}

// Requests look for it, too; but whoever follows /readyz sends none.
void Executor::look_for_space() {
  space_look_.reset();
  in_pool(
      parts_.journal_pool, [journal = &parts_.journal] { journal->restore_space(); }, [this] { tell_space(); });
}

void Executor::records_held() {
  if (flush_) return;
  flush_ = parts_.loop.after(kRecordsHeldMax, [this] {
    flush_.reset();
    driver_->flush();
  });
}

void Executor::perform(Effect effect) {
  std::visit([this](const auto& one) { run(one); }, effect);
}

// What was sealed by an earlier process is read first: without it an engine's values can't be judged.
void Executor::run(const Call& call) {
  if (call.operation.transfer) return;  // RunTransfer carries it, with all others of its collective
  const std::string& directory = call.operation.directory;
  const bool unknown = call.operation.kind == OperationKind::verify && call.operation.evidence > Evidence::label &&
                       !parts_.storage.expectations_of(directory);
  if (!unknown) return begin(call);
  recalling_.insert(call.call);
  in_storage([storage = &parts_.storage, directory] { storage->recall(directory); },
             [this, call] {
               if (recalling_.erase(call.call) > 0) begin(call);
             });
}

void Executor::begin(const Call& call) {
  EngineTask task;
  task.operation = call.operation;
  task.credentials = parts_.credentials.of(call.worker);
  if (call.operation.kind == OperationKind::load_empty) task.operation.directory = empty_checkpoint_for(call.update);
  if (call.operation.kind == OperationKind::verify)
    task.expectations = parts_.storage.expectations_of(call.operation.directory);
  std::unique_ptr<Conversation> conversation =
      call.dialect ? start_conversation(*call.dialect, std::move(task)) : start_identify(std::move(task.credentials));
  calls_[call.call] = parts_.engine_calls.start(url_of(call.worker), std::move(conversation), limits::kCallHardTimeout,
                                                [this, id = call.call](Outcome outcome) {
                                                  calls_.erase(id);
                                                  post(CallEnded{id, std::move(outcome)});
                                                });
}

// Made when the pair's last version was sealed. A path must be sent: without one vLLM takes the last it was given.
std::string Executor::empty_checkpoint_for(const UpdateId& id) const {
  const State& state = driver_->state();
  const auto update = state.updates.find(id);
  const auto pair = update == state.updates.end() ? state.pairs.end() : state.pairs.find(update->second.pair);
  WEIGHLOCK_CHECK(pair != state.pairs.end(), "only a pair's update loads the empty checkpoint");
  return VersionStore::empty_checkpoint_of(pair->second.spec.save_path);
}

void Executor::run(const Cancel& cancel) {
  recalling_.erase(cancel.call);
  parts_.awex_groups.cancel(cancel.call);
  if (const auto node = calls_.extract(cancel.call); !node.empty()) parts_.engine_calls.cancel(node.mapped());
  if (const auto node = saves_.extract(cancel.call); !node.empty()) parts_.http.cancel(node.mapped());
}

void Executor::run(const TriggerSave& save) {
  HttpCallOptions options;
  options.deadline = limits::kCallHardTimeout;
  options.fresh_connection = true;  // a save is never repeated, so a connection that may be dying is not good enough
  options.never_waits = true;       // a collective: no rank is out of it before all are in
  saves_[save.call] =
      parts_.http.send(url_of(save.trainer), make_save_request(save.directory), options,
                       [this, alive = std::weak_ptr(alive_), id = save.call](HttpResult result) {
                         if (alive.expired() || saves_.erase(id) == 0) return;
                         SaveOutcome outcome = classify_save(result);
                         post(SaveEnded{id, kind_of(outcome.kind), std::move(outcome.text), outcome.may_run});
                       });
}

void Executor::run(const AskTrainer& ask) {
  HttpCallOptions options;
  options.deadline = limits::kCallHardTimeout;
  options.fresh_connection = true;
  saves_[ask.call] = parts_.http.send(
      url_of(ask.trainer), make_queue_request(), options,
      [this, alive = std::weak_ptr(alive_), ask](HttpResult result) {
        if (alive.expired() || saves_.erase(ask.call) == 0) return;
        switch (classify_queue(result)) {
          case QueueAnswer::passed:
            return post(
                SaveEnded{ask.call, SaveOutcomeKind::unknown, "its answer was lost; it has ended since", false});
          case QueueAnswer::none:
            parts_.loop.after(kTrainerAskedAgain, [this, alive, ask] {
              if (!alive.expired()) run(ask);
            });
            return;
          case QueueAnswer::not_known:
            return log_warn(
                "trainer {}: nothing tells whether a save that began before this start has ended (GET /get_version "
                "isn't "
                "answered as AReaL's workers do); the next one waits for two hours, or give the trainer another URL",
                ask.trainer);
        }
      });
}

void Executor::in_pool(Pool& pool, std::function<void()> job, std::function<void()> done) {
  pool.run(std::move(job), [alive = std::weak_ptr(alive_), done = std::move(done)] {
    if (!alive.expired()) done();
  });
}

void Executor::run(const Prepare& prepare) {
  auto made = std::make_shared<Result<std::string>>(Error{});
  in_storage([storage = &parts_.storage, prepare, made] { *made = storage->prepare(prepare); },
             [this, update = prepare.update, made] {
               post(Prepared{update, std::move(*made)});
             });
}

void Executor::run(const Seal& seal) {
  auto made = std::make_shared<Result<SealedVersion>>(Error{});
  in_storage([storage = &parts_.storage, seal, made] { *made = storage->seal(seal); },
             [this, update = seal.update, made] {
               post(Sealed{update, std::move(*made)});
             });
}

void Executor::run(const ComputeDigest& compute) {
  auto made = std::make_shared<Result<std::string>>(Error{});
  in_storage([storage = &parts_.storage, compute, made] { *made = storage->digest(compute.directory); },
             [this, update = compute.update, made] {
               // One that was ended early says nothing of the files.
               if (!parts_.storage.stopping()) post(DigestDone{update, std::move(*made)});
             });
}

void Executor::run(const Discard& discard) {
  auto done = std::make_shared<Status>();
  in_storage(
      [storage = &parts_.storage, discard, done] { *done = storage->discard(discard.save_path, discard.directory); },
      [this, directory = discard.directory, done] {
        if (*done) return post(Discarded{directory, std::nullopt});
        log_warn("could not remove the attempt's directory '{}': {}", directory, done->error().text());
        post(Discarded{directory, done->error()});
      });
}

void Executor::run(const MarkLatest& mark) {
  auto done = std::make_shared<Status>();
  in_storage([storage = &parts_.storage, mark, done] { *done = storage->mark_latest(mark.save_path, mark.directory); },
             [save_path = mark.save_path, done] {
               if (!*done) log_warn("could not write LATEST in '{}': {}", save_path, done->error().text());
             });
}

void Executor::run(const ClaimEpoch& claim) {
  auto made = std::make_shared<Result<ClaimedEpoch>>(Error{});
  in_pool(
      parts_.epoch_pool, [epochs = &parts_.epochs, claim, made] { *made = epochs->claim(claim); },
      [this, ask = claim.ask, pair = claim.pair, made] {
        post(EpochClaimed{ask, pair, std::move(*made)});
      });
}

void Executor::run(const LookEpoch& look) {
  auto seen = std::make_shared<Result<Epoch>>(Error{});
  in_pool(
      parts_.epoch_pool, [epochs = &parts_.epochs, look, seen] { *seen = epochs->look(look); },
      [this, ask = look.ask, pair = look.pair, seen] {
        post(EpochSeen{ask, pair, std::move(*seen)});
      });
}

void Executor::run(const BuildGroup& build) {
  parts_.awex_groups.build(build, [this](GroupBuilt built) { post(std::move(built)); });
}

void Executor::run(const DropGroup& drop) {
  parts_.awex_groups.drop(drop);
}

void Executor::run(const RunTransfer& transfer) {
  parts_.awex_groups.transfer(
      transfer,
      [this](CallId call, Outcome outcome) {
        post(CallEnded{call, std::move(outcome)});
      },
      [this](SaveEnded ended) { post(std::move(ended)); });
}

void Executor::run(const StartTimer& timer) {
  timers_[timer.timer] = parts_.loop.after(timer.after, [this, id = timer.timer] {
    timers_.erase(id);
    post(TimerFired{id});
  });
}

void Executor::run(const CancelTimer& timer) {
  if (const auto node = timers_.extract(timer.timer); !node.empty()) parts_.loop.cancel(node.mapped());
}

void Executor::run(const Fence& fence) {
  log_warn("pair={} worker {} is fenced: {}: {}", fence.pair, fence.worker, name(fence.cause.code),
           fence.cause.message);
  run_fence(hooks_.fence, fence, parts_.http, parts_.fence_pool);
}

void Executor::run(const Reply& reply) {
  parts_.waiters.replied(reply);
}

void Executor::run(const UpdateEnded& ended) {
  if (hooks_.update_ended) hooks_.update_ended(ended.update);
  parts_.waiters.ended(ended.update);
}

void Executor::run(const Stopped&) {
  if (hooks_.stopped) hooks_.stopped();
}

}  // namespace weighlock
