#include "weighlock/client/client.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "weighlock/client/exchange.hpp"

namespace weighlock::client {
namespace {

constexpr int kPagesMax = 1000;          // a server that always names a next page would keep us for ever
constexpr int kStartTries = 3;           // the start of an update carries a key, so it may be sent again
constexpr std::size_t kQuotedMax = 300;  // of a body that isn't ours
constexpr Milliseconds kPollFirst{20};   // small updates take a fraction of a second
constexpr Milliseconds kPollLast{500};

Error transport_error(const Url& gateway, const std::string& call, const TransportError& failure) {
  ErrorCode code = failure.nothing_sent ? ErrorCode::unreachable : ErrorCode::connection_lost;
  if (failure.kind == TransportError::Kind::timeout && !failure.nothing_sent) code = ErrorCode::timed_out;
  if (failure.kind == TransportError::Kind::malformed || failure.kind == TransportError::Kind::too_large)
    code = ErrorCode::bad_answer;
  const std::string_view remedy =
      failure.nothing_sent ? "; is `weighlock serve` running there? (--gateway or WEIGHLOCK_URL names it)" : "";
  return Error{code, fmt::format("gateway {}: {}: {}{}", gateway.text, call, failure.text, remedy)};
}

// The gateway's problem body as an Error; for bodies of others (a proxy) the code follows from the status.
Error problem_error(const std::string& call, const HttpResponse& response) {
  Result<json::value> parsed = parse_json(response.body, "answer");
  std::string detail, field;
  ErrorCode code = ErrorCode::bad_answer;
  if (response.status == 401) code = ErrorCode::unauthenticated;
  if (response.status == 403) code = ErrorCode::permission_denied;
  if (response.status == 404) code = ErrorCode::not_found;
  if (parsed) {
    detail = find_string(*parsed, "detail").value_or("");
    field = find_string(*parsed, "field").value_or("");
    if (const auto word = find_string(*parsed, "code")) code = error_code_from(*word);
  }
  if (detail.empty()) detail = response.body.substr(0, kQuotedMax);
  while (!detail.empty() && (detail.back() == '.' || detail.back() == '\n')) detail.pop_back();
  // What is refused for its place or host names its field; a refused key is no part of the body.
  const bool about_key = code == ErrorCode::unauthenticated || (code == ErrorCode::permission_denied && field.empty());
  if (about_key) detail += "; set WEIGHLOCK_ADMIN_API_KEY or --admin-api-key-file to the gateway's key";
  const std::string where = field.empty() ? "" : fmt::format(" (field '{}')", field);
  return Error{code, fmt::format("{}: {}{} [HTTP {}]", call, detail.empty() ? "no explanation" : detail, where,
                                 response.status)};
}

bool worth_another_try(const Error& error) {
  return error.code == ErrorCode::connection_lost || error.code == ErrorCode::unreachable ||
         error.code == ErrorCode::shutting_down;
}

}  // namespace

struct Client::Implementation {
  Settings settings;
  Exchange exchange;
};

Client::Client(Settings settings) : implementation_(new Implementation{std::move(settings), {}}) {}
Client::~Client() = default;

Result<json::value> Client::call(const std::string& method, const std::string& target, const json::value* body,
                                 std::vector<HttpHeader> headers) {
  return send(method, target, body, std::move(headers), implementation_->settings.call_timeout);
}

Result<json::value> Client::send(const std::string& method, const std::string& target, const json::value* body,
                                 std::vector<HttpHeader> headers, Milliseconds timeout) {
  HttpRequest request{method, target, std::move(headers), ""};
  request.headers.push_back({"Accept", "application/json"});
  const Settings& settings = implementation_->settings;
  if (!settings.admin_key.empty()) request.headers.push_back({"Authorization", "Bearer " + settings.admin_key});
  if (body) {
    request.headers.push_back({"Content-Type", "application/json"});
    request.body = json::serialize(*body);
  }
  const std::string what = fmt::format("{} {}", method, target);
  const HttpResult result = implementation_->exchange.send(settings.gateway, std::move(request), timeout);
  if (const auto* failure = std::get_if<TransportError>(&result))
    return transport_error(settings.gateway, what, *failure);
  const HttpResponse& response = std::get<HttpResponse>(result);
  if (response.status >= 400) return problem_error(what, response);
  if (response.body.empty()) return json::value(nullptr);
  Result<json::value> parsed =
      parse_json(response.body, fmt::format("answer of {} to {}", settings.gateway.text, what));
  if (!parsed) return wrap(ErrorCode::bad_answer, "is this a Weighlock gateway?", std::move(parsed).error());
  return parsed;
}

namespace {

std::string pair_target(const std::string& pair) {
  return "/v1/pairs/" + escape_segment(pair);
}

// All items of a list, over its pages; stops once `most` are there.
Result<std::vector<json::value>> list(Client& client, const std::string& target, std::size_t most) {
  std::vector<json::value> items;
  std::string cursor;
  for (int page = 0; page < kPagesMax; ++page) {
    Result<json::value> answer =
        client.call("GET", cursor.empty() ? target : target + "?cursor=" + escape_segment(cursor), nullptr);
    if (!answer) return std::move(answer).error();
    const json::value* part = find(*answer, "items");
    if (!part || !part->is_array())
      return Error{ErrorCode::bad_answer, fmt::format("GET {}: the answer lacks 'items'", target)};
    for (const json::value& item : part->get_array()) {
      if (items.size() < most) items.push_back(item);
    }
    const json::value* next = find(*answer, "next");
    if (!next || next->is_null() || items.size() >= most) return items;
    cursor = next->is_string() ? std::string(next->get_string()) : json::serialize(*next);
  }
  return Error{ErrorCode::bad_answer, fmt::format("GET {}: more than {} pages", target, kPagesMax)};
}

template <typename T>
Result<std::vector<T>> read_all(Result<std::vector<json::value>> items, Result<T> (*read)(const json::value&)) {
  if (!items) return std::move(items).error();
  std::vector<T> values;
  for (const json::value& item : *items) {
    Result<T> value = read(item);
    if (!value) return std::move(value).error();
    values.push_back(std::move(*value));
  }
  return values;
}

template <typename T>
Result<T> read_one(Result<json::value> answer, Result<T> (*read)(const json::value&)) {
  if (!answer) return std::move(answer).error();
  return read(*answer);
}

constexpr std::size_t kNoLimit = static_cast<std::size_t>(-1);

}  // namespace

Result<Pair> Client::put_pair(const std::string& name, const json::object& spec) {
  const json::value body(spec);
  return read_one(call("PUT", pair_target(name), &body), read_pair);
}

Result<Pair> Client::pair(const std::string& name) {
  return read_one(call("GET", pair_target(name), nullptr), read_pair);
}

Result<std::vector<Pair>> Client::pairs() {
  return read_all(list(*this, "/v1/pairs", kNoLimit), read_pair);
}

Result<json::value> Client::remove_pair(const std::string& name) {
  // A running update ends first.
  return send("DELETE", pair_target(name), nullptr, {}, implementation_->settings.call_timeout + kPatience);
}

Result<std::vector<json::value>> Client::workers_raw(const std::string& pair) {
  return list(*this, pair_target(pair) + "/workers", kNoLimit);
}

Result<std::vector<Worker>> Client::workers(const std::string& pair) {
  return read_all(workers_raw(pair), read_worker);
}

Result<Update> Client::start_update(const std::string& pair, const UpdateRequest& request) {
  json::object body;
  body["version"] = request.version;
  if (!request.path.empty()) body["path"] = request.path;
  if (!request.policy.empty()) body["policy"] = request.policy;
  if (request.lineage) body["lineage"] = *request.lineage;
  return start(pair_target(pair) + "/updates", std::move(body), request.idempotency_key);
}

Result<Update> Client::roll_back(const std::string& pair, const RollbackRequest& request) {
  json::object body;
  if (request.to) body["to"] = *request.to;
  if (request.lineage) body["lineage"] = *request.lineage;
  if (!request.policy.empty()) body["policy"] = request.policy;
  return start(pair_target(pair) + ":rollback", std::move(body), request.idempotency_key);
}

Result<Update> Client::start(const std::string& target, const json::value& body, const std::string& asked_key) {
  const std::string key = asked_key.empty() ? draw_key() : asked_key;
  for (int attempt = 1;; ++attempt) {
    Result<json::value> answer = call("POST", target, &body, {{"Idempotency-Key", key}});
    const bool again = !answer && attempt < kStartTries && worth_another_try(answer.error());
    if (!again) return read_one(std::move(answer), read_update);
    std::this_thread::sleep_for(kPollLast);
  }
}

Result<ChangedWorker> Client::add_worker(const std::string& pair, const json::object& worker) {
  const json::value body(worker);
  const Milliseconds timeout = implementation_->settings.call_timeout + kPatience;
  return read_one(send("POST", pair_target(pair) + "/workers:add", &body, {}, timeout), read_changed_worker);
}

Result<ChangedWorker> Client::change_worker(const std::string& pair, const std::string& worker, const char* verb,
                                            const std::string& reason) {
  json::object body;
  if (!reason.empty()) body["reason"] = reason;
  const json::value value(std::move(body));
  const std::string target = fmt::format("{}/workers/{}:{}", pair_target(pair), escape_segment(worker), verb);
  const Milliseconds timeout = implementation_->settings.call_timeout + kPatience;
  return read_one(send("POST", target, &value, {}, timeout), read_changed_worker);
}

Result<ChangedWorker> Client::set_worker_key(const std::string& pair, const std::string& worker,
                                             const json::object& keys) {
  const json::value body(keys);
  return read_one(call("POST", pair_target(pair) + "/workers/" + escape_segment(worker) + ":set-key", &body),
                  read_changed_worker);
}

Result<ChangedWorker> Client::remove_worker(const std::string& pair, const std::string& worker,
                                            const std::string& reason) {
  return change_worker(pair, worker, "remove", reason);
}

Result<ChangedWorker> Client::drain_worker(const std::string& pair, const std::string& worker,
                                           const std::string& reason) {
  return change_worker(pair, worker, "drain", reason);
}

Result<ChangedWorker> Client::quarantine_worker(const std::string& pair, const std::string& worker,
                                                const std::string& reason) {
  return change_worker(pair, worker, "quarantine", reason);
}

Result<ChangedWorker> Client::release_worker(const std::string& pair, const std::string& worker,
                                             const std::string& reason) {
  return change_worker(pair, worker, "release", reason);
}

Result<Versions> Client::versions(const std::string& pair) {
  return read_one(call("GET", pair_target(pair) + "/versions", nullptr), read_versions);
}

Result<json::value> Client::verify_version(const std::string& pair, std::int64_t version) {
  const Milliseconds timeout = implementation_->settings.call_timeout + kPatience;
  return send("POST", fmt::format("{}/versions/{}:verify", pair_target(pair), version), nullptr, {}, timeout);
}

Result<std::vector<std::string>> Client::collect_versions(const std::string& pair, bool dry_run) {
  const json::value body(json::object{{"dry_run", dry_run}});
  const std::string target = pair_target(pair) + "/versions:collect";
  Result<json::value> answer = call("POST", target, &body);
  if (!answer) return std::move(answer).error();
  const json::value* directories = find(*answer, "directories");
  if (!directories || !directories->is_array())
    return Error{ErrorCode::bad_answer, fmt::format("POST {}: the answer lacks 'directories'", target)};
  std::vector<std::string> out;
  for (const json::value& one : directories->get_array()) {
    if (one.is_string()) out.emplace_back(std::string_view(one.get_string()));
  }
  return out;
}

Result<Update> Client::update(const std::string& pair, const std::string& id) {
  return read_one(call("GET", pair_target(pair) + "/updates/" + escape_segment(id), nullptr), read_update);
}

Result<std::vector<Update>> Client::updates(const std::string& pair, std::size_t most) {
  return read_all(list(*this, pair_target(pair) + "/updates", most), read_update);
}

Result<Update> Client::cancel_update(const std::string& pair, const std::string& id) {
  return read_one(call("POST", pair_target(pair) + "/updates/" + escape_segment(id) + ":cancel", nullptr), read_update);
}

Result<Update> Client::await_update(const std::string& pair, const std::string& id, Milliseconds wait,
                                    const std::function<void(const Update&)>& seen) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point until = Clock::now() + wait;
  Clock::time_point answered = Clock::now();
  Milliseconds interval = kPollFirst;
  std::string last_phase;
  for (;;) {
    Result<Update> reading = update(pair, id);
    const Clock::time_point now = Clock::now();
    if (!reading && (!worth_another_try(reading.error()) || now - answered > kAwayMax)) return reading;
    if (reading) {
      answered = now;
      if (seen) seen(*reading);
      if (!reading->running()) return reading;
      if (reading->phase != last_phase) interval = kPollFirst;
      last_phase = reading->phase;
    }
    if (now >= until) {
      return Error{ErrorCode::timed_out, fmt::format("update {} of pair '{}' hasn't ended after {} s (phase: {}); it "
                                                     "goes on, `weighlock history {}` tells how it ends",
                                                     id, pair, static_cast<double>(wait.count()) / 1000,
                                                     last_phase.empty() ? "unknown" : last_phase, pair)};
    }
    std::this_thread::sleep_for(std::min<Clock::duration>(interval, until - now));
    interval = std::min(interval * 3 / 2, kPollLast);
  }
}

std::string escape_segment(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                       c == '_' || c == '.' || c == '~';
    if (plain) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    }
  }
  return out;
}

std::string draw_key() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

}  // namespace weighlock::client
