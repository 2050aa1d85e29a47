#include "weighlock/gateway/fence.hpp"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "weighlock/core/json.hpp"
#include "weighlock/core/url.hpp"
#include "weighlock/runtime/log.hpp"

extern char** environ;

namespace weighlock {
namespace {

void run_program(const std::string& program, const protocol::Fence& fence) {
  std::string arguments[] = {program, fence.worker, fence.pair, std::string(protocol::name(fence.cause.code)),
                             fence.cause.message};
  char* argv[] = {arguments[0].data(), arguments[1].data(), arguments[2].data(),
                  arguments[3].data(), arguments[4].data(), nullptr};
  pid_t child = 0;
  if (const int failure = posix_spawn(&child, program.c_str(), nullptr, nullptr, argv, environ); failure != 0)
    return log_error("fence: can't run '{}' for worker {}: {}", program, fence.worker, std::strerror(failure));
  const int handle = static_cast<int>(syscall(SYS_pidfd_open, child, 0));
  pollfd ended{handle, POLLIN, 0};
  if (handle >= 0 && poll(&ended, 1, static_cast<int>(kFenceTimeout.count())) == 0) {
    log_error("fence: '{}' for worker {} took more than {} ms and was killed", program, fence.worker,
              kFenceTimeout.count());
    kill(child, SIGKILL);
  }
  if (handle >= 0) close(handle);
  int status = 0;
  if (waitpid(child, &status, 0) != child) return;
  if (WIFSIGNALED(status))
    log_error("fence: '{}' for worker {} was ended by signal {}", program, fence.worker, WTERMSIG(status));
  else if (WEXITSTATUS(status) != 0)
    log_error("fence: '{}' for worker {} failed with exit code {}", program, fence.worker, WEXITSTATUS(status));
}

}  // namespace

void run_fence(const std::string& hook, const protocol::Fence& fence, HttpClient& http, Pool& pool) {
  if (hook.empty()) return;
  if (hook.starts_with('/')) return pool.run([hook, fence] { run_program(hook, fence); }, [] {});
  Result<Url> url = parse_url(hook);
  if (!url) return log_error("fence: {}", url.error().text());
  HttpRequest request;
  request.method = "POST";
  request.target = "";
  request.headers = {{"Content-Type", "application/json"}};
  request.body = json::serialize(
      json::object{{"worker", fence.worker},
                   {"pair", fence.pair},
                   {"cause", {{"code", protocol::name(fence.cause.code)}, {"message", fence.cause.message}}}});
  HttpCallOptions options;
  options.deadline = kFenceTimeout;
  http.send(*url, std::move(request), options, [hook, worker = fence.worker](const HttpResult& result) {
    if (const auto* lost = std::get_if<TransportError>(&result))
      return log_error("fence: {} for worker {}: {}", hook, worker, lost->text);
    const int status = std::get<HttpResponse>(result).status;
    if (status >= 300) log_error("fence: {} for worker {} answered {}", hook, worker, status);
  });
}

}  // namespace weighlock
