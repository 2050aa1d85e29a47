// Every call of an update x every way of failing. The cases run many at once in one gateway, as pairs of their own,
// before the first of them is judged: most of their time is waiting for deadlines. (That no pair disturbs another is
// tested with it.)
#include <atomic>
#include <map>
#include <thread>

#include "walk.hpp"

namespace weighlock::fault {
namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr int kAtOnce = 32;  // the deadlines hold for what runs several times slower, too
#else
constexpr int kAtOnce = 64;
#endif

class Walk : public ::testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() {
    const std::vector<Case> wanted = selected();
    std::vector<Report> reports(wanted.size());
    {
      // No looks at workers that serve: what is to be refused is known by its place among the calls of an update.
      GatewaySettings settings;
      settings.idle_watch_period = Milliseconds(600'000);
      Lab lab(std::move(settings));
      std::atomic<std::size_t> next{0};
      std::vector<std::thread> threads;
      for (int i = 0; i < kAtOnce; ++i) {
        threads.emplace_back([&] {
          for (std::size_t at = next++; at < wanted.size(); at = next++) reports[at] = run_case(lab, wanted[at]);
        });
      }
      for (std::thread& thread : threads) thread.join();
    }
    for (std::size_t i = 0; i < wanted.size(); ++i) reports_[wanted[i].name()] = std::move(reports[i]);
  }
  static void TearDownTestSuite() { reports_.clear(); }

  // Those that this run of the program asks for.
  static std::vector<Case> selected() {
    std::map<std::string, bool> asked;
    const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
    for (int i = 0; i < all.total_test_suite_count(); ++i) {
      const ::testing::TestSuite& suite = *all.GetTestSuite(i);
      for (int j = 0; j < suite.total_test_count(); ++j) {
        const ::testing::TestInfo& test = *suite.GetTestInfo(j);
        const std::string name = test.name();
        if (test.should_run()) asked[name.substr(name.find('/') + 1)] = true;
      }
    }
    std::vector<Case> out;
    for (const Case& one : all_cases()) {
      if (asked.contains(one.name())) out.push_back(one);
    }
    return out;
  }

  static std::map<std::string, Report> reports_;
};

std::map<std::string, Report> Walk::reports_;

TEST_P(Walk, every_worker_is_whole_or_fenced_and_the_client_is_told) {
  const Report& report = reports_.at(GetParam().name());
  for (const std::string& problem : report.problems) ADD_FAILURE() << problem;
  if (HasFailure()) ADD_FAILURE() << "took " << report.took.count() << " ms, answered " << report.answer;
}

INSTANTIATE_TEST_SUITE_P(Calls, Walk, ::testing::ValuesIn(all_cases()),
                         [](const auto& test) { return test.param.name(); });

}  // namespace
}  // namespace weighlock::fault
