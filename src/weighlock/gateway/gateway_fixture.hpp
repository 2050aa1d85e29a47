// A whole gateway on a loop of its own thread, with engines and trainers that speak over real sockets, and a blocking
// client. Included by tests only.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "weighlock/core/json.hpp"
#include "weighlock/gateway/fake_vllm.hpp"
#include "weighlock/gateway/gateway.hpp"
#include "weighlock/io/temporary_directory.hpp"
#include "weighlock/net/server.hpp"
#include "weighlock/store/checkpoint_fixture.hpp"

namespace weighlock::test {

constexpr const char* kKey = "secret-key";

// What becomes of a request to a peer: it is handled, refused with 500, lost before it was read, or done and its answer
// lost.
enum class RequestFate { handled, refused, lost, answer_lost };

// True if the request isn't to be handled any more.
inline bool struck(const std::function<RequestFate()>& fate, const Responder& answer) {
  const RequestFate what = fate ? fate() : RequestFate::handled;
  if (what == RequestFate::refused) answer.respond(json_reply(500, {{"error", "Internal server error: struck"}}));
  if (what == RequestFate::lost || what == RequestFate::answer_lost) answer.reset();  // the first answer counts
  return what == RequestFate::refused || what == RequestFate::lost;
}

// SGLang's control routes, as far as a disk update needs them, or vLLM's. Members are touched on the loop only, but for
// the atomics.
class FakeEngine {
 public:
  FakeEngine(Loop& loop, std::string start_path, std::string at_host = "127.0.0.1")
      : path(std::move(start_path)),
        host(std::move(at_host)),
        server_(loop, [this](HttpRequest r, Responder a) { handle(r, a); }) {
    HttpServer::Settings at;
    at.host = host;
    EXPECT_TRUE(server_.listen(at));
  }
  std::string url() const {
    const bool is_six = host.find(':') != std::string::npos;
    return "http://" + (is_six ? "[" + host + "]" : host) + ":" + std::to_string(server_.port());
  }

  std::string path;
  std::string host;
  std::string label = "default";
  double started = 12.5;
  bool is_vllm = false;
  std::atomic<bool> paused{false};
  std::atomic<int> loads{0};
  std::atomic<int> requests{0};
  std::atomic<bool> refuse_loads{false};
  std::atomic<bool> refuse_flushes{false};
  std::string key;                                                 // that every route asks for; "" = none
  std::function<RequestFate()> fate;                               // asked of each request
  std::function<void(const HttpRequest&, const Responder&)> awex;  // its /awex routes, where it has them
  std::atomic<bool> hold_loads{false};                             // answers only after `release`
  std::atomic<bool> hold_reads{false};                             // never answers a read of its state
  std::atomic<bool> refuse_reads{false};
  std::atomic<bool> silent{false};  // answers nothing
  // Requests of this route wait, without effect, until `let_go`; loop only.
  std::string hold;
  std::string hold_after_load;  // ... and those of this one, once it has loaded
  bool holds_one() const { return !waiting_.empty(); }
  void let_go() {
    hold.clear();
    for (const auto& [request, answer] : std::exchange(waiting_, {})) handle(request, answer);
  }
  // As a supervisor does it: the same address, another process, the weights that it was started with.
  void restart(const std::string& start_path) {
    started += 100;
    path = start_path;
    label = "default";
    paused = false;
  }
  // Likewise, and the process is another engine's.
  void replace(const std::string& start_path, bool by_vllm) {
    restart(start_path);
    is_vllm = by_vllm;
  }
  void release() {
    hold_loads = false;
    for (const Responder& held : std::exchange(held_, {})) held.respond(loaded());
  }

