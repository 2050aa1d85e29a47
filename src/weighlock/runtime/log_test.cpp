#include "weighlock/runtime/log.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <string>

#include "weighlock/core/json.hpp"

namespace weighlock {

namespace {

class LogTest : public ::testing::Test {
 protected:
  LogTest() {
    EXPECT_EQ(0, ::pipe2(pipe_, O_CLOEXEC));
    ::fcntl(pipe_[0], F_SETFL, O_NONBLOCK);
    log_to(pipe_[1]);
  }
  ~LogTest() override {
    log_flush(Milliseconds{5000});
    log_to(2);
    log_init(LogLevel::info);
    ::close(pipe_[0]);
    ::close(pipe_[1]);
  }
  std::string take() const {
    std::string all;
    char some[65536];
    for (ssize_t n = 0; (n = ::read(pipe_[0], some, sizeof some)) > 0;) all.append(some, static_cast<std::size_t>(n));
    return all;
  }
  std::string written() const {
    EXPECT_TRUE(log_flush(Milliseconds{5000}));
    return take();
  }

  int pipe_[2] = {-1, -1};
};

}  // namespace

TEST_F(LogTest, lines_below_the_level_are_left_out) {
  log_init(LogLevel::warn);
  log_debug("debug {}", 1);
  log_info("info {}", 2);
  log_warn("warn {}", 3);
  log_error("error {}", 4);
  const std::string text = written();
  EXPECT_EQ(std::string::npos, text.find("info 2"));
  EXPECT_EQ(std::string::npos, text.find("debug 1"));
  EXPECT_NE(std::string::npos, text.find("Z WARN warn 3\n"));
  EXPECT_NE(std::string::npos, text.find("Z ERROR error 4\n"));
}

TEST_F(LogTest, json_lines_parse_whatever_the_message_holds) {
  log_init(LogLevel::info, true);
  log_info("{}", "quote \" backslash \\ newline \n tab \t bell \a");
  const std::string text = written();
  const auto line = parse_json(text, "log line");
  ASSERT_TRUE(line) << text;
  EXPECT_EQ("quote \" backslash \\ newline \n tab \t bell \a", find_string(*line, "message"));
  EXPECT_EQ("INFO", find_string(*line, "level"));
}

TEST_F(LogTest, a_peers_text_cannot_forge_a_line) {
  log_info("{}", "answer\n2026-01-01T00:00:00.000Z ERROR forged\x1b[2J");
  const std::string text = written();
  EXPECT_EQ(text.size() - 1, text.find('\n')) << text;
  EXPECT_EQ(std::string::npos, text.find('\x1b'));
}

TEST_F(LogTest, stuck_stderr_blocks_nobody_and_losses_are_counted) {
  const std::uint64_t before = log_dropped();
  const auto begin = std::chrono::steady_clock::now();
  // Nobody reads the pipe; it holds 64 KiB.
  for (int i = 0; i < 20'000; ++i) log_info("line {} {}", i, std::string(50, 'x'));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  const std::uint64_t lost = log_dropped() - before;
  EXPECT_GT(lost, 1000U);
  EXPECT_FALSE(log_flush(Milliseconds{1}));
  std::string text;
  while (!log_flush(Milliseconds{1})) text += take();
  text += take();
  EXPECT_NE(std::string::npos, text.find(" log lines were dropped"));
  EXPECT_NE(std::string::npos, text.find("line 19999 "));
  EXPECT_EQ(std::string::npos, text.find("line 10000 "));
}

}  // namespace weighlock
