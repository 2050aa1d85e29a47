// The flat settings object of the API -> Policy, strictly: every key known, every type and range checked.
//
// The same object stands in PUT /v1/pairs/{p} ("settings"), in POST .../updates ("policy") and in the compatible
// /connect
// ("settings", with two more keys that have no other place there). Names and defaults: design of the protocol,
// section 11. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weighlock/core/json.hpp"
#include "weighlock/core/result.hpp"
#include "weighlock/protocol/types.hpp"

namespace weighlock {

// An input error with the place it is about, as a client can show it beside its form.
struct FieldError {
  std::string field;  // "settings.deadlines_ms.load"
  Error error;
};

struct Settings {
  protocol::Policy policy;
  std::optional<protocol::SaveTrigger> save_trigger;  // the compatible /connect only
  std::optional<DialectKind> dialect;                 // likewise; none = auto
};

enum class SettingsPlace { pair, update, compatible_connect };

// Lays `value` over `base`. `at` is the field's name in errors ("settings" or "policy").
std::optional<FieldError> read_settings(const json::value& value, std::string_view at, SettingsPlace place,
                                        Settings& base);

// The object that `read_settings` would turn into this policy.
json::object settings_view(const protocol::Policy& policy);

// The first key of `object` that isn't `known`, as an error with a suggestion.
std::optional<FieldError> unknown_key(const json::object& object, std::string_view at,
                                      const std::vector<std::string_view>& known);

}  // namespace weighlock
