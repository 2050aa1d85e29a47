#include "serve.hpp"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <memory>

#include "weighlock/core/error.hpp"
#include "weighlock/gateway/gateway.hpp"
#include "weighlock/runtime/log.hpp"
#include "weighlock/runtime/loop.hpp"

namespace weighlock {
namespace {

constexpr int kExitUnclean = 1;  // an engine may have been left paused; the log names it

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

Milliseconds milliseconds(double seconds) {
  return Milliseconds(std::llround(seconds * 1000));
}

GatewaySettings settings_of(const config::ServeOptions& options) {
  GatewaySettings out;
  out.host = options.host;
  out.port = options.port;
  out.admin_api_key = options.admin_api_key;
  out.engine_credentials = Credentials{options.engine_admin_key, options.engine_api_key};
  out.state_dir = options.state_dir;
  out.storage_roots = options.storage_roots;
  out.worker_hosts = options.worker_hosts;
  out.fence = options.fence;
  out.update_timeout = milliseconds(options.update_timeout_s);
  out.reply_by = milliseconds(options.reply_by_s);
  out.compat_error_status = options.compat_error_status;
  return out;
}

// For whoever started the program: the one line on stdout, whatever the log's level, once requests are answered. With
// `--port 0` nobody else knows the port.
void tell_address(const std::string& host, int port) {
  const std::string authority = host.find(':') == std::string::npos ? host : "[" + host + "]";
  std::printf("listening http://%s:%d\n", authority.c_str(), port);
  std::fflush(stdout);
}

int fail(const Error& error) {
  log_error("{}", error.text());
  log_flush(Milliseconds(1000));
  return info(error.code).exit_code;
}

}  // namespace

int run_serve(const config::ServeOptions& options) {
  log_init(level_of(options.log_level));
  Loop loop;
  Result<std::unique_ptr<Gateway>> made = Gateway::make(loop, settings_of(options));
  if (!made) return fail(made.error());
  Gateway& gateway = **made;
  int exit_code = 0;
  int signals = 0;
  loop.on_signal([&](int number) {
    if (++signals > 1) {
      log_error("second signal {}: leaving at once", number);
      log_flush(Milliseconds(200));
      _exit(kExitUnclean);
    }
    log_info("signal {}: taking no more updates, bringing running ones to a safe state", number);
    gateway.stop([&](bool clean) {
      exit_code = clean ? 0 : kExitUnclean;
      loop.stop();
    });
  });
  if (Status done = gateway.listen(); !done) return fail(done.error());
  log_info("listening on {}:{}", options.host, gateway.port());
  tell_address(options.host, gateway.port());
  loop.run();
  made->reset();
  log_info("stopped");
  log_flush(Milliseconds(1000));
  return exit_code;
}

}  // namespace weighlock
