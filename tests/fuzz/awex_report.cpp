// A worker's report of AWEX metadata: what is taken can be served and read again, and a plan that is made of it is
// right.
#include "weighlock/awex/report.hpp"

#include <vector>

#include "check.hpp"
#include "weighlock/awex/predict.hpp"
#include "weighlock/awex/repair.hpp"
#include "weighlock/awex/scanner.hpp"
#include "weighlock/awex/serve.hpp"
#include "weighlock/core/json.hpp"
#include "weighlock/core/words.hpp"

namespace weighlock::awex {
namespace {

// The strict parser stops at a key that appears twice and at an exponent beyond any integer, wherever the text goes
// from there; numbers that are handed on as text need no value.
void check_skipping(std::string_view text) {
  Scanner scan(text, limits::kJsonDepthMax);
  std::string_view raw;
  const bool taken = scan.skip_value(raw) && scan.at_end();
  const Result<json::value> value = parse_json(text, "text");
  for (const std::string_view excused : {"appears twice", "exponent overflow"})
    if (!value && value.error().message.find(excused) != std::string::npos) return;
  WEIGHLOCK_CHECK(taken == value.has_value(), "a value is skipped if it is JSON, and only then");
}

void check_serving(const Report& report) {
  const std::vector<Report> one{report};
  const Result<Repaired> repaired = repair(one, one, {1, 1, 1});
  if (!repaired) {
    WEIGHLOCK_CHECK(is_utf8(repaired.error().text()), "a refusal can be shown");
    return;
  }
  WEIGHLOCK_CHECK(prove(*repaired, predict(*repaired)), "a plan that is made is right");
  std::string again = serialise(*repaired, SIZE_MAX)->train;
  again.replace(0, std::string_view(R"({"value")").size(), R"({"result")");
  const Result<Report> back = parse_report({Side::train, 0, "served"}, again);
  WEIGHLOCK_CHECK(back && back->tensors.size() == report.tensors.size(), "what is served can be read");
}

}  // namespace
}  // namespace weighlock::awex

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weighlock;
  const std::string_view text = fuzz::text_of(data, size);
  awex::check_skipping(text);
  awex::ReportLimits limits;
  limits.shards_max = 100;
  const Result<awex::Report> report = awex::parse_report({awex::Side::train, 0, "http://t"}, text, limits);
  if (!report) {
    WEIGHLOCK_CHECK(is_utf8(report.error().text()), "a refusal can be shown");
    return 0;
  }
  awex::check_serving(*report);
  return 0;
}
