#include "process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

extern char** environ;

namespace weighlock::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kLook = std::chrono::milliseconds(20);

std::vector<std::string> read_lines(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

}  // namespace

Result<Process> Process::start(const std::vector<std::string>& command, const std::string& log_path) {
  const auto failed = [&](std::string_view what) {
    return Error{ErrorCode::internal, fmt::format("{}: {}: {}", command.at(0), what, std::strerror(errno))};
  };
  if (::access(command.at(0).c_str(), X_OK) != 0) return failed("can't be run (`make build` makes it)");
  const int log = ::open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) return failed(log_path);

  // All memory is taken before the fork: between fork and exec only what is safe in a signal handler may run.
  std::vector<std::string> arguments = command, variables;
  for (char** variable = environ; *variable; ++variable) {
    if (std::strncmp(*variable, "WEIGHLOCK_", 10) != 0) variables.emplace_back(*variable);
  }
  const std::vector<char*> argv = pointers(arguments), envp = pointers(variables);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) {
    ::close(log);
    return failed("fork");
  }
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(127);  // it died between the two calls
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::dup2(log, STDOUT_FILENO);
    ::dup2(log, STDERR_FILENO);
    ::execve(argv[0], argv.data(), envp.data());
    ::_exit(127);
  }
  ::close(log);
  Process process;
  process.pid_ = pid;
  process.log_path_ = log_path;
  return process;
}

Process::~Process() {
  stop();
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), exit_code_(other.exit_code_), log_path_(std::move(other.log_path_)) {}

Process& Process::operator=(Process&& other) noexcept {
  if (this == &other) return *this;
  stop();
  pid_ = std::exchange(other.pid_, -1);
  exit_code_ = other.exit_code_;
  log_path_ = std::move(other.log_path_);
  return *this;
}

bool Process::running() {
  if (pid_ < 0) return false;
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) != pid_) return true;
  exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  pid_ = -1;
  return false;
}

int Process::stop(Milliseconds patience) {
  if (!running()) return exit_code_;
  ::kill(pid_, SIGTERM);
  const Clock::time_point until = Clock::now() + patience;
  while (running() && Clock::now() < until) std::this_thread::sleep_for(kLook);
  if (pid_ < 0) return exit_code_;
  ::kill(pid_, SIGKILL);
  while (running()) std::this_thread::sleep_for(kLook);
  return exit_code_;
}

Result<std::vector<std::string>> Process::await_lines(const std::string& mark, std::size_t count, Milliseconds wait) {
  const Clock::time_point until = Clock::now() + wait;
  for (;;) {
    const bool alive = running();  // before the read: what it wrote before it died is then seen
    std::vector<std::string> found;
    for (const std::string& line : read_lines(log_path_)) {
      const std::size_t at = line.find(mark);
      if (at != std::string::npos) found.push_back(line.substr(at + mark.size()));
    }
    if (found.size() >= count) return found;
    if (!alive || Clock::now() > until) {
      return Error{ErrorCode::timed_out, fmt::format("{} after {} ms; it wrote:\n{}",
                                                     alive ? "isn't up" : fmt::format("ended with {}", exit_code_),
                                                     wait.count(), tail(log_path_, 20))};
    }
    std::this_thread::sleep_for(kLook);
  }
}

std::string tail(const std::string& path, std::size_t lines) {
  const std::vector<std::string> all = read_lines(path);
  std::string out;
  for (std::size_t i = all.size() > lines ? all.size() - lines : 0; i < all.size(); ++i) out += "    " + all[i] + "\n";
  return out;
}

}  // namespace weighlock::cli
