// sim --seeds A..B [--keep-going] [--coverage] [--twice] [--pairs FILE]
//                            run them; fail unless all was reached; run each twice and compare; fail if a pair of state
//                            and event was reached that FILE says can't be
// ... [--rivals P] [--epochs P]
//                            of a thousand such runs, P with two gateways on one fleet, or with one that keeps epochs
// sim --seed N [--trace]     one run, and its story
// ... [--skip windows,unloads,retention]
//                            without these checks, to see what else there is
// sim --regressions FILE     each seed that the file names
// sim --minutes M [--from A] [--pairs FILE]
//                            as many seeds as fit, from A or a seed of today's; it names pairs never reached that FILE
//                            doesn't list, and after 10 minutes fails on them
// sim --nth [--seeds A..B] [--seed N --place P --how H [--after D] --trace]
//                            everything that can go wrong at one place of an update and of a recovery, at each place
// sim --mutant M --until-caught [--bases B] [--runs R]
//                            with this mistake in the machine: fail unless each of B ranges of R seeds finds it
//
// Runs seeds in a child process, since a failed check of the machine aborts. What the child reaches is counted in
// memory that both see. A seed that fails is run again with its story told, and the end of the story is printed.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <fstream>
#include <map>
#include <new>
#include <string>
#include <string_view>

#include "sim/pairs.hpp"
#include "sim/violation.hpp"
#include "sim/world.hpp"
#include "weighlock/protocol/mutant.hpp"