 private:
  static HttpResponse loaded() {
    return json_reply(
        200, {{"success", true}, {"message", "Succeeded to update model weights."}, {"num_paused_requests", 0}});
  }
  void handle(const HttpRequest& request, const Responder& answer) {
    ++requests;
    if (silent) return unanswered_.push_back(answer);
    if (struck(fate, answer)) return;
    const bool let_in = key.empty() || std::any_of(request.headers.begin(), request.headers.end(), [&](const auto& h) {
                          return h.name == "Authorization" && h.value == "Bearer " + key;
                        });
    if (!let_in) return answer.respond(json_reply(401, {{"error", "Unauthorized"}}));
    const std::string target = request.target.substr(0, request.target.find('?'));
    const json::value body =
        request.body.empty() ? json::value(nullptr) : parse_json(request.body, "body").value_or(nullptr);
    if (awex && target.starts_with("/awex/")) return awex(request, answer);
    if (!hold.empty() && target == hold) return waiting_.emplace_back(request, answer), void();
    if (is_vllm) return answer.respond(vllm_answer(target, body, {path, label, started, paused, loads}));
    if (target == "/server_info" && hold_reads) return unanswered_.push_back(answer);
    if (target == "/server_info" && refuse_reads) return answer.respond(json_reply(500, {{"detail", "no"}}));
    if (target == "/server_info")
      return answer.respond(json_reply(200, {{"version", "0.5.23"}, {"startup_time", started}, {"model_path", path}}));
    if (target == "/model_info")
      return answer.respond(json_reply(200, {{"model_path", path}, {"weight_version", label}}));
    if (target == "/ready") return answer.respond(HttpResponse{paused ? 503 : 200, {}, ""});
    if (target == "/health") return answer.respond(HttpResponse{paused ? 503 : 200, {}, ""});
    if (target == "/flush_cache" && refuse_flushes)
      return answer.respond(HttpResponse{400, {}, "Flush cache failed.\n"});
    if (target == "/flush_cache") return answer.respond(HttpResponse{200, {}, "Cache flushed.\n"});
    if (target == "/pause_generation" || target == "/continue_generation") {
      paused = target == "/pause_generation";
      return answer.respond(json_reply(200, {{"message", "Generation changed successfully."}, {"status", "ok"}}));
    }
    if (target == "/update_weight_version") {
      label = find_string(body, "new_version").value_or("");
      return answer.respond(json_reply(
          200, {{"success", true}, {"message", "Weight version updated to " + label}, {"new_version", label}}));
    }
    if (target == "/update_weights_from_disk") return load(body, answer);
    answer.respond(json_reply(404, {{"detail", "Not Found"}}));
  }
  void load(const json::value& body, const Responder& answer) {
    ++loads;
    if (refuse_loads)
      return answer.respond(json_reply(400, {{"success", false},
                                             {"message", "Failed to get weights iterator: disk on fire"},
                                             {"num_paused_requests", 0}}));
    path = find_string(body, "model_path").value_or("");
    label = find_string(body, "weight_version").value_or("");
    if (!hold_after_load.empty()) hold = std::exchange(hold_after_load, "");
    if (hold_loads) return held_.push_back(answer);
    answer.respond(loaded());
  }

  std::vector<Responder> held_;
  std::vector<Responder> unanswered_;
  std::vector<std::pair<HttpRequest, Responder>> waiting_;
  HttpServer server_;
};

// A rank of an AReaL trainer: writes a real checkpoint where it is told to.
class FakeTrainer {
 public:
  explicit FakeTrainer(Loop& loop) : server_(loop, [this](const HttpRequest& r, const Responder& a) { handle(r, a); }) {
    EXPECT_TRUE(server_.listen({}));
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(server_.port()); }
  std::atomic<int> saves{0};
  std::atomic<bool> fail{false};
  std::atomic<bool> hold{false};
  std::function<RequestFate()> fate;                               // asked of each request
  std::function<void(const HttpRequest&, const Responder&)> awex;  // its /awex routes, where it has them
  void release() {
    hold = false;
    for (const auto& [directory, answer] : std::exchange(held_, {})) save(directory, answer);
  }

