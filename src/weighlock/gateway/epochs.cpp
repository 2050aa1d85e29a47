#include "weighlock/gateway/epochs.hpp"

#include <unistd.h>

#include <array>
#include <utility>

#include "weighlock/gateway/wall_clock.hpp"

namespace weighlock {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

protocol::Epoch epoch_of(const EpochRecord& record) {
  protocol::Epoch out;
  out.number = record.number;
  out.owner = record.owner;
  out.host = record.host;
  out.written_at = record.written_at;
  out.remark = record.remark;
  for (const EpochWorker& worker : record.paused)
    out.paused.push_back({worker.url, worker.incarnation, worker.label, worker.held});
  return out;
}

}  // namespace

Epochs::Epochs(FileSystem& files, std::vector<std::string> roots)
    : store_(files), epochs_(files), roots_(std::move(roots)), host_(host_name()), started_(rfc3339(unix_now_ms())) {}

Status Epochs::confine(const std::string& save_path) const {
  if (save_path.empty()) return Error{ErrorCode::storage_not_visible, "the pair has no save_path"};
  const Result<std::string> inside = store_.confine(save_path, roots_);
  if (inside) return {};
  const ErrorCode code = inside.error().code;
  if (code != ErrorCode::permission_denied && code != ErrorCode::invalid_argument) return {};  // its use will tell
  return wrap(ErrorCode::storage_not_visible, "storage_roots", inside.error());
}

Result<protocol::ClaimedEpoch> Epochs::claim(const protocol::ClaimEpoch& claim) const {
  if (Status inside = confine(claim.save_path); !inside) return std::move(inside).error();
  EpochRecord mine;
  mine.number = claim.epoch;
  mine.owner = claim.owner;
  mine.host = host_;
  mine.started = started_;
  mine.written_at = rfc3339(unix_now_ms());
  for (const protocol::HeldWorker& worker : claim.paused)
    mine.paused.push_back({worker.url, worker.incarnation, worker.label, worker.held});
  Result<EpochClaim> done = claim.epoch == 0 ? epochs_.claim(claim.save_path, claim.pair, std::move(mine))
                                             : epochs_.rewrite(claim.save_path, claim.pair, mine);
  if (!done) return std::move(done).error();
  protocol::ClaimedEpoch out;
  out.epoch = done->number;
  if (done->predecessor) out.predecessor = epoch_of(*done->predecessor);
  if (done->superseded_by) out.superseded_by = epoch_of(*done->superseded_by);
  return out;
}

Result<protocol::Epoch> Epochs::look(const protocol::LookEpoch& look) const {
  if (Status inside = confine(look.save_path); !inside) return std::move(inside).error();
  Result<EpochRecord> found = epochs_.highest(look.save_path, look.pair);
  if (!found) return std::move(found).error();
  return epoch_of(*found);
}

}  // namespace weighlock
