#include "fleet.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "awex.hpp"
#include "checkpoint.hpp"

namespace weighlock::bench {
namespace {

constexpr std::string_view kPauseRoute = "/pause_generation";
constexpr std::string_view kContinueRoute = "/continue_generation";

// As uvicorn prints it.
std::string ok(std::string_view body, int status = 200, std::string_view phrase = "OK") {
  return fmt::format(
      "HTTP/1.1 {} {}\r\ndate: Sun, 29 Nov 2026 17:42:18 GMT\r\nserver: uvicorn\r\ncontent-length: {}\r\n"
      "content-type: application/json\r\n\r\n{}",
      status, phrase, body.size(), body);
}

// As Werkzeug does: the connection is closed.
std::string trainer_answer(std::string_view body) {
  return fmt::format(
      "HTTP/1.1 200 OK\r\nServer: Werkzeug/3.1.8 Python/3.11.7\r\nDate: Sun, 29 Nov 2026 17:42:18 GMT\r\n"
      "Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
      body.size(), body);
}

// The text after `"key":` up to the closing quote. The gateways' bodies have no escapes in what is looked for.
std::string_view text_member(std::string_view body, std::string_view key) {
  const std::size_t at = body.find(fmt::format("\"{}\"", key));
  if (at == std::string_view::npos) return {};
  const std::size_t colon = body.find(':', at + key.size() + 2);
  const std::size_t open = body.find_first_not_of(' ', colon + 1);
  if (open == std::string_view::npos || body[open] != '"') return {};
  return body.substr(open + 1, body.find('"', open + 1) - open - 1);
}

// The real answer lists every server argument, about 6 KiB.
std::string server_info() {
  json::object body{{"version", "0.5.23"},
                    {"frontend", "python"},
                    {"model_path", "/models/start"},
                    {"weight_version", "default"},
                    {"startup_time", {{"load_model", 1234567890}, {"warm_up", 345678901}}}};
  for (int i = 0; i < 180; ++i) {
    const std::string key = fmt::format("server_argument_{:03}", i);
    if (i % 3 == 0) body[key] = nullptr;
    if (i % 3 == 1) body[key] = i % 2 == 0;
    if (i % 3 == 2) body[key] = "auto";
  }
  json::object state{{"last_gen_throughput", 1234.5}, {"memory_usage", {{"weight", 14.2}, {"kvcache", 40.1}}}};
  body["internal_states"] = json::array(1, json::value(std::move(state)));
  return json::serialize(body);
}

std::string model_info(std::string_view path, std::string_view label) {
  return fmt::format(
      R"({{"model_path":"{}","served_model_name":"{}","tokenizer_path":"/models/start","is_generation":true,)"
      R"("preferred_sampling_params":null,"weight_version":"{}","load_format":"auto","reasoning_parser":null,)"
      R"("tool_call_parser":null,"disaggregation_mode":"null","has_image_understanding":false,)"
      R"("has_audio_understanding":false,"model_type":"llama","architectures":["LlamaForCausalLM"]}})",
      path, path, label);
}

double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

Fleet::Fleet() : server_([this](const Request& request) { on_request(request); }) {
  control_ = server_.listen("127.0.0.1", 0);
}

void Fleet::run() {
  std::printf("control %d\n", server_.port_of(control_));
  std::fflush(stdout);
  server_.run();
}

void Fleet::on_request(const Request& request) {
  if (request.address == control_) {
    const Result<json::value> body = parse_json(request.body.empty() ? "{}" : request.body, "control");
    const json::object answer = body ? control(request.target, *body) : json::object{{"error", body.error().message}};
    return server_.answer(request.connection, ok(json::serialize(answer)), false);
  }
  const std::string_view path = request.target.substr(0, request.target.find('?'));
  auto route = routes_.find(path);
  if (route == routes_.end()) route = routes_.emplace(std::string(path), Route{}).first;
  if (route->second.count++ == 0) route->second.first = request.received;
  route->second.last = request.received;
  in_flight_max_ = std::max(in_flight_max_, server_.in_flight());
  answer_worker(request, workers_[static_cast<std::size_t>(request.address - control_ - 1)]);
}

void Fleet::answer_worker(const Request& request, Worker& worker) {
  static const std::string kQueuePassed = trainer_answer(R"({"status":"success","result":1})");
  if (request.target.starts_with("/awex/")) return on_awex(request, worker);
  if (worker.trainer && request.target == "/get_version") return answer_after(request, worker, kQueuePassed);
  if (worker.trainer) return on_save(request, worker);
  if (stalls(request, worker)) {
    stalled_.push_back({request.connection, static_cast<std::size_t>(worker.number), inference_answer(request, worker),
                        request.received});
    return;
  }
  answer_after(request, worker, inference_answer(request, worker));
}

void Fleet::answer_after(const Request& request, Worker& worker, std::string text) {
  const auto latency = latency_.find(request.target.substr(0, request.target.find('?')));
  if (latency == latency_.end()) return send_answer(request.connection, worker, std::move(text), request.received);
  server_.after(latency->second, [this, connection = request.connection, &worker, text = std::move(text),
                                  received = request.received] { send_answer(connection, worker, text, received); });
}

bool Fleet::stalls(const Request& request, const Worker& worker) const {
  return stall_every_ > 0 && worker.number % stall_every_ == 0 && request.target == stall_route_;
}

// {"route": "/update_weights_from_disk", "every": 20}; without a route all are let go.
json::object Fleet::stall(const json::value& body) {
  stall_route_ = find_string(body, "route").value_or("");
  stall_every_ = stall_route_.empty() ? 0 : static_cast<int>(find_int(body, "every").value_or(1));
  if (stall_every_ > 0) return {};
  for (Stalled& one : stalled_) send_answer(one.connection, workers_[one.worker], std::move(one.text), one.received);
  const std::size_t count = stalled_.size();
  stalled_.clear();
  return {{"let_go", count}};
}

void Fleet::send_answer(std::uint64_t connection, Worker& worker, std::string text, Clock::time_point received) {
  server_.answer(connection, std::move(text), worker.trainer);
  if (worker.paused) worker.own += Clock::now() - received;
}

std::string Fleet::inference_answer(const Request& request, Worker& worker) {
  static const std::string kServerInfo = ok(server_info());
  static const std::string kReady = ok("");
  static const std::string kPaused = ok("", 503, "Service Unavailable");
  static const std::string kUnknown = ok(R"({"detail":"Not Found"})", 404, "Not Found");
  static const std::string kFlushed = ok("Cache flushed.\nPlease check backend logs for more details.\n");
  const std::string_view path = request.target.substr(0, request.target.find('?'));
  if (path == "/server_info") return kServerInfo;
  if (path == "/model_info") return ok(model_info(worker.directory, worker.label));
  if (path == "/ready") return worker.paused ? kPaused : kReady;
  if (path == kPauseRoute) return change_pause(request, worker, true);
  if (path == kContinueRoute) return change_pause(request, worker, false);
  if (path == "/update_weights_from_disk") return load(request.body, worker);
  if (path == "/get_weights_by_name") return weights_by_name(request.body, worker);
  if (path == "/flush_cache") return kFlushed;
  if (path == "/health") return kReady;
  if (path == "/update_weight_version") {
    worker.label = text_member(request.body, "new_version");
    return ok(fmt::format(R"({{"success":true,"message":"Weight version updated to {0}","new_version":"{0}"}})",
                          worker.label));
  }
  return kUnknown;
}

std::string Fleet::change_pause(const Request& request, Worker& worker, bool pause) {
  static const std::string kPaused = ok(R"({"message":"Generation paused successfully.","status":"ok"})");
  static const std::string kContinued = ok(R"({"message":"Generation continued successfully.","status":"ok"})");
  if (pause && !worker.paused) {
    worker.paused_at = request.received;
    worker.own = {};
  }
  if (!pause && worker.paused) {
    const auto window = request.received - worker.paused_at;
    if (window > worker.longest_window) {
      worker.longest_window = window;
      worker.window_began = worker.paused_at;
      worker.own_in_it = worker.own;
    }
  }
  worker.paused = pause;
  return pause ? kPaused : kContinued;
}

std::string Fleet::load(std::string_view body, Worker& worker) {
  worker.directory = text_member(body, "model_path");
  const std::string_view label = text_member(body, "weight_version");
  if (!label.empty()) worker.label = label;
  return ok(R"({"success":true,"message":"Succeeded to update model weights.","num_paused_requests":0})");
}

std::string Fleet::weights_by_name(std::string_view body, const Worker& worker) const {
  const std::string values = leading_values(worker.directory, text_member(body, "name"));
  if (values.empty()) return ok(R"({"error":{"message":"Get parameter by name failed"}})", 400, "Bad Request");
  return ok(values);
}

// A collective: no rank answers before all have been asked. Rank 0 writes.
void Fleet::on_save(const Request& request, Worker& worker) {
  static const std::string kSaved = trainer_answer(R"({"status":"success","result":null})");
  if (worker.number == 0) write_checkpoint(std::string(text_member(request.body, "path")));
  if (!collective_) return answer_after(request, worker, kSaved);
  waiting_saves_.push_back(request);
  if (static_cast<int>(waiting_saves_.size()) < train_) return;
  for (const Request& waiting : waiting_saves_)
    answer_after(Request{waiting.address, "POST", "/save", {}, waiting.received, waiting.connection},
                 workers_[static_cast<std::size_t>(waiting.address - control_ - 1)], kSaved);
  waiting_saves_.clear();
}

void Fleet::on_awex(const Request& request, Worker& worker) {
  static const std::string kUnknown = ok(R"({"detail":"Not Found"})", 404, "Not Found");
  const bool trainer = worker.trainer;
  const auto answered = [trainer](std::string_view body) { return trainer ? trainer_answer(body) : ok(body); };
  const std::string_view call = request.target.substr(std::string_view("/awex/").size());
  if (call == "report_parallelism")
    return answer_after(request, worker, answered(awex_parallelism(trainer, trainer ? train_ : 1)));
  if (call == "report_weight_meta") {
    const std::string meta =
        trainer ? awex_weight_meta(worker.number, train_, awex_tensors_) : awex_weight_meta(0, 1, awex_tensors_);
    const std::string_view form = trainer ? R"({{"result":{},"status":"success"}})" : R"({{"status":"ok","meta":{}}})";
    return answer_after(request, worker, answered(fmt::format(fmt::runtime(form), meta)));
  }
  const std::string done = answered(trainer ? R"({"result":null,"status":"success"})" : R"({"status":"ok"})");
  if (call == "teardown" && trainer) return answer_after(request, worker, done);
  if (call == "init_weights_update_group") awex_group_ = request.body;
  if (call != "init_weights_update_group" && call != "batch_isend_irecv" && call != "update_weights")
    return answer_after(request, worker, kUnknown);
  std::vector<Participant>& asked = collectives_[std::string(call)];
  asked.push_back({request.connection, static_cast<std::size_t>(&worker - workers_.data()), done, request.received});
  if (asked.size() < workers_.size()) return;
  const auto latency = latency_.find(request.target);
  const auto delay = latency == latency_.end() ? std::chrono::microseconds(0) : latency->second;
  server_.after(delay, [this, all = std::exchange(asked, {})] {
    for (const Participant& one : all) send_answer(one.connection, workers_[one.worker], one.text, one.received);
  });
}

// --- control

json::object Fleet::control(std::string_view target, const json::value& body) {
  if (target == "/setup") return set_up(body);
  if (target == "/statistics") return statistics();
  if (target == "/stall") return stall(body);
  if (target == "/clear") {
    clear();
    return {};
  }
  if (target == "/pause") {  // {"paused": true}: as a trainer does it, with all engines at once
    for (Worker& worker : workers_) worker.paused = !worker.trainer && find_bool(body, "paused").value_or(false);
    return {};
  }
  if (target == "/close_idle")
    return {{"closed", server_.close_idle(control_ + 1, control_ + 1 + static_cast<int>(workers_.size()))}};
  return {{"error", "unknown target"}};
}

// {"infer": N, "train": M, "collective": true, "awex_tensors": 30, "latency_ms": {"/save": 300}} -> {"infer": [urls],
// "train": [urls]}.
// Once in a process: addresses stay.
json::object Fleet::set_up(const json::value& body) {
  if (!workers_.empty()) return {{"error", "a fleet is set up once; start another process"}};
  infer_ = static_cast<int>(find_int(body, "infer").value_or(1));
  train_ = static_cast<int>(find_int(body, "train").value_or(1));
  collective_ = find_bool(body, "collective").value_or(true);
  awex_tensors_ = static_cast<int>(find_int(body, "awex_tensors").value_or(awex_tensors_));
  if (const json::value* latencies = find(body, "latency_ms"); latencies && latencies->is_object()) {
    for (const auto& [route, ms] : latencies->get_object())
      latency_[std::string(route)] = std::chrono::microseconds(static_cast<long>(ms.to_number<double>() * 1000));
  }
  json::array urls[2];
  workers_.reserve(static_cast<std::size_t>(infer_ + train_));
  for (int i = 0; i < infer_ + train_; ++i) {
    const bool trainer = i >= infer_;
    const int number = trainer ? i - infer_ : i;
    const std::string host = fmt::format("127.{}.{}.{}", trainer ? 2 : 1, number / 250, number % 250 + 1);
    const int address = server_.listen(host, port_);
    port_ = server_.port_of(address);
    Worker& worker = workers_.emplace_back();
    worker.trainer = trainer;
    worker.number = number;
    urls[trainer ? 1 : 0].push_back(json::string(fmt::format("http://{}:{}", host, port_)));
  }
  return {{"infer", std::move(urls[0])}, {"train", std::move(urls[1])}};
}

json::object Fleet::statistics() const {
  json::object routes;
  std::uint64_t total = 0;
  for (const auto& [path, route] : routes_) {
    routes[path] = {{"count", route.count}, {"spread_s", seconds(route.last - route.first)}};
    total += route.count;
  }
  const Worker* worst = nullptr;
  std::chrono::nanoseconds slowest{0};
  int paused = 0;
  for (const Worker& worker : workers_) {
    if (!worst || worker.longest_window > worst->longest_window) worst = &worker;
    slowest = std::max(slowest, worker.own_in_it);
    paused += worker.paused ? 1 : 0;
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto cpu = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return {{"requests", total},
          {"routes", std::move(routes)},
          {"connections", server_.accepted() - accepted_before_},
          {"in_flight_max", in_flight_max_},
          {"longest_pause_s", worst ? seconds(worst->longest_window) : 0},
          {"pause_began_s", worst ? seconds(worst->window_began.time_since_epoch()) : 0},
          {"pause_ended_s", worst ? seconds((worst->window_began + worst->longest_window).time_since_epoch()) : 0},
          {"slowest_own_s", seconds(slowest)},
          {"still_paused", paused},
          {"awex_group", awex_group_},
          {"cpu_s", cpu(usage.ru_utime) + cpu(usage.ru_stime)}};
}

void Fleet::clear() {
  routes_.clear();
  accepted_before_ = server_.accepted();
  in_flight_max_ = server_.in_flight();
  for (Worker& worker : workers_) worker.longest_window = worker.own_in_it = {};
}

}  // namespace weighlock::bench
