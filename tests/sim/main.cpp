// sim --seeds A..B [--keep-going] [--coverage] [--twice]    run them; fail unless all was reached; run each twice and
// compare sim --seed N [--trace]                                    one run, and its story sim --until-caught [--bases
// B] [--runs R]                 fail unless each of B ranges of R seeds holds a violation
//
// Runs seeds in a child process, since a failed check of the machine aborts. What the child reaches is counted in
// memory that both see. A seed that fails is run again with its story told, and the end of the story is printed.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <new>
#include <string>
#include <string_view>

#include "sim/violation.hpp"
#include "sim/world.hpp"

namespace weighlock::sim {
namespace {

constexpr std::size_t kStoryLines = 60;
constexpr int kExitViolated = 3;
constexpr unsigned kRunSecondsMax = 30;  // one run takes milliseconds

// Written by the child that runs the seeds, read by its parent after the child's end.
struct Shared {
  Coverage coverage;
  std::uint64_t seed;
  std::uint64_t step;
  int invariant;
  char text[512];
};

struct Options {
  std::uint64_t first = 1;
  std::uint64_t last = 1;
  bool trace = false;
  bool keep_going = false;
  bool until_caught = false;
  std::uint64_t bases = 10;
  std::uint64_t runs = 300;
  bool require_coverage = false;
  bool twice = false;
};

Shared* share() {
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("mmap");
    std::exit(1);
  }
  return new (memory) Shared{};
}

void note(Shared& shared, int invariant, std::uint64_t step, std::string_view text) {
  shared.invariant = invariant;
  shared.step = step;
  const std::size_t size = std::min(text.size(), sizeof(shared.text) - 1);
  std::memcpy(shared.text, text.data(), size);
  shared.text[size] = '\0';
}

// In the child.
[[noreturn]] void run_seeds(std::uint64_t first, std::uint64_t last, Shared& shared, std::FILE* story, bool twice) {
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    shared.seed = seed;
    alarm(kRunSecondsMax);
    World world(seed, shared.coverage, story);
    try {
      world.run();
      if (twice) {
        Coverage other;
        World again(seed, other, nullptr);
        again.run();
        if (again.fingerprint() != world.fingerprint())
          throw Violation{0, "two runs of this seed differ: the simulator isn't deterministic"};
      }
    } catch (const Violation& violation) {
      note(shared, violation.invariant, world.steps(), violation.text);
      if (story != nullptr) fmt::print(story, "invariant {}: {}\n", violation.invariant, violation.text);
      if (story != nullptr) std::fflush(story);
      _exit(kExitViolated);
    } catch (const std::exception& error) {
      note(shared, 0, world.steps(), error.what());
      _exit(kExitViolated);
    }
  }
  _exit(0);
}