namespace weighlock::sim {
namespace {

constexpr std::uint64_t kMinutesForAll = 10;  // rare pairs need that many
constexpr std::size_t kStoryLines = 60;
constexpr int kExitViolated = 3;
constexpr unsigned kRunSecondsMax = 30;  // one run takes milliseconds

// Written by the child that runs the seeds, read by its parent after the child's end.
struct Shared {
  Coverage coverage;
  std::uint64_t seed;
  std::uint64_t step;
  int invariant;
  bool plan_reached;
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
  std::string pairs;        // file
  std::string regressions;  // file
  std::uint64_t minutes = 0;
  bool nth = false;
  std::uint64_t place = 0;  // 0: each
  std::uint64_t how = 0;
  std::uint64_t after = 0;
  std::uint64_t mutant = 0;
  std::uint64_t rivals = 0;  // permille of runs with two gateways
  std::uint64_t epochs = 0;  // ... with one that keeps epochs
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

// What a child does: many seeds, or one run with a plan.
struct Work {
  std::uint64_t first = 1;
  std::uint64_t last = 1;
  const Plan* plan = nullptr;
  bool twice = false;
  std::chrono::steady_clock::time_point until = std::chrono::steady_clock::time_point::max();
};

void run_one(std::uint64_t seed, const Work& work, Shared& shared, std::FILE* story) {
  shared.seed = seed;
  alarm(kRunSecondsMax);
  World world(seed, shared.coverage, story, work.plan);
  try {
    world.run();
    shared.plan_reached = world.plan_reached();
    if (work.twice) {
      Coverage other;
      World again(seed, other, nullptr);
      again.run();
      if (again.fingerprint() != world.fingerprint())
        throw Violation{0, "two runs of this seed differ: the simulator isn't deterministic"};
    }
    return;
  } catch (const Violation& violation) {
    note(shared, violation.invariant, world.steps(), violation.text);
    if (story != nullptr) fmt::print(story, "invariant {}: {}\n", violation.invariant, violation.text);
  } catch (const std::exception& error) {
    note(shared, 0, world.steps(), error.what());
  }
  if (story != nullptr) {
    if (story == stdout) world.tell_states(story);
    std::fflush(story);
  }
  _exit(kExitViolated);
}

[[noreturn]] void do_work(const Work& work, Shared& shared, std::FILE* story) {
  for (std::uint64_t seed = work.first; seed <= work.last; ++seed) {
    if (std::chrono::steady_clock::now() >= work.until) break;
    run_one(seed, work, shared, story);
  }
  _exit(0);
}

// True if all seeds held. Else `shared` says which one failed and how.
bool hold(const Work& work, Shared& shared, std::FILE* story, bool quiet) {
  note(shared, 0, 0, "");
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) {
    std::perror("fork");
    std::exit(1);
  }
  if (child == 0) {
    if (quiet) (void)!std::freopen("/dev/null", "w", stderr);
    do_work(work, shared, story);
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

void tell_end_of_story(std::uint64_t seed, const Plan* plan = nullptr) {
  std::FILE* story = std::tmpfile();
  if (story == nullptr) return;
  Shared* shared = share();
  if (hold(Work{seed, seed, plan}, *shared, story, false))
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

MissingPairs missing_pairs(const Options& options) {
  if (options.minutes == 0) return MissingPairs::ignored;
  return options.minutes >= kMinutesForAll ? MissingPairs::fail : MissingPairs::told;
}

int run_range(const Options& options) {
  Shared* shared = share();
  std::map<std::string, std::pair<std::uint64_t, std::string>>
      kinds;  // message without its numbers -> how often, an example
  std::uint64_t failures = 0;
  const auto began = std::chrono::steady_clock::now();
  auto until = std::chrono::steady_clock::time_point::max();
  if (options.minutes > 0) until = began + std::chrono::minutes(options.minutes);
  for (std::uint64_t seed = options.first; seed <= options.last;) {
    Work work{seed, options.last};
    work.twice = options.twice;
    work.until = until;
    if (hold(work, *shared, options.trace ? stdout : nullptr, options.keep_going)) break;
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
  bool good = failures == 0 && (covered || !options.require_coverage);
  if (!options.pairs.empty())
    good = check_pairs(shared->coverage, options.pairs, missing_pairs(options), options.rivals + options.epochs > 0) &&
           good;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  fmt::print("{} failures; {:.0f} seeds per second\n", failures,
             static_cast<double>(shared->coverage.runs) / took.count());
  return good ? 0 : 1;
}

int run_regressions(const Options& options) {
  std::ifstream file(options.regressions);
  if (!file) {
    fmt::print("FAILED: no list of seeds at '{}'\n", options.regressions);
    return 1;
  }
  Shared* shared = share();
  int seeds = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    const std::uint64_t seed = std::strtoull(line.c_str(), nullptr, 10);
    ++seeds;
    if (hold(Work{seed, seed}, *shared, nullptr, false)) continue;
    print_failure(*shared);
    tell_end_of_story(seed);
    fmt::print("its line: {}\n", line);
    return 1;
  }
  fmt::print("{} regressions hold\n", seeds);
  return seeds > 0 ? 0 : 1;
}

// --- what goes wrong at one place

constexpr std::uint64_t kHows = 2 + (static_cast<std::uint64_t>(Mishap::count_) - 1);

Plan plan_of(std::uint64_t place, std::uint64_t how, std::uint64_t after) {
  Plan plan;
  plan.nth = place;
  plan.dies_first = after;
  if (how < 2) {
    plan.what = how == 0 ? Plan::What::die_before : Plan::What::die_after;
  } else {
    plan.what = Plan::What::fail;
    plan.mishap = static_cast<Mishap>(how - 1);
  }
  return plan;
}

bool hold_at(std::uint64_t seed, std::uint64_t place, std::uint64_t how, std::uint64_t after, Shared& shared,
             std::FILE* story) {
  const Plan plan = plan_of(place, how, after);
  shared.plan_reached = false;
  if (hold(Work{seed, seed, &plan}, shared, story, false)) return true;
  fmt::print("FAILED: invariant {}: {}\nreplay: sim --nth --seed {} --place {} --how {} --after {} --trace\n",
             shared.invariant, shared.text, seed, place, how, after);
  if (story == nullptr) tell_end_of_story(seed, &plan);
  return false;
}

// Each place from the first to the one that a run no longer reaches; 0 if one of them failed.
std::uint64_t each_place(std::uint64_t seed, std::uint64_t how, std::uint64_t after, std::uint64_t& runs,
                         Shared& shared) {
  for (std::uint64_t place = 1;; ++place) {
    ++runs;
    if (!hold_at(seed, place, how, after, shared, nullptr)) return 0;
    if (!shared.plan_reached) return place;
  }
}

int run_nth(const Options& options) {
  Shared* shared = share();
  if (options.place > 0)
    return hold_at(options.first, options.place, options.how, options.after, *shared, options.trace ? stdout : nullptr)
               ? 0
               : 1;
  for (std::uint64_t seed = options.first; seed <= options.last; ++seed) {
    std::uint64_t runs = 0, places = 0, recoveries = 0;
    for (std::uint64_t how = 0; how < kHows; ++how) {
      places = each_place(seed, how, 0, runs, *shared);
      if (places == 0) return 1;
    }
    // A recovery from a death at every few of them, and everything at each place of it.
    const std::uint64_t stride = std::max<std::uint64_t>(1, places / 12);
    for (std::uint64_t after = 1; after < places; after += stride) {
      ++recoveries;
      for (std::uint64_t how = 0; how < kHows; ++how) {
        if (each_place(seed, how, after, runs, *shared) == 0) return 1;
      }
    }
    fmt::print("scenario {}: {} places of an update, {} recoveries, {} runs\n", seed, places - 1, recoveries, runs);
  }
  return 0;
}

// For mutants: each base must lead to a catch.
int run_until_caught(const Options& options) {
  Shared* shared = share();
  std::vector<std::uint64_t> runs;
  for (std::uint64_t base = 1; base <= options.bases; ++base) {
    const std::uint64_t first = base * 1'000'000;
    if (hold(Work{first, first + options.runs - 1}, *shared, nullptr, true)) {
      fmt::print("base {}: SURVIVED {} runs\n", base, options.runs);
      return 1;
    }
    runs.push_back(shared->seed - first + 1);
    fmt::print("base {}: caught by run {}: invariant {}: {}\n", base, runs.back(), shared->invariant, shared->text);
  }
  std::sort(runs.begin(), runs.end());
  fmt::print("mutant {}: caught from each of {} bases, after {} seeds (median), {} at most\n", options.mutant,
             runs.size(), runs[runs.size() / 2], runs.back());
  return 0;
}

// Another range each day, and the same all day long.
std::uint64_t seed_of_today() {
  constexpr std::uint64_t kSecondsPerDay = 86'400, kSeedsPerDay = 100'000'000;
  return static_cast<std::uint64_t>(std::time(nullptr)) / kSecondsPerDay * kSeedsPerDay;
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
  const std::map<std::string_view, bool Options::*> switches = {
      {"--trace", &Options::trace}, {"--keep-going", &Options::keep_going},
      {"--twice", &Options::twice}, {"--coverage", &Options::require_coverage},
      {"--nth", &Options::nth},     {"--until-caught", &Options::until_caught}};
  const std::map<std::string_view, std::uint64_t Options::*> numbers = {
      {"--seed", &Options::first},    {"--from", &Options::first},      {"--bases", &Options::bases},
      {"--runs", &Options::runs},     {"--minutes", &Options::minutes}, {"--place", &Options::place},
      {"--how", &Options::how},       {"--after", &Options::after},     {"--mutant", &Options::mutant},
      {"--rivals", &Options::rivals}, {"--epochs", &Options::epochs}};
  bool has_first = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (const auto known = switches.find(flag); known != switches.end()) {
      options.*(known->second) = true;
      continue;
    }
    const std::string_view value = i + 1 < argc ? argv[++i] : "";
    if (const auto known = numbers.find(flag); known != numbers.end()) {
      options.*(known->second) = number(value);
      has_first = has_first || known->second == &Options::first;
      if (flag == "--seed") options.last = options.first;
    } else if (flag == "--seeds") {
      const std::size_t dots = value.find("..");
      options.first = number(value.substr(0, dots));
      options.last = dots == std::string_view::npos ? options.first : number(value.substr(dots + 2));
      has_first = true;
    } else if (flag == "--skip") {
      skipped_checks.windows = value.find("windows") != std::string_view::npos;
      skipped_checks.unloads = value.find("unloads") != std::string_view::npos;
      skipped_checks.retention = value.find("retention") != std::string_view::npos;
    } else if (flag == "--pairs") {
      options.pairs = value;
    } else if (flag == "--regressions") {
      options.regressions = value;
    } else {
      fmt::print(stderr, "unknown flag '{}'\n", flag);
      std::exit(2);
    }
  }
  if (options.nth && !has_first) {  // each scenario
    options.first = 0;
    options.last = kPlannedScenarios - 1;
  }
  if (options.minutes > 0) {
    if (!has_first) options.first = seed_of_today();
    options.last = options.first + 1'000'000'000;
    fmt::print("seeds from {} on\n", options.first);
  }
  return options;
}

}  // namespace
}  // namespace weighlock::sim

int main(int argc, char** argv) {
  using namespace weighlock::sim;
  namespace protocol = weighlock::protocol;
  const Options options = parse(argc, argv);
  if (options.mutant >= static_cast<std::uint64_t>(protocol::Mutant::count_)) {
    fmt::print(stderr, "there is no mutant {}\n", options.mutant);
    return 2;
  }
  protocol::chosen_mutant = static_cast<protocol::Mutant>(options.mutant);
  chosen_rivals_permille = static_cast<unsigned>(options.rivals);
  chosen_epochs_permille = static_cast<unsigned>(options.epochs);
  if (options.until_caught) return run_until_caught(options);
  if (options.nth) return run_nth(options);
  if (!options.regressions.empty()) return run_regressions(options);
  return run_range(options);
}
