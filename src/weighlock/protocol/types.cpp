#include "weighlock/protocol/types.hpp"

#include <algorithm>

#include "weighlock/protocol/record.hpp"
#include "weighlock/protocol/state.hpp"

namespace weighlock::protocol {

bool is_terminal(UpdateState state) {
  return state >= UpdateState::succeeded;
}

int Quorum::needed(int members) const {
  switch (kind) {
    case Kind::half:
      return std::max(1, (members + 1) / 2);
    case Kind::all:
      return std::max(1, members);
    case Kind::count:
      return std::max(1, count);
  }
  return std::max(1, members);
}

Milliseconds Deadlines::restore_or_default() const {
  return restore.value_or(2 * load + verify + resume);
}

Milliseconds Deadlines::whole_or_default() const {
  return whole.value_or(save + pause + load + verify + resume + restore_or_default());
}

std::string adapter_name(const LoraSpec& lora, std::int64_t version) {
  return lora.name + "-v" + std::to_string(version);
}

std::string_view name(HandOverStep step) {
  switch (step) {
    case HandOverStep::release_optimizer:
      return "release_optimizer";
    case HandOverStep::resume_weights:
      return "resume_weights";
    case HandOverStep::transfer:
      return "transfer";
    case HandOverStep::release_weights:
      return "release_weights";
    case HandOverStep::resume_kv_cache:
      return "resume_kv_cache";
  }
  return "";
}

std::string_view name(UpdateState state) {
  switch (state) {
    case UpdateState::queued:
      return "queued";
    case UpdateState::requested:
      return "requested";
    case UpdateState::preparing:
      return "preparing";
    case UpdateState::pausing:
      return "pausing";
    case UpdateState::loading:
      return "loading";
    case UpdateState::verifying:
      return "verifying";
    case UpdateState::committing:
      return "committing";
    case UpdateState::resuming:
      return "resuming";
    case UpdateState::restoring:
      return "restoring";
    case UpdateState::succeeded:
      return "succeeded";
    case UpdateState::degraded:
      return "degraded";
    case UpdateState::rolled_back:
      return "rolled_back";
    case UpdateState::aborted:
      return "aborted";
    case UpdateState::rejected:
      return "rejected";
    case UpdateState::failed:
      return "failed";
  }
  return "unknown";
}

std::string_view name(Verdict verdict) {
  switch (verdict) {
    case Verdict::untouched:
      return "untouched";
    case Verdict::loaded:
      return "loaded";
    case Verdict::verified:
      return "verified";
    case Verdict::torn:
      return "torn";
    case Verdict::unknown:
      return "unknown";
  }
  return "unknown";
}

std::string_view name(WorkerState state) {
  switch (state) {
    case WorkerState::joining:
      return "joining";
    case WorkerState::ready:
      return "ready";
    case WorkerState::pausing:
      return "pausing";
    case WorkerState::paused:
      return "paused";
    case WorkerState::loading:
      return "loading";
    case WorkerState::loaded:
      return "loaded";
    case WorkerState::verified:
      return "verified";
    case WorkerState::resuming:
      return "resuming";
    case WorkerState::unknown:
      return "unknown";
    case WorkerState::torn:
      return "torn";
    case WorkerState::healing:
      return "healing";
    case WorkerState::quarantined:
      return "quarantined";
    case WorkerState::draining:
      return "draining";
    case WorkerState::foreign:
      return "foreign";
    case WorkerState::gone:
      return "gone";
    case WorkerState::abandoned:
      return "abandoned";
  }
  return "unknown";
}

std::string_view name(CauseCode code) {
  switch (code) {
    case CauseCode::unreachable:
      return "unreachable";
    case CauseCode::restarted:
      return "restarted";
    case CauseCode::pause_failed:
      return "pause_failed";
    case CauseCode::label_failed:
      return "label_failed";
    case CauseCode::load_failed:
      return "load_failed";
    case CauseCode::load_unknown:
      return "load_unknown";
    case CauseCode::verify_failed:
      return "verify_failed";
    case CauseCode::flush_failed:
      return "flush_failed";
    case CauseCode::heal_failed:
      return "heal_failed";
    case CauseCode::resume_failed:
      return "resume_failed";
    case CauseCode::probe_failed:
      return "probe_failed";
    case CauseCode::no_last_good:
      return "no_last_good";
    case CauseCode::outstanding:
      return "outstanding";
    case CauseCode::needs_restart:
      return "needs_restart";
    case CauseCode::suspect:
      return "suspect";
    case CauseCode::credentials:
      return "credentials";
    case CauseCode::lagging:
      return "lagging";
    case CauseCode::foreign:
      return "foreign";
    case CauseCode::adapter_failed:
      return "adapter_failed";
    case CauseCode::operator_hold:
      return "operator_hold";
  }
  return "unknown";
}

std::string_view name(UpdateKind kind) {
  switch (kind) {
    case UpdateKind::update:
      return "update";
    case UpdateKind::leave:
      return "leave";
    case UpdateKind::join:
      return "join";
  }
  return "unknown";
}

std::string_view name(OnFailure value) {
  return value == OnFailure::degrade ? "degrade" : "rollback_all";
}

std::string_view name(PauseOwner value) {
  switch (value) {
    case PauseOwner::gateway:
      return "gateway";
    case PauseOwner::caller:
      return "caller";
    case PauseOwner::never:
      return "never";
  }
  return "unknown";
}

std::string_view name(DigestPolicy value) {
  switch (value) {
    case DigestPolicy::overlap:
      return "overlap";
    case DigestPolicy::before:
      return "before";
    case DigestPolicy::off:
      return "off";
  }
  return "unknown";
}

std::string_view name(RecordKind kind) {
  switch (kind) {
    case RecordKind::gateway_started:
      return "gateway_started";
    case RecordKind::gateway_stopping:
      return "gateway_stopping";
    case RecordKind::pair_connected:
      return "pair_connected";
    case RecordKind::pair_removed:
      return "pair_removed";
    case RecordKind::update_requested:
      return "update_requested";
    case RecordKind::update_rejected:
      return "update_rejected";
    case RecordKind::update_phase:
      return "update_phase";
    case RecordKind::update_ended:
      return "update_ended";
    case RecordKind::save_intent:
      return "save_intent";
    case RecordKind::save_ended:
      return "save_ended";
    case RecordKind::sealed:
      return "sealed";
    case RecordKind::targets:
      return "targets";
    case RecordKind::intent:
      return "intent";
    case RecordKind::outcome:
      return "outcome";
    case RecordKind::verdict:
      return "verdict";
    case RecordKind::commit:
      return "commit";
    case RecordKind::digest:
      return "digest";
    case RecordKind::worker_state:
      return "worker_state";
    case RecordKind::worker_seen:
      return "worker_seen";
    case RecordKind::death:
      return "death";
    case RecordKind::key_joined:
      return "key_joined";
    case RecordKind::worker_changed:
      return "worker_changed";
    case RecordKind::discard:
      return "discard";
    case RecordKind::last_good:
      return "last_good";
    case RecordKind::owner:
      return "owner";
    case RecordKind::epoch:
      return "epoch";
    case RecordKind::group:
      return "group";
    case RecordKind::superseded:
      return "superseded";
  }
  return "unknown";
}

}  // namespace weighlock::protocol
