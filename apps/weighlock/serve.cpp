#include "serve.hpp"

#include <unistd.h>

#include <fmt/format.h>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <thread>

#include "keeper.hpp"
#include "version.hpp"
#include "weighlock/core/error.hpp"
#include "weighlock/core/limits.hpp"
#include "weighlock/gateway/doorkeeper.hpp"
#include "weighlock/gateway/gateway.hpp"
#include "weighlock/runtime/log.hpp"
#include "weighlock/runtime/loop.hpp"

namespace weighlock {
namespace {

constexpr Milliseconds kPortPatience{1000};  // for a gateway that was killed a moment ago
constexpr int kExitUnclean = 1;              // an engine may have been left paused; the log names it

}  // namespace

LogLevel level_of(config::LogLevel level) {
  switch (level) {
    case config::LogLevel::debug:
      return LogLevel::debug;
    case config::LogLevel::info:
      return LogLevel::info;
    case config::LogLevel::warning:
      return LogLevel::warn;
    case config::LogLevel::error:
      return LogLevel::error;
  }
  return LogLevel::info;
}

namespace {

Milliseconds milliseconds(double seconds) {
  return Milliseconds(std::llround(seconds * 1000));
}

}  // namespace

GatewaySettings gateway_settings(const config::ServeOptions& options) {
  GatewaySettings out;
  out.host = options.host;
  out.port = options.port;
  out.admin_api_key = options.admin_api_key;
  out.engine_credentials = Credentials{options.engine_admin_key, options.engine_api_key};
  out.state_dir = options.state_dir;
  out.storage_roots = options.storage_roots;
  out.worker_hosts = options.worker_hosts;
  out.fence = options.fence;
  out.kv_store_url = options.kv_store_url;
  out.init_timeout = milliseconds(options.init_timeout_s);
  out.update_timeout = milliseconds(options.update_timeout_s);
  out.reply_by = milliseconds(options.reply_by_s);
  out.compat_error_status = options.compat_error_status;
  return out;
}

namespace {

// For whoever started the program: the one line on stdout, whatever the log's level, once requests are answered. With
// `--port 0` nobody else knows the port.
void tell_address(const std::string& host, int port) {
  const std::string authority = host.find(':') == std::string::npos ? host : "[" + host + "]";
  std::printf("listening http://%s:%d\n", authority.c_str(), port);
  std::fflush(stdout);
}

// A parent is told apart a journal that can't be written now, and may be later.
int fail(const Error& error, const Life& life) {
  log_error("{}", error.text());
  log_flush(Milliseconds(1000));
  return life.parent != 0 && error.code == ErrorCode::journal_failed ? kExitJournalFailed : info(error.code).exit_code;
}

[[noreturn]] void leave_at_once(std::string_view why) {
  log_error("{}", why);
  log_flush(Milliseconds(200));
  _exit(kExitUnclean);
}

// The last resort: whatever holds the loop or a thread, a disk most likely, doesn't hold the process.
void leave_at_the_latest() {
  std::thread([] {
    std::this_thread::sleep_for(limits::kStopAtMost);
    leave_at_once("something didn't end in time, and the process leaves all the same; what it began is in its journal");
  }).detach();
}

// The gateway from its first moment to its end: waits for its state directory if another process holds it.
class Server {
 public:
  Server(Loop& loop, const config::ServeOptions& options, const Life& life)
      : loop_(loop), options_(options), life_(life), settings_(gateway_settings(options)) {
    settings_.socket = life.socket;
    settings_.holder = life.parent;
  }

  int run() {
    Result<std::unique_ptr<Gateway>> made = Gateway::make(loop_, settings_);
    loop_.on_signal([this](int number) { on_signal(number); });
    life_.take_signals();
    const bool held = !made && made.error().code == ErrorCode::conflict;
    if (Status done = held ? wait_for_state(made.error()) : take(std::move(made)); !done)
      return fail(done.error(), life_);
    loop_.run();
    if (exit_code_ == kExitUnclean) leave_at_once("stopped, not all of it in order");
    gateway_.reset();
    doorkeeper_.reset();
    if (failure_) return fail(*failure_, life_);
    log_info("stopped");
    log_flush(Milliseconds(1000));
    return exit_code_;
  }

 private:
  Status take(Result<std::unique_ptr<Gateway>> made) {
    if (!made) return std::move(made).error();
    gateway_ = *std::move(made);
    if (Status done = gateway_->listen(); !done) return done;
    log_info("{}, process {}, state in {}", cli::kVersionLine, ::getpid(),
             settings_.state_dir.empty() ? "memory only" : settings_.state_dir);
    log_info("listening on {}:{}", options_.host, gateway_->port());
    if (!life_.address_told) tell_address(options_.host, gateway_->port());
    life_.up();
    return {};
  }

  Status wait_for_state(Error held) {
    doorkeeper_ = std::make_unique<Doorkeeper>(loop_, settings_, held);
    if (Status done = doorkeeper_->listen(); !done) return done;
    log_warn("answering 503 on {}:{} until the state directory is free, for {} s at most: {}", options_.host,
             doorkeeper_->port(), options_.init_timeout_s, held.text());
    doorkeeper_->wait(milliseconds(options_.init_timeout_s), [this](Result<std::unique_ptr<Gateway>> made) {
      if (Status done = take(std::move(made)); !done) {
        failure_ = done.error();
        loop_.stop();
      }
    });
    return {};
  }

  void on_signal(int number) {
    // The parent has counted its own; a terminal or systemd tells both.
    if (++signals_ > 1 && life_.parent != 0) return;
    if (signals_ > 1) leave_at_once(fmt::format("second signal {}: leaving at once", number));
    leave_at_the_latest();
    if (!gateway_) return loop_.stop();
    log_info("signal {}: taking no more updates, bringing running ones to a safe state", number);
    gateway_->stop([this](bool clean) {
      exit_code_ = clean ? 0 : kExitUnclean;
      loop_.stop();
    });
  }

  Loop& loop_;
  const config::ServeOptions& options_;
  const Life& life_;
  GatewaySettings settings_;
  std::unique_ptr<Doorkeeper> doorkeeper_;
  std::unique_ptr<Gateway> gateway_;
  std::optional<Error> failure_;
  int exit_code_ = 0;
  int signals_ = 0;
};

}  // namespace

int run_serve(const config::ServeOptions& options) {
  log_init(level_of(options.log_level));
  const auto gateway = [&options](const Life& life) {
    Loop loop;
    return Server(loop, options, life).run();
  };
  if (options.no_restart) return gateway(Life{});
  Result<int> socket = HttpServer::bind(options.host, options.port, kPortPatience);
  if (!socket) return fail(socket.error(), Life{});
  return keep_gateway(*socket, KeeperTimes{}, gateway);
}

}  // namespace weighlock
