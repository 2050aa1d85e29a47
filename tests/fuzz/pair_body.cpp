// The body of PUT /v1/pairs/{p}, with the settings in it: any JSON becomes a spec, or an error that names a field; and
// what was read of the settings, shown and read again, is the same.
#include "weighlock/gateway/pair_body.hpp"

#include "check.hpp"
#include "weighlock/core/words.hpp"
#include "weighlock/gateway/settings.hpp"

namespace weighlock::fuzz {
namespace {

void check_failure(const FieldError& failure) {
  WEIGHLOCK_CHECK(!failure.field.empty(), "an error names its field");
  const int status = info(failure.error.code).http_status;
  WEIGHLOCK_CHECK(status >= 400 && status < 500, "a bad body is the client's fault");
  WEIGHLOCK_CHECK(is_utf8(failure.error.text()), "an error can be shown");
}

void check_settings(const json::value& value) {
  Settings read;
  if (const auto failure = read_settings(value, "settings", SettingsPlace::compatible_connect, read))
    return check_failure(*failure);
  Settings again;
  const json::object view = settings_view(read.policy);
  WEIGHLOCK_CHECK(!read_settings(view, "settings", SettingsPlace::pair, again), "what is shown can be read");
  WEIGHLOCK_CHECK(settings_view(again.policy) == view, "and is the same");
}

}  // namespace
}  // namespace weighlock::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weighlock;
  const Result<json::value> value = parse_json(fuzz::text_of(data, size), "request body");
  if (!value) return 0;
  static const Confinement confinement = *Confinement::make({}, {"/shared"});
  PairBody body;
  if (const auto failure = read_pair_body(*value, "actor", confinement, nullptr, body)) fuzz::check_failure(*failure);
  if (const json::value* settings = find(*value, "settings")) fuzz::check_settings(*settings);
  fuzz::check_settings(*value);
  return 0;
}
