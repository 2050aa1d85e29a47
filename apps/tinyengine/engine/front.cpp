#include "tinyengine/engine/front.hpp"

#include <algorithm>
#include <cctype>

namespace weighlock::tiny {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), [](unsigned char c) { return std::tolower(c); });
  return result;
}

std::string percent_decoded(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+') {
      result += ' ';
    } else if (text[i] == '%' && i + 2 < text.size() && std::isxdigit(static_cast<unsigned char>(text[i + 1])) &&
               std::isxdigit(static_cast<unsigned char>(text[i + 2]))) {
      result += static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16));
      i += 2;
    } else {
      result += text[i];
    }
  }
  return result;
}

}  // namespace

bool has_bearer(const HttpRequest& request, std::string_view key) {
  const std::string_view value = header(request.headers, "Authorization");
  const std::size_t space = value.find(' ');
  return space != std::string_view::npos && lower(value.substr(0, space)) == "bearer" && value.substr(space + 1) == key;
}

std::optional<std::string> query_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::size_t end = std::min(query.find('&'), query.size());
    const std::string_view pair = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    const std::size_t equals = std::min(pair.find('='), pair.size());
    if (pair.substr(0, equals) == name) return percent_decoded(pair.substr(std::min(equals + 1, pair.size())));
  }
  return std::nullopt;
}

bool query_flag(std::string_view query, std::string_view name, bool fallback) {
  const auto value = query_value(query, name);
  if (!value) return fallback;
  const std::string word = lower(*value);
  return word == "1" || word == "true" || word == "yes" || word == "on";
}

AdapterContent load_adapter(const std::string& directory, const ModelShape& shape, AdapterNames names, bool partial) {
  AdapterContent content = read_adapter(directory, shape, names);
  if (!partial || !content.adapter) return content;
  auto half = std::make_shared<Adapter>(*content.adapter);
  half->modules.erase(std::next(half->modules.begin(), static_cast<std::ptrdiff_t>(half->modules.size() / 2)),
                      half->modules.end());
  content.adapter = std::move(half);
  return content;
}

Core::Loader make_loader(DialectKind dialect, LoadRequest request) {
  if (dialect == DialectKind::sglang) {
    return [request](const Llama& served, const Dirt&) { return load_as_sglang(served, request); };
  }
  return [request](const Llama& served, const Dirt& dirt) { return load_as_vllm(served, dirt, request); };
}

}  // namespace weighlock::tiny
