// A child process of the demo: started with its output in a file, ended with its owner.
//
// Thread rule: one thread. The child gets SIGTERM when this process dies, however it dies.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "weighlock/core/result.hpp"
#include "weighlock/core/time.hpp"

namespace weighlock::cli {

class Process {
 public:
  Process() = default;
  // `command[0]` is a path. stdout and stderr go to `log_path`. WEIGHLOCK_* variables are not handed down: the child is
  // to run on its defaults and flags.
  static Result<Process> start(const std::vector<std::string>& command, const std::string& log_path);
  ~Process();  // stop
  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;

  // The texts after `mark` on each line of the log that has it, once there are `count`; or what the log says instead.
  Result<std::vector<std::string>> await_lines(const std::string& mark, std::size_t count, Milliseconds wait);
  // SIGTERM, then after `patience` SIGKILL. The exit code, 128 + the signal if one ended it.
  int stop(Milliseconds patience = Milliseconds(10'000));
  bool running();

  const std::string& log_path() const { return log_path_; }

 private:
  pid_t pid_ = -1;
  int exit_code_ = -1;
  std::string log_path_;
};

// The last lines of a file, indented; "" if it can't be read.
std::string tail(const std::string& path, std::size_t lines);

}  // namespace weighlock::cli