// True if all seeds held. Else `shared` says which one failed and how.
bool hold(std::uint64_t first, std::uint64_t last, Shared& shared, std::FILE* story, bool quiet, bool twice = false) {
  note(shared, 0, 0, "");
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) {
    std::perror("fork");
    std::exit(1);
  }
  if (child == 0) {
    if (quiet) (void)!std::freopen("/dev/null", "w", stderr);
    run_seeds(first, last, shared, story, twice);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  if (WIFSIGNALED(status)) {
    note(shared, 0, 0,
         fmt::format("the process ended by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status))));
  }
  return false;
}

void tell_end_of_story(std::uint64_t seed) {
  std::FILE* story = std::tmpfile();
  if (story == nullptr) return;
  Shared* shared = share();
  if (hold(seed, seed, *shared, story, false))
    fmt::print("the second run of seed {} held: the simulator isn't deterministic\n", seed);
  std::rewind(story);
  std::deque<std::string> lines;
  char buffer[4096];
  while (std::fgets(buffer, sizeof(buffer), story) != nullptr) {
    lines.emplace_back(buffer);
    if (lines.size() > kStoryLines) lines.pop_front();
  }
  for (const std::string& text : lines) std::fputs(text.c_str(), stdout);
  std::fclose(story);
  munmap(shared, sizeof(Shared));
}

void print_failure(const Shared& shared) {
  fmt::print("FAILED seed {} at step {}: invariant {}: {}\nreplay: sim --seed {} --trace\n", shared.seed, shared.step,
             shared.invariant, shared.text, shared.seed);
}

// The message without its numbers: failures of one kind are counted together.
std::string kind_of(const Shared& shared) {
  std::string kind = fmt::format("{}: ", shared.invariant);
  for (const char c : std::string_view(shared.text)) {
    if (c < '0' || c > '9') kind += c;
  }
  return kind;
}

int run_range(const Options& options) {
  Shared* shared = share();
  std::map<std::string, std::pair<std::uint64_t, std::string>>
      kinds;  // message without its numbers -> how often, an example
  std::uint64_t failures = 0;
  for (std::uint64_t seed = options.first; seed <= options.last;) {
    if (hold(seed, options.last, *shared, options.trace ? stdout : nullptr, options.keep_going, options.twice)) break;
    ++failures;
    if (!options.keep_going) {
      print_failure(*shared);
      if (!options.trace) tell_end_of_story(shared->seed);
      return 1;
    }
    auto& entry = kinds[kind_of(*shared)];
    if (++entry.first == 1)
      entry.second = fmt::format("seed {}: invariant {}: {}", shared->seed, shared->invariant, shared->text);
    seed = shared->seed + 1;
  }
  for (const auto& [kind, entry] : kinds) fmt::print("{:>6} x {}\n", entry.first, entry.second);
  const bool covered = report(shared->coverage);
  if (options.require_coverage && !covered) fmt::print("FAILED: something above was never reached\n");
  fmt::print("{} failures\n", failures);
  return failures == 0 && (covered || !options.require_coverage) ? 0 : 1;
}

// For mutants: each base must lead to a catch.
int run_until_caught(const Options& options) {
  Shared* shared = share();
  for (std::uint64_t base = 1; base <= options.bases; ++base) {
    const std::uint64_t first = base * 1'000'000;
    if (hold(first, first + options.runs - 1, *shared, nullptr, true)) {
      fmt::print("base {}: SURVIVED {} runs\n", base, options.runs);
      return 1;
    }
    fmt::print("base {}: caught by run {}: invariant {}: {}\n", base, shared->seed - first + 1, shared->invariant,
               shared->text);
  }
  return 0;
}

std::uint64_t number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    fmt::print(stderr, "'{}' is not a number\n", text);
    std::exit(2);
  }
  return value;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    const auto value = [&]() -> std::string_view { return i + 1 < argc ? argv[++i] : ""; };
    if (flag == "--seed") {
      options.first = options.last = number(value());
    } else if (flag == "--seeds") {
      const std::string_view range = value();
      const std::size_t dots = range.find("..");
      options.first = number(range.substr(0, dots));
      options.last = dots == std::string_view::npos ? options.first : number(range.substr(dots + 2));
    } else if (flag == "--trace") {
      options.trace = true;
    } else if (flag == "--keep-going") {
      options.keep_going = true;
    } else if (flag == "--coverage") {
      options.require_coverage = true;
    } else if (flag == "--twice") {
      options.twice = true;
    } else if (flag == "--until-caught") {
      options.until_caught = true;
    } else if (flag == "--bases") {
      options.bases = number(value());
    } else if (flag == "--runs") {
      options.runs = number(value());
    } else {
      fmt::print(stderr, "unknown flag '{}'\n", flag);
      std::exit(2);
    }
  }
  return options;
}

}  // namespace
}  // namespace weighlock::sim

int main(int argc, char** argv) {
  const weighlock::sim::Options options = weighlock::sim::parse(argc, argv);
  return options.until_caught ? weighlock::sim::run_until_caught(options) : weighlock::sim::run_range(options);
}
