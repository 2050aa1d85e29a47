// The TOML file. toml++ stays in this file: it is a large header.
#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#include <fmt/format.h>
#include <toml++/toml.h>

#include <fstream>
#include <iterator>

#include "weighlock/config/settings.hpp"
#include "weighlock/core/suggest.hpp"

namespace weighlock::config {
namespace {

constexpr std::size_t kFileBytesMax = 1024 * 1024;

Error bad(const std::string& path, const toml::source_position& at, std::string_view message) {
  return Error{ErrorCode::invalid_argument, fmt::format("file {}:{}: {}", path, at.line, message)};
}

std::optional<std::string> scalar_text(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* whole = node.as_integer()) return fmt::format("{}", whole->get());
  if (const auto* real = node.as_floating_point()) return fmt::format("{}", real->get());
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  return std::nullopt;
}

bool kind_fits(Kind kind, const toml::node& node) {
  switch (kind) {
    case Kind::text:
    case Kind::secret:
      return node.is_string();
    case Kind::whole:
      return node.is_integer();
    case Kind::seconds:
      return node.is_number();
    case Kind::flag:
      return node.is_boolean();
    case Kind::list:
      return node.is_array();
  }
  return false;
}

std::string_view wanted(Kind kind) {
  switch (kind) {
    case Kind::text:
    case Kind::secret:
      return "a string";
    case Kind::whole:
      return "a whole number";
    case Kind::seconds:
      return "a number of seconds";
    case Kind::flag:
      return "true or false";
    case Kind::list:
      return "an array of strings";
  }
  return "";
}

}  // namespace

Result<Layer> parse_toml(std::string_view text, const std::string& path) {
  const toml::parse_result parsed = toml::parse(text, path);
  if (!parsed) return bad(path, parsed.error().source().begin, parsed.error().description());
  Layer layer{fmt::format("file {}", path), {}};
  for (const auto& [key, node] : parsed.table()) {
    const std::string key_text(key.str());
    Kind kind = Kind::text;  // files of keys are the only keys that are no rows of the table
    bool known = secret_of_file(key_text) != nullptr;
    for (const Setting& setting : settings()) {
      if (setting.name == key_text) known = true, kind = setting.kind;
    }
    if (!known)
      return Error{ErrorCode::unknown_key, fmt::format("file {}:{}: unknown key '{}'{}", path, key.source().begin.line,
                                                       key_text, suggestion(key_text, setting_names()))};
    if (!kind_fits(kind, node))
      return bad(path, node.source().begin, fmt::format("{} must be {}", key_text, wanted(kind)));
    std::vector<std::string> values;
    if (const toml::array* array = node.as_array()) {
      for (const toml::node& element : *array) {
        if (!element.is_string())
          return bad(path, element.source().begin, fmt::format("{} must be {}", key_text, wanted(kind)));
        values.push_back(*scalar_text(element));
      }
    } else {
      values.push_back(*scalar_text(node));
    }
    layer.values.emplace_back(key_text, std::move(values));
  }
  return layer;
}

Result<Layer> read_toml_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error{ErrorCode::invalid_argument, fmt::format("settings file '{}' can't be read", path)};
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (text.size() > kFileBytesMax)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("settings file '{}' has {} bytes, more than {}", path, text.size(), kFileBytesMax)};
  return parse_toml(text, path);
}

}  // namespace weighlock::config
