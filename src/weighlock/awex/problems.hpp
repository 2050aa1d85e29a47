// What is wrong with two lists of metadata: the first few in words, and how many.
//
// Private to this folder; one owner.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "weighlock/core/error.hpp"

namespace weighlock::awex {

class Problems {
 public:
  static constexpr std::size_t kNamedMax = 8;  // a person reads no more

  void add(std::string problem) {
    ++count_;
    if (named_.size() < kNamedMax) named_.push_back(std::move(problem));
  }
  bool empty() const { return count_ == 0; }
  // "AWEX metadata can't be planned: 12 problems: ...; ...; and 4 more"
  Error error() const;

 private:
  std::vector<std::string> named_;
  std::size_t count_ = 0;
};

}  // namespace weighlock::awex
