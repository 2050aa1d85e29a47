#include "weighlock/gateway/state_at_start.hpp"

#include "weighlock/core/limits.hpp"
#include "weighlock/runtime/log.hpp"

namespace weighlock {

Result<protocol::State> read_state(Journal& journal, const protocol::Dialects& dialects, std::string boot,
                                   StartTime start) {
  protocol::Replay replay(dialects);
  std::int64_t next = 1;
  while (next <= journal.last_number()) {
    Result<std::vector<JournalEntry>> entries = journal.read(next, limits::kReplayBatch);
    if (!entries) return std::move(entries).error();
    if (entries->empty()) break;
    for (const JournalEntry& entry : *entries)
      replay.take(entry.record, start.now + Milliseconds(entry.wall_ms - start.unix_ms));
    next = entries->back().number + 1;
  }
  return replay.finish(std::move(boot), start.now);
}

void restore_credentials(const protocol::State& state, CredentialStore& credentials) {
  for (const auto& [name, pair] : state.pairs) {
    for (const protocol::WorkerSpec& worker : pair.spec.workers) {
      if (worker.key_references.empty()) continue;
      const Result<json::value> references = parse_json(worker.key_references, "key references");
      if (!references) {
        log_error("pair={} worker {}: {}; its calls go without a key", name, worker.url, references.error().text());
        continue;
      }
      Credentials keys;
      const auto look_up = [&, pair_name = name](std::string_view member, std::string& key) {
        const json::value* reference = find(*references, member);
        if (!reference) return;
        KeyFile file{std::string(member), worker.url, "", member == "admin_key", ""};
        auto failure = read_key_reference(*reference, member, key, file.path);
        // Nobody is served yet, so nobody waits for a slow mount but the start.
        if (!failure && !file.path.empty()) failure = take_key(read_key_file(file.path), file);
        if (!file.key.empty()) key = file.key;
        if (failure)
          log_error("pair={} worker {}: {}; its calls go without a key", pair_name, worker.url, failure->error.text());
      };
      look_up("admin_key", keys.admin_key);
      look_up("api_key", keys.api_key);
      credentials.set(worker.url, std::move(keys));
    }
  }
}

}  // namespace weighlock
