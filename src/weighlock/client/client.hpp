// A blocking client of one gateway's native API.
//
// Thread rule: one thread at a time; calls run the client's own loop until they are answered. Errors: the code, text
// and field of the gateway's problem body; without an answer `unreachable` (nothing was sent), `connection_lost` or
// `timed_out`. Only calls that may be repeated are: reads, and the start of an update, which carries an idempotency
// key.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weighlock/client/values.hpp"
#include "weighlock/core/http.hpp"
#include "weighlock/core/time.hpp"

namespace weighlock::client {

struct Settings {
  Url gateway;
  std::string admin_key;              // "" = none is sent
  Milliseconds call_timeout{30'000};  // one call; waiting for an update is not one call
};

// On top of that for calls which the gateway itself answers late: a changed worker waits for the running update (280 s
// at most), a verification for the storage.
inline constexpr Milliseconds kPatience{290'000};

struct UpdateRequest {
  std::int64_t version = 0;
  std::string path;                     // a finished directory; "" = the trainers save
  json::object policy;                  // empty = the pair's
  std::optional<std::int64_t> lineage;  // none = the pair's present one
  std::string idempotency_key;          // "" = a new one is drawn
};

struct RollbackRequest {
  std::optional<std::int64_t> to;       // none = the newest version that was committed before the present one
  std::optional<std::int64_t> lineage;  // of which run `to` is, if several have that number
  json::object policy;                  // empty = the pair's
  std::string idempotency_key;          // "" = a new one is drawn
};

class Client {
 public:
  explicit Client(Settings settings);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // `spec` is the body of PUT /v1/pairs/{name}.
  Result<Pair> put_pair(const std::string& name, const json::object& spec);
  Result<Pair> pair(const std::string& name);
  Result<std::vector<Pair>> pairs();
  // The answer's body, which names workers that were left behind.
  Result<json::value> remove_pair(const std::string& name);
  Result<std::vector<Worker>> workers(const std::string& pair);
  Result<std::vector<json::value>> workers_raw(const std::string& pair);

  Result<Update> start_update(const std::string& pair, const UpdateRequest& request);
  // An update of its own that saves nothing: back to a version that was committed before.
  Result<Update> roll_back(const std::string& pair, const RollbackRequest& request = {});
  Result<Update> update(const std::string& pair, const std::string& id);
  // Newest first, at most `most`.
  Result<std::vector<Update>> updates(const std::string& pair, std::size_t most);
  Result<Update> cancel_update(const std::string& pair, const std::string& id);

  // `worker`: {"url", "dialect"?, "admin_key"?, "api_key"?}, as in `put_pair`. It is brought to the committed version
  // before it counts as ready.
  Result<ChangedWorker> add_worker(const std::string& pair, const json::object& worker);
  // Of one worker: references as in `add_worker`; those that aren't named stay.
  Result<ChangedWorker> set_worker_key(const std::string& pair, const std::string& worker, const json::object& keys);
  // `worker` is an id or a URL of the pair's list. `reason`: for people who look at it later.
  Result<ChangedWorker> remove_worker(const std::string& pair, const std::string& worker,
                                      const std::string& reason = "");
  // It leaves the updates and goes on serving what it holds.
  Result<ChangedWorker> drain_worker(const std::string& pair, const std::string& worker,
                                     const std::string& reason = "");
  // It is held paused until it is released.
  Result<ChangedWorker> quarantine_worker(const std::string& pair, const std::string& worker,
                                          const std::string& reason = "");
  // Whatever held it back is over: it is brought to the committed version again.
  Result<ChangedWorker> release_worker(const std::string& pair, const std::string& worker,
                                       const std::string& reason = "");

  // What is stored, and who needs it.
  Result<Versions> versions(const std::string& pair);
  // Reads the stored version again, every byte where there is a digest. Takes as long as the storage does.
  Result<json::value> verify_version(const std::string& pair, std::int64_t version);
  // Deletes what nobody needs, or tells what that is; gives the directories.
  Result<std::vector<std::string>> collect_versions(const std::string& pair, bool dry_run);

  // Asks until the update has ended or `wait` is over, then `timed_out`. `seen` gets every reading, the last one too. A
  // gateway that is away for up to kAwayMax (it restarts) is waited for.
  static constexpr Milliseconds kAwayMax{15'000};
  Result<Update> await_update(const std::string& pair, const std::string& id, Milliseconds wait,
                              const std::function<void(const Update&)>& seen);

  // Any call. A status of 400 or more is an error.
  Result<json::value> call(const std::string& method, const std::string& target, const json::value* body,
                           std::vector<HttpHeader> headers = {});

 private:
  Result<json::value> send(const std::string& method, const std::string& target, const json::value* body,
                           std::vector<HttpHeader> headers, Milliseconds timeout);
  Result<Update> start(const std::string& target, const json::value& body, const std::string& key);
  Result<ChangedWorker> change_worker(const std::string& pair, const std::string& worker, const char* verb,
                                      const std::string& reason);

  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

// A path segment with everything but unreserved characters escaped.
std::string escape_segment(std::string_view text);
// 128 random bits in hex.
std::string draw_key();

}  // namespace weighlock::client
