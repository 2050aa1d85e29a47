#include "weighlock/engines/evidence.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace weighlock {
namespace {

// sha256 of nothing: what vLLM's checker gives for a tensor whose storage was packed away.
constexpr std::string_view kDigestOfNothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
// vLLM pads a vocabulary to a multiple of this (its DEFAULT_VOCAB_PADDING_SIZE).
constexpr std::uint64_t kVocabularyPadding = 64;

// Rounding to bfloat16 (8 significant bits) moves a value by at most 2^-8 of it. A file that is BF16 itself was rounded
// already: what remains is an engine that computes in float16, 2^-11. 2^-9 lies between that and one unit in the last
// place of bfloat16, which is more than 2^-8, but for its smallest case, 2^-8.
constexpr double kRoundedOnce = 1.0 / 256;
constexpr double kRoundedAlready = 1.0 / 512;
constexpr double kSubnormal = 3e-8;  // half of float16's smallest step

bool comparable_dtype(std::string_view dtype) {
  return dtype == "BF16" || dtype == "F16" || dtype == "F32";
}

bool close(double expected, double got, std::string_view dtype) {
  if (std::isnan(expected) || std::isnan(got)) return std::isnan(expected) && std::isnan(got);
  if (expected == got) return true;
  const double relative = dtype == "BF16" ? kRoundedAlready : kRoundedOnce;
  return std::abs(expected - got) <= relative * std::max(std::abs(expected), std::abs(got)) + kSubnormal;
}

// A number, or null for what JSON can't say.
std::optional<double> number(const json::value& value) {
  if (value.is_null()) return std::nan("");
  if (const double* d = value.if_double()) return *d;
  if (const std::int64_t* i = value.if_int64()) return static_cast<double>(*i);
  if (const std::uint64_t* u = value.if_uint64()) return static_cast<double>(*u);
  return std::nullopt;
}

// Appends the numbers below `value` in C order; false if the nesting isn't `depth` deep everywhere.
bool flatten(const json::value& value, std::size_t depth, std::vector<double>& out) {
  if (depth == 0) {
    const std::optional<double> n = number(value);
    if (n) out.push_back(*n);
    return n.has_value();
  }
  const json::array* list = value.if_array();
  if (!list) return false;
  return std::all_of(list->begin(), list->end(), [&](const json::value& v) { return flatten(v, depth - 1, out); });
}

std::size_t row_width(const TensorExpectation& expected) {
  std::size_t width = 1;
  for (std::size_t i = 1; i < expected.shape.size(); ++i) {
    const std::uint64_t extent = std::max<std::uint64_t>(expected.shape[i], 1);
    if (width > SIZE_MAX / extent) return SIZE_MAX;
    width *= extent;
  }
  return width;
}

// The digests of each tensor, by its name: what follows the last colon of the key.
std::unordered_map<std::string_view, std::set<std::string_view>> by_tensor(const json::object& checksums) {
  std::unordered_map<std::string_view, std::set<std::string_view>> digests;
  for (const auto& entry : checksums) {
    if (!entry.value().is_string()) continue;
    const std::string_view key(entry.key().data(), entry.key().size());
    const json::string& digest = entry.value().get_string();
    digests[key.substr(key.rfind(':') + 1)].insert(std::string_view(digest.data(), digest.size()));  // npos + 1 is 0
  }
  return digests;
}

bool has_several_tensor_ranks(const json::object& checksums) {
  return std::any_of(checksums.begin(), checksums.end(), [](const auto& entry) {
    const std::string_view key(entry.key().data(), entry.key().size());
    return key.find("tp1:") != std::string_view::npos;
  });
}

bool padded(const TensorExpectation& tensor) {
  const bool vocabulary =
      tensor.name.find("embed") != std::string::npos || tensor.name.find("lm_head") != std::string::npos;
  return vocabulary && !tensor.shape.empty() && tensor.shape[0] % kVocabularyPadding != 0;
}

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

void count(const TensorExpectation& tensor, Findings& findings) {
  ++findings.compared;
  if (tensor.differs_from_previous) ++findings.differing;
}

}  // namespace

std::size_t rows_needed(const TensorExpectation& expected) {
  const std::size_t width = row_width(expected);
  return std::max<std::size_t>(1, expected.leading.size() / width + (expected.leading.size() % width != 0 ? 1 : 0));
}

void compare_leading(const TensorExpectation& expected, const json::value& answer, Findings& findings) {
  const json::array* rows = answer.if_array();
  if (!rows || rows->empty() || expected.shape.empty() || !comparable_dtype(expected.dtype)) return;
  const std::size_t width = row_width(expected);
  const std::size_t depth = expected.shape.size() - 1;
  std::size_t values = 0;
  for (std::size_t row = 0; row < rows->size() && row * width < expected.leading.size(); ++row) {
    std::vector<double> got;
    if (!flatten((*rows)[row], depth, got)) return;
    // Cut along one of several inner dimensions, the row's order isn't the file's.
    if (depth > 1 && got.size() != width) return;
    for (std::size_t i = 0; i < got.size() && i < width && row * width + i < expected.leading.size(); ++i, ++values) {
      const float wanted = expected.leading[row * width + i];
      if (close(wanted, got[i], expected.dtype)) continue;
      if (findings.mismatch.empty())
        findings.mismatch = fmt::format("tensor '{}': value {} is {}, the version's is {}", expected.name,
                                        row * width + i, static_cast<float>(got[i]), wanted);
      return;
    }
  }
  if (values > 0) count(expected, findings);
}

void compare_checksums(const Expectations& expected, const json::object& checksums, Findings& findings) {
  const bool several_ranks = has_several_tensor_ranks(checksums);
  const auto digests_of = by_tensor(checksums);
  for (const TensorExpectation& tensor : expected.tensors) {
    if (tensor.sha256.empty() || !comparable_dtype(tensor.dtype)) continue;
    const auto found = digests_of.find(tensor.name);
    if (found == digests_of.end()) continue;
    const std::set<std::string_view>& digests = found->second;
    if (digests.size() == 1 && *digests.begin() == tensor.sha256) {
      count(tensor, findings);
      continue;
    }
    // Parts of one tensor differ between ranks, but for a bias of zeros, whose parts are alike and shorter than the
    // file's.
    const bool alike = digests.size() == 1 && tensor.shape.size() == 1 && !ends_with(tensor.name, ".bias");
    if (padded(tensor) || digests.count(kDigestOfNothing) != 0 || (several_ranks && !alike)) continue;
    if (!findings.mismatch.empty()) continue;
    const auto strange =
        std::find_if(digests.begin(), digests.end(), [&](auto digest) { return digest != tensor.sha256; });
    findings.mismatch =
        fmt::format("tensor '{}': its sha256 is {}, the version's is {}", tensor.name, *strange, tensor.sha256);
  }
}

}  // namespace weighlock
