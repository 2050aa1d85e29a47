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

struct UpdateRequest {
  std::int64_t version = 0;
  std::string path;                     // a finished directory; "" = the trainers save
  json::object policy;                  // empty = the pair's
  std::optional<std::int64_t> lineage;  // none = the pair's present one
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
  Result<Update> update(const std::string& pair, const std::string& id);
  // Newest first, at most `most`.
  Result<std::vector<Update>> updates(const std::string& pair, std::size_t most);
  Result<Update> cancel_update(const std::string& pair, const std::string& id);

  // Asks until the update has ended or `wait` is over, then `timed_out`. `seen` gets every reading, the last one too. A
  // gateway that is away for up to kAwayMax (it restarts) is waited for.
  static constexpr Milliseconds kAwayMax{15'000};
  Result<Update> await_update(const std::string& pair, const std::string& id, Milliseconds wait,
                              const std::function<void(const Update&)>& seen);

  // Any call. A status of 400 or more is an error.
  Result<json::value> call(const std::string& method, const std::string& target, const json::value* body,
                           std::vector<HttpHeader> headers = {});

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

// A path segment with everything but unreserved characters escaped.
std::string escape_segment(std::string_view text);
// 128 random bits in hex.
std::string draw_key();

}  // namespace weighlock::client
