#include "weighlock/awex/devices.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace weighlock::awex {
namespace {

using Numbers = std::vector<std::uint32_t>;

// "t0", "t1", ... or "e0", ..., each at "ip/id".
std::vector<DeviceOf> at(std::string_view side, const std::vector<std::string>& places) {
  std::vector<DeviceOf> out;
  for (const std::string& place : places) {
    const std::size_t slash = place.find('/');
    out.push_back({std::string(side) + std::to_string(out.size()), {place.substr(0, slash), place.substr(slash + 1)}});
  }
  return out;
}

Numbers numbers(const std::vector<std::string>& trainers, const std::vector<std::string>& engines,
                std::uint32_t engine_ranks) {
  const Result<Numbers> got = engine_numbers(at("t", trainers), at("e", engines), engine_ranks);
  EXPECT_TRUE(got) << got.error().text();
  return got ? *got : Numbers{};
}

void expect_refused(const std::vector<std::string>& trainers, const std::vector<std::string>& engines,
                    std::uint32_t engine_ranks, const std::vector<std::string_view>& words) {
  const Result<Numbers> got = engine_numbers(at("t", trainers), at("e", engines), engine_ranks);
  ASSERT_FALSE(got);
  EXPECT_EQ(info(got.error().code).http_status, 422);
  for (const std::string_view word : words)
    EXPECT_NE(got.error().text().find(word), std::string::npos) << word << "\n" << got.error().text();
}

TEST(Devices, engines_are_numbered_by_the_trainers_at_their_devices) {
  EXPECT_EQ(numbers({"a/0", "a/1"}, {"a/0", "a/1"}, 1), (Numbers{0, 1}));
  EXPECT_EQ(numbers({"a/0", "a/1"}, {"a/1", "a/0"}, 1), (Numbers{1, 0}));
  EXPECT_EQ(numbers({"a/0", "b/0", "a/1"}, {"a/1", "a/0", "b/0"}, 1), (Numbers{2, 0, 1}));
  EXPECT_EQ(numbers({"a/GPU-7", "a/GPU-3"}, {"a/GPU-3", "a/GPU-7"}, 1), (Numbers{1, 0}));
}

TEST(Devices, an_engine_that_tells_its_first_ranks_device_has_those_that_follow) {
  EXPECT_EQ(numbers({"a/0", "a/1"}, {"a/0"}, 2), (Numbers{0}));
  EXPECT_EQ(numbers({"a/4", "a/5", "a/6", "a/7"}, {"a/6", "a/4"}, 2), (Numbers{1, 0}));
  EXPECT_EQ(numbers({"a/GPU-7", "a/GPU-3"}, {"a/GPU-7"}, 2), (Numbers{0}));
  EXPECT_EQ(numbers({"a/0", "a/1", "b/0", "b/1"}, {"a/0"}, 4), (Numbers{0}));  // over two hosts
}

TEST(Devices, an_engine_whose_ranks_are_not_at_the_devices_of_trainers_in_order_is_refused) {
  expect_refused({"a/1", "a/0"}, {"a/1"}, 2,
                 {"rank 1 of e0", "a, device 1", "is at a, device 2", "t1, rank 1", "a, device 0"});
  expect_refused({"a/0", "b/0", "a/1", "b/1"}, {"a/0", "b/0"}, 2,
                 {"rank 1 of e0", "a, device 1", "t1, rank 1", "b, device 0"});
  expect_refused({"a/0", "a/1", "a/2", "a/3"}, {"a/1", "a/3"}, 2,
                 {"e0 begins at a, device 1", "t1, rank 1 of 4", "2 ranks"});
  expect_refused({"a/0", "a/1", "a/2"}, {"a/0", "a/2"}, 2, {"e1 begins at a, device 2", "t2, rank 2 of 3"});
}

TEST(Devices, a_device_of_two_or_of_one_side_alone_is_refused_naming_both) {
  expect_refused({"a/0", "a/0"}, {"a/0", "a/1"}, 1, {"t0 and t1 are both at a, device 0"});
  expect_refused({"a/0", "a/1"}, {"a/0", "a/0"}, 1, {"e0 and e1 are both at a, device 0"});
  expect_refused({"a/0", "a/1"}, {"a/0", "b/1"}, 1,
                 {"e1 is at b, device 1, where no trainer is, and t1 is at a, device 1, where no worker is"});
  expect_refused({"a/0", "a/1"}, {"a/1"}, 1, {"t0 is at a, device 0, where no worker is"});
}

TEST(Devices, where_anybody_tells_no_device_engines_are_taken_as_listed) {
  EXPECT_EQ(numbers({"a/0", "/"}, {"a/1", "a/0"}, 1), (Numbers{0, 1}));
  EXPECT_EQ(numbers({"a/0", "a/1"}, {"/", "a/0"}, 1), (Numbers{0, 1}));
}

}  // namespace
}  // namespace weighlock::awex
