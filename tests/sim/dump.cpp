#include "sim/dump.hpp"

#include <fmt/format.h>

#include <iterator>

namespace weighlock::sim {

using protocol::Cause;
using protocol::EarlierCall;
using protocol::VersionRef;

namespace {

std::string text(const VersionRef& v) {
  return fmt::format("{}/{} '{}' '{}' {}", v.lineage, v.version, v.directory, v.label, v.digest);
}

std::string text(const std::optional<VersionRef>& version) {
  return version ? text(*version) : "-";
}

std::string text(const std::optional<Cause>& cause) {
  return cause ? fmt::format("{}: {}", name(cause->code), cause->message) : "-";
}

std::string text(const EarlierCall& c) {
  return fmt::format("{} {} {} {}{}{}{}", c.call, name(c.kind), name(c.pause_mode), c.may_answer, c.held_before,
                     c.unpaused, c.since_read);
}

void add(std::string& out, const protocol::Worker& w) {
  fmt::format_to(std::back_inserter(out), "worker {} pair {} is {} with {} by {}, {}; {} started '{}' from '{}'", w.url,
                 w.pair, name(w.state), text(w.version), name(w.evidence), text(w.cause), w.incarnation, w.start_label,
                 w.start_path);
  fmt::format_to(std::back_inserter(out), " {} {}{}{}{} locked {}", w.dialect ? name(*w.dialect) : "?", w.paused_by_us,
                 w.pause_since_read, w.paused_by_other, w.touched, w.locked_by);
  out += fmt::format(" seen as {}", w.seen_as ? name(*w.seen_as) : "?");
  out += fmt::format(" memory {}", static_cast<int>(w.memory));
  if (w.owes_flush) out += w.owes_flush->since ? " owes a flush and serves" : " owes a flush";
  out += fmt::format(" joins {} '{}'", w.joins.failures, w.joins.doubtful_load);
  for (const std::string& label : w.labels) out += fmt::format(" label '{}'", label);
  for (const EarlierCall& call : w.earlier) out += fmt::format(" earlier {}", text(call));
  if (w.in_flight) out += fmt::format(" in flight {}", text(*w.in_flight));
  out += '\n';
}

void add(std::string& out, const protocol::Target& t) {
  fmt::format_to(std::back_inserter(out), "  target {} {} at {} batch {}: {} {} {} {}, {}; was {} {} {}, {}; goal {}",
                 t.worker, static_cast<int>(t.role), static_cast<int>(t.step), t.batch, name(t.verdict),
                 name(t.evidence), t.vacuous, t.needs_restart, text(t.cause), name(t.former_state), t.former_label,
                 text(t.former_version), text(t.former_cause), text(t.goal));
  for (const bool flag : {t.included, t.was_paused, t.pause_sent, t.paused, t.label_changed, t.resume_sent,
                          t.flushed_after, t.load_sent, t.asked, t.unproven, t.may_have_loaded, t.counted_lost,
                          t.caught_up, t.reached, t.read_whole, t.recovered, t.transferred})
    out += flag ? '1' : '0';
  out += fmt::format(" {} ended as {}\n", t.incarnation, t.ended_as ? name(*t.ended_as) : "-");
}

void add(std::string& out, const protocol::Update& u) {
  fmt::format_to(std::back_inserter(out), "update {} no {} kind {} of {}: {} attempt {} key '{}' path '{}' is {}", u.id,
                 u.number, static_cast<int>(u.kind), u.pair, text(u.version), u.attempt, u.key, u.path, name(u.state));
  if (u.transfer) out += " by transfer";
  fmt::format_to(std::back_inserter(out), " {}{}{}{} committed {} sealed {} {}\n", u.save_done, u.survey_done,
                 u.directory_made, u.members_fixed, u.committed ? (*u.committed ? "yes" : "no") : "undecided",
                 u.sealed ? fmt::format("{} {} {}", u.sealed->bytes, u.sealed->blind, u.sealed->digest) : "-",
                 u.error ? u.error->text() : "-");
  for (const protocol::Rank& rank : u.ranks)
    out += fmt::format("  rank {} {} {} {}\n", rank.trainer, rank.ended, static_cast<int>(rank.kind), rank.text);
  for (const auto& [url, target] : u.targets) add(out, target);
}

void add(std::string& out, const protocol::Pair& p) {
  fmt::format_to(std::back_inserter(out), "pair {} lineage {} attempts {}: committed {}, last good {}, before {}, {}",
                 p.spec.name, p.lineage, p.attempts, text(p.committed), text(p.last_good), text(p.previous_good),
                 p.rollback_reason);
  fmt::format_to(std::back_inserter(out), " {} active {}\n", p.bytes_last, p.active);
  for (const protocol::StoredVersion& stored : p.stored)
    out += fmt::format("  stored {} {}{}{} {}\n", text(stored.version), stored.committed, stored.handed,
                       stored.withdrawn, stored.bytes);
  for (const protocol::DoomedDirectory& one : p.doomed)
    out += fmt::format("  doomed {} in {} by {}\n", one.directory, one.save_path, one.update);
  out += fmt::format("  highest {} {}\n", text(p.highest), p.distrusted ? "distrusted" : "");
  for (const auto& id : p.joins) out += fmt::format("  join {}\n", id);
  for (const auto& id : p.joins_ended) out += fmt::format("  join ended {}\n", id);
  for (const auto& id : p.queue) out += fmt::format("  queued {}\n", id);
  for (const auto& id : p.history) out += fmt::format("  ended {}\n", id);
  for (const auto& [key, id] : p.keys) out += fmt::format("  key '{}' is {}\n", key, id);
  for (const auto& [version, who] : p.deaths) {
    for (const std::string& one : who) out += fmt::format("  {} died on {}\n", one, version);
  }
  for (const auto& [version, who] : p.spoiled) {
    for (const std::string& one : who) out += fmt::format("  {} spoiled by {}\n", one, version);
  }
  for (const auto& [url, known] : p.adapters) {
    out += fmt::format("  adapters of {} {} {} {}:", url, known.incarnation, text(known.version), text(known.cause));
    for (const auto& [name, one] : known.names)
      out += fmt::format(" {} v{} a{} '{}' {}{}", name, one.version, one.attempt, one.directory, one.certain,
                         one.committed);
    for (const std::string& name : known.to_retire) out += fmt::format(" retire {}", name);
    out += '\n';
  }
  for (const protocol::AdapterVersion& one : p.window)
    out += fmt::format("  window {} a{} {} {}\n", one.name, one.attempt, text(one.version), one.reused);
}

}  // namespace

std::string dump(const protocol::State& state) {
  std::string out = fmt::format("{} next {}\n", state.boot, state.next_update);
  for (const auto& [url, worker] : state.workers) add(out, worker);
  for (const auto& [name, pair] : state.pairs) add(out, pair);
  for (const auto& [id, update] : state.updates) add(out, update);
  for (const auto& [url, busy] : state.busy)
    out += fmt::format("busy {} {} '{}' '{}' {}\n", url, busy.update, busy.save_path, busy.directory, busy.call);
  for (const auto& id : state.orphans) out += fmt::format("orphan {}\n", id);
  for (const protocol::MeetingPlace& place : state.meetings)
    out += fmt::format("meeting {} {} {} {}\n", place.pair, place.worker, place.address, place.port);
  return out;
}

}  // namespace weighlock::sim