 private:
  void handle(const HttpRequest& request, const Responder& answer) {
    if (struck(fate, answer)) return;
    if (awex && request.target.starts_with("/awex/")) return awex(request, answer);
    if (request.target == "/get_version")
      return answer.respond(json_reply(200, {{"result", 1}, {"status", "success"}}));
    if (request.target != "/save") return answer.respond(json_reply(404, {{"error", "no"}}));
    ++saves;
    if (fail) return answer.respond(json_reply(500, {{"error", "Internal server error: CUDA out of memory"}}));
    const json::value body = parse_json(request.body, "save").value_or(nullptr);
    const std::string directory(body.at("args").at(0).at("data").at("path").as_string());
    if (hold) return held_.emplace_back(directory, answer), void();
    save(directory, answer);
  }
  // A save that was given up may find its directory removed while it writes: then it has nowhere to go, as a real one.
  void save(const std::string& directory, const Responder& answer) {
    const TemporaryDirectory own;
    write_single(own.path(), tiny_tensors(), static_cast<unsigned>(saves.load()) + 1);
    std::error_code failed;
    std::filesystem::create_directories(directory, failed);
    std::filesystem::copy(own.path(), directory,
                          std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing,
                          failed);
    if (failed) return answer.respond(json_reply(500, {{"error", "Internal server error: " + failed.message()}}));
    answer.respond(json_reply(200, {{"result", nullptr}, {"status", "success"}}));
  }
  std::vector<std::pair<std::string, Responder>> held_;
  HttpServer server_;
};

struct Reply {
  int status = 0;
  std::string head;
  std::string body;
  json::value json() const { return parse_json(body, "answer").value_or(nullptr); }
};

// One blocking connection.
class Connection {
 public:
  explicit Connection(int port, const std::string& host = "127.0.0.1")  // of IPv4
      : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(port));
    inet_pton(AF_INET, host.c_str(), &to.sin_addr);
    timeval limit{20, 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    connected_ = connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
  }
  ~Connection() { close(socket_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  bool connected() const { return connected_; }

  void send_request(const std::string& method, const std::string& target, const std::vector<HttpHeader>& headers,
                    const std::string& body) {
    std::string text =
        method + " " + target + " HTTP/1.1\r\nHost: gateway\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
    for (const HttpHeader& header : headers) text += header.name + ": " + header.value + "\r\n";
    text += "\r\n" + body;
    // To a gateway that just died nothing can be sent: that has no answer, status 0, as one that is cut off.
    if (send(socket_, text.data(), text.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(text.size()))
      shutdown(socket_, SHUT_RDWR);
  }
  // Reads until `enough` says so, or the peer closes.
  const std::string& read_until(const std::function<bool(const std::string&)>& enough) {
    char buffer[4096];
    while (!enough(received_)) {
      const ssize_t got = recv(socket_, buffer, sizeof buffer, 0);
      if (got <= 0) break;
      received_.append(buffer, static_cast<std::size_t>(got));
    }
    return received_;
  }
  Reply read_reply() {
    Reply out;
    read_until([](const std::string& text) { return text.find("\r\n\r\n") != std::string::npos; });
    const std::size_t end = received_.find("\r\n\r\n");
    if (end == std::string::npos) return out;
    out.head = received_.substr(0, end);
    out.status = std::stoi(out.head.substr(9, 3));
    std::size_t length = 0;
    for (const char* name : {"\r\nContent-Length: ", "\r\ncontent-length: "}) {
      if (const auto at = out.head.find(name); at != std::string::npos) length = std::stoul(out.head.substr(at + 18));
    }
    read_until([&](const std::string& text) { return text.size() >= end + 4 + length; });
    out.body = received_.substr(end + 4, length);
    received_.erase(0, end + 4 + length);
    return out;
  }

 private:
  int socket_;
  bool connected_ = false;
  std::string received_;
};

class GatewayTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(directory.path("w"));
    write_single(directory.path("start"));
    for (int i = 0; i < 3; ++i) engines.push_back(std::make_unique<FakeEngine>(loop, directory.path("start")));
    for (int i = 0; i < 2; ++i) trainers.push_back(std::make_unique<FakeTrainer>(loop));
    settings.admin_api_key = kKey;
  }

  // Starts the gateway, then the loop's thread; from then on everything is touched by `on_loop`.
  void start() {
    auto made = Gateway::make(loop, settings);
    ASSERT_TRUE(made) << made.error().text();
    gateway = *std::move(made);
    ASSERT_TRUE(gateway->listen());
    port = gateway->port();
    thread = std::thread([this] { loop.run(); });
  }

  void TearDown() override {
    if (!thread.joinable()) return;
    on_loop([this] {
      gateway.reset();
      engines.clear();
      trainers.clear();
      loop.stop();
    });
    thread.join();
  }

  void on_loop(const std::function<void()>& work) {
    std::promise<void> done;
    loop.post([&] {
      work();
      done.set_value();
    });
    done.get_future().wait();
  }

  Reply call(const std::string& method, const std::string& target, const json::value& body = nullptr,
             std::vector<HttpHeader> headers = {}) {
    Connection connection(port);
    headers.push_back({"Authorization", std::string("Bearer ") + kKey});
    connection.send_request(method, target, headers, body.is_null() ? "" : json::serialize(body));
    return connection.read_reply();
  }
  Reply raw_call(const std::string& method, const std::string& target, const std::string& body,
                 const std::vector<HttpHeader>& headers) {
    Connection connection(port);
    connection.send_request(method, target, headers, body);
    return connection.read_reply();
  }

  json::array urls_of(const auto& servers) {
    json::array out;
    for (const auto& server : servers) out.push_back(json::string(server->url()));
    return out;
  }
  json::object connect_body() {
    return {{"pair_name", "actor"},
            {"train_worker_urls", urls_of(trainers)},
            {"inference_worker_urls", urls_of(engines)},
            {"mode", "disk"},
            {"save_path", directory.path("w")},
            {"settings", {{"dialect", "sglang"}, {"evidence", "label"}}}};
  }
  Reply update(std::int64_t version) {
    return call("POST", "/update_weights", {{"pair_name", "actor"}, {"version", version}});
  }

  TemporaryDirectory directory;
  Loop loop;
  GatewaySettings settings;
  std::vector<std::unique_ptr<FakeEngine>> engines;
  std::vector<std::unique_ptr<FakeTrainer>> trainers;
  std::unique_ptr<Gateway> gateway;
  std::thread thread;
  int port = 0;
};

inline json::object pair_body(const json::array& trainers, const json::array& engines, const std::string& save_path) {
  json::array workers;
  for (const json::value& url : engines) workers.push_back({{"url", url}, {"dialect", "sglang"}});
  return {{"mode", "disk"},
          {"save_path", save_path},
          {"trainers", {{"kind", "areal"}, {"urls", trainers}}},
          {"workers", workers},
          {"settings", {{"evidence", "label"}}}};
}

class NativeTest : public GatewayTest {
 protected:
  json::object body() { return pair_body(urls_of(trainers), urls_of(engines), directory.path("w")); }
  void make_pair() {
    const Reply reply = call("PUT", "/v1/pairs/actor", body());
    ASSERT_EQ(reply.status, 201) << reply.body;
  }
};

}  // namespace weighlock::test
