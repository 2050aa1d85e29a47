#include "weighlock/store/shard_index.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "weighlock/io/directory.hpp"
#include "weighlock/tensor/quote.hpp"

namespace weighlock {
namespace {

// Python's json writes these words for floats that JSON doesn't have, and some models' configs hold them.
std::string without_python_floats(std::string_view text) {
  constexpr std::array<std::string_view, 3> kWords = {"-Infinity", "Infinity", "NaN"};
  std::string out;
  out.reserve(text.size());
  bool in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') in_string = !in_string;
    if (in_string && c == '\\' && at + 1 < text.size()) {
      out += text.substr(at++, 2);
      continue;
    }
    std::string_view word;
    for (const std::string_view candidate : kWords) {
      if (!in_string && word.empty() && text.substr(at).starts_with(candidate)) word = candidate;
    }
    if (word.empty()) {
      out += c;
    } else {
      out += "null";
      at += word.size() - 1;
    }
  }
  return out;
}

}  // namespace

Result<json::value> parse_config(std::string_view text, std::string_view what) {
  Result<json::value> parsed = parse_json(without_python_floats(text), what);
  if (!parsed) return wrap(ErrorCode::checkpoint_invalid, "unreadable configuration", std::move(parsed).error());
  if (!parsed->is_object()) {
    return Error{ErrorCode::checkpoint_invalid, fmt::format("{}: not a JSON object", what)};
  }
  return parsed;
}

Result<ShardIndex> parse_shard_index(std::string_view text, std::string_view what) {
  const auto invalid = [&](std::string_view why) {
    return Error{ErrorCode::checkpoint_invalid, fmt::format("{}: {}", what, why)};
  };
  const Result<json::value> parsed = parse_json(text, what);
  if (!parsed) return wrap(ErrorCode::checkpoint_invalid, "unreadable index", parsed.error());
  const json::value* map = find(*parsed, "weight_map");
  if (map == nullptr || !map->is_object()) return invalid("'weight_map' is missing or not an object");
  ShardIndex index;
  for (const auto& member : map->get_object()) {
    const std::string tensor(member.key().data(), member.key().size());
    if (!member.value().is_string())
      return invalid(fmt::format("the file of tensor {} isn't a string", quote_name(tensor)));
    const json::string& given = member.value().get_string();
    const std::string file(given.data(), given.size());
    if (!is_plain_name(file) || file.starts_with('.') || !file.ends_with(".safetensors")) {
      return invalid(fmt::format("tensor {} is said to lie in {}, which isn't the plain name of a .safetensors file",
                                 quote_name(tensor), quote_name(file)));
    }
    index.shards.insert(file);
    index.shard_of.emplace(tensor, file);
  }
  if (index.shards.empty()) return invalid("'weight_map' names no tensor");
  if (const json::value* metadata = find(*parsed, "metadata")) {
    const std::optional<std::int64_t> size = find_int(*metadata, "total_size");
    if (size && *size >= 0) index.total_size = static_cast<std::uint64_t>(*size);
  }
  return index;
}

}  // namespace weighlock
