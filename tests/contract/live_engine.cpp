#include "live_engine.hpp"

#include <fmt/format.h>
#include <signal.h>

#include <cstdlib>
#include <fstream>
#include <utility>

#include "weighlock/core/check.hpp"
#include "weighlock/core/url.hpp"

namespace weighlock::contract {
namespace {

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  return value && *value ? std::optional<std::string>(value) : std::nullopt;
}

void keep_alive(Loop& loop) {
  loop.after(std::chrono::hours(1), [&loop] { keep_alive(loop); });
}

void signal_tree(int pid, int signal) {
  ::kill(pid, signal);
  std::ifstream children(fmt::format("/proc/{}/task/{}/children", pid, pid));
  for (int child = 0; children >> child;) signal_tree(child, signal);
}

}  // namespace

Wire::Wire(Url peer) : peer_(std::move(peer)) {
  std::promise<void> ready;
  thread_ = std::thread([this, &ready] {
    loop_.post([this, &ready] {
      client_ = std::make_unique<HttpClient>(loop_);
      keep_alive(loop_);
      ready.set_value();
    });
    loop_.run();
  });
  ready.get_future().wait();
}

Wire::~Wire() {
  loop_.post([this] {
    client_.reset();
    loop_.stop();
  });
  thread_.join();
}

struct Wire::Call::State {
  std::mutex mutex;
  std::condition_variable ended;
  std::optional<HttpResult> result;
  HttpClient::CallId id = 0;  // loop thread only
};

Wire::Call::Call(Wire& wire, HttpRequest request, HttpCallOptions options)
    : wire_(wire), state_(std::make_shared<State>()) {
  wire_.loop_.post([&wire = wire_, state = state_, request = std::move(request), options]() mutable {
    state->id = wire.client_->send(wire.peer_, std::move(request), options, [state](HttpResult result) {
      const std::lock_guard lock(state->mutex);
      state->result = std::move(result);
      state->ended.notify_all();
    });
  });
}

std::optional<HttpResult> Wire::Call::wait(Milliseconds longest) {
  std::unique_lock lock(state_->mutex);
  state_->ended.wait_for(lock, longest, [this] { return state_->result.has_value(); });
  return state_->result;
}

HttpResult Wire::Call::wait() {
  std::unique_lock lock(state_->mutex);
  state_->ended.wait(lock, [this] { return state_->result.has_value(); });
  return *state_->result;
}

void Wire::Call::give_up() {
  wire_.loop_.post([&wire = wire_, state = state_] { wire.client_->cancel(state->id); });
}

std::unique_ptr<Wire::Call> Wire::begin(HttpRequest request, HttpCallOptions options) {
  return std::make_unique<Call>(*this, std::move(request), options);
}

Running::Running(Wire& wire, std::unique_ptr<Conversation> conversation, Milliseconds deadline)
    : wire_(wire), conversation_(std::move(conversation)), outcome_(promise_.get_future().share()) {
  thread_ = std::thread([this, deadline] { converse(deadline); });
}

Running::~Running() {
  give_up();
  thread_.join();
}

void Running::converse(Milliseconds deadline) {
  const auto end = std::chrono::steady_clock::now() + deadline;
  Turn turn = conversation_->begin();
  while (Step* step = std::get_if<Step>(&turn)) {
    const auto left = std::chrono::duration_cast<Milliseconds>(end - std::chrono::steady_clock::now());
    Wire::Call* call = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (!gave_up_ && left > Milliseconds(0)) {
        change_sent_ = change_sent_ || step->recent_connection;
        call_ = wire_.begin(std::move(step->request), {left, step->fresh_connection || step->recent_connection});
        call = call_.get();
      }
    }
    turn = conversation_->next(call ? call->wait() : TransportError{TransportError::Kind::cancelled, true, "given up"});
  }
  promise_.set_value(std::get<Outcome>(turn));
}

bool Running::ended_within(Milliseconds longest) {
  return outcome_.wait_for(longest) == std::future_status::ready;
}

Outcome Running::wait() {
  return outcome_.get();
}

bool Running::has_sent_a_change() {
  const std::lock_guard lock(mutex_);
  return change_sent_;
}

void Running::give_up() {
  const std::lock_guard lock(mutex_);
  gave_up_ = true;
  if (call_) call_->give_up();
}

LiveEngine::LiveEngine(Url url, DialectKind dialect, Credentials credentials, const std::string& process)
    : wire_(std::move(url)), dialect_(dialect), credentials_(std::move(credentials)) {
  if (process.empty()) return;
  steering_ = process == "tiny" ? Steering::tiny : Steering::signals;
  if (steering_ == Steering::signals) pid_ = std::stoi(process);
}

LiveEngine* LiveEngine::from_environment() {
  static const std::unique_ptr<LiveEngine> kEngine = []() -> std::unique_ptr<LiveEngine> {
    const auto url = variable("WEIGHLOCK_ENGINE_URL");
    if (!url) return nullptr;
    Result<Url> parsed = parse_url(*url);
    const auto dialect = dialect_from(variable("WEIGHLOCK_ENGINE_DIALECT").value_or(""));
    WEIGHLOCK_CHECK(parsed.has_value(), "WEIGHLOCK_ENGINE_URL is an http URL");
    WEIGHLOCK_CHECK(dialect.has_value(), "WEIGHLOCK_ENGINE_DIALECT is sglang or vllm");
    return std::make_unique<LiveEngine>(*parsed, *dialect,
                                        Credentials{variable("WEIGHLOCK_ENGINE_ADMIN_KEY").value_or(""),
                                                    variable("WEIGHLOCK_ENGINE_API_KEY").value_or("")},
                                        variable("WEIGHLOCK_ENGINE_PID").value_or(""));
  }();
  return kEngine.get();
}

Outcome LiveEngine::run(EngineTask task, Milliseconds deadline) {
  return start(std::move(task), deadline)->wait();
}

std::unique_ptr<Running> LiveEngine::start(EngineTask task, Milliseconds deadline) {
  task.credentials = credentials_;
  return std::make_unique<Running>(wire_, start_conversation(dialect_, std::move(task)), deadline);
}

Outcome LiveEngine::identify() {
  return Running(wire_, start_identify(credentials_), std::chrono::seconds(30)).wait();
}

std::unique_ptr<Wire::Call> LiveEngine::send(HttpRequest request, Milliseconds deadline) {
  const std::string& key = credentials_.api_key.empty() ? credentials_.admin_key : credentials_.api_key;
  if (!key.empty()) request.headers.push_back({"Authorization", "Bearer " + key});
  return wire_.begin(std::move(request), {deadline, true});
}

void LiveEngine::steer(int signal, const std::string& route) {
  if (steering_ == Steering::signals) signal_tree(pid_, signal);
  if (steering_ == Steering::tiny)
    send({"POST", "/_tiny/" + route, {{"Content-Type", "application/json"}}, "{}"})->wait();
}

void LiveEngine::freeze() {
  steer(SIGSTOP, "freeze");
}
void LiveEngine::thaw() {
  steer(SIGCONT, "thaw");
}
void LiveEngine::kill() {
  steer(SIGKILL, "kill_core");
}

}  // namespace weighlock::contract
