// For tests: lists put right from what workers tell, and what is wrong with them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weighlock/awex/predict.hpp"
#include "weighlock/awex/repair.hpp"
#include "weighlock/awex/report_fixture.hpp"

namespace weighlock::awex {

using Workers = std::vector<std::vector<Told>>;

inline Result<Repaired> repaired(const Workers& train, const Workers& infer, std::uint32_t engine_ranks,
                                 std::uint32_t train_ranks = 0, bool colocated = false) {
  Result<std::vector<Report>> t = reports(Side::train, train), i = reports(Side::infer, infer);
  if (!t) return std::move(t).error();
  if (!i) return std::move(i).error();
  const auto count = [](std::size_t n) { return static_cast<std::uint32_t>(n); };
  return repair(*t, *i,
                {train_ranks ? train_ranks : count(train.size()), engine_ranks, count(infer.size()), colocated});
}

// "" for what is right: proven, and no byte is sent twice.
inline std::string problem(const Workers& train, const Workers& infer, std::uint32_t engine_ranks,
                           std::uint32_t train_ranks = 0) {
  const Result<Repaired> result = repaired(train, infer, engine_ranks, train_ranks);
  if (!result) return result.error().text();
  const Plan plan = predict(*result);
  const Status proven = prove(*result, plan);
  if (!proven) return proven.error().text();
  const Statistics told = statistics(*result, plan);
  return told.total_sent == told.needed ? "" : "bytes are sent that nobody needs";
}

inline void expect_told(const std::string& text, const std::vector<std::string_view>& words) {
  for (const std::string_view word : words) EXPECT_NE(text.find(word), std::string::npos) << word << "\n" << text;
}

inline Workers fsdp(const std::string& name, const Sizes& shape, int world) {
  Workers all;
  for (int rank = 0; rank < world; ++rank) all.push_back({fsdp_of(name, shape, rank, world)});
  return all;
}

inline Workers engines(int count, const std::vector<Told>& told) {
  return Workers(static_cast<std::size_t>(count), told);
}

}  // namespace weighlock::awex
