// What an imposter holds: the tensors of a small checkpoint in one file, read for real.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "weighlock/core/json.hpp"

namespace weighlock::fault {

class Weights {
 public:
  // BF16 tensors only. Nothing is held if the directory can't be read: `readable` tells.
  explicit Weights(const std::string& directory);

  bool readable() const { return readable_; }
  bool has_tensors() const { return !tensors_.empty(); }
  // As SGLang gives them: a list of numbers, or of rows; null if there is no such tensor.
  json::value leading(std::string_view name, std::size_t count) const;
  // As vLLM gives them: the sha256 of each tensor's bytes, under the names of its first rank.
  json::object checksums() const;

 private:
  struct Tensor {
    std::vector<std::size_t> shape;
    std::string bytes;
  };
  bool readable_ = false;
  std::map<std::string, Tensor, std::less<>> tensors_;
};

}  // namespace weighlock::fault
