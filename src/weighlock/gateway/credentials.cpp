#include "weighlock/gateway/credentials.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>

namespace weighlock {
namespace {

constexpr std::size_t kKeyBytesMax = 4096;  // a header line must hold it

std::optional<FieldError> bad(std::string_view field, std::string_view what) {
  return FieldError{std::string(field), Error{ErrorCode::invalid_argument, fmt::format("{}: {}", field, what)}};
}

}  // namespace

const Credentials& CredentialStore::of(const std::string& worker_url) const {
  const auto it = by_worker_.find(worker_url);
  return it == by_worker_.end() ? for_all_ : it->second;
}

std::optional<FieldError> read_key_reference(const json::value& reference, std::string_view field, std::string& key) {
  if (reference.is_null()) return std::nullopt;
  const json::object* object = reference.if_object();
  const auto env = find_string(reference, "env");
  const auto file = find_string(reference, "file");
  if (!object || object->size() != 1 || (!env && !file))
    return bad(field, "must be {\"env\": NAME} or {\"file\": PATH}; keys themselves are not taken here");
  std::string text;
  if (env) {
    const char* value = std::getenv(std::string(*env).c_str());
    if (!value) return bad(field, fmt::format("the gateway's environment has no {}", *env));
    text = value;
  } else {
    if (!file->starts_with('/')) return bad(field, fmt::format("'{}' is not an absolute path", *file));
    std::ifstream stream{std::string(*file), std::ios::binary};
    std::string buffer(kKeyBytesMax + 1, '\0');
    if (!stream || !stream.read(buffer.data(), static_cast<std::streamsize>(buffer.size())).eof())
      return bad(field, fmt::format("'{}' can't be read, or is longer than {} bytes", *file, kKeyBytesMax));
    text = buffer.substr(0, static_cast<std::size_t>(stream.gcount()));
  }
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.pop_back();
  if (text.empty()) return bad(field, "the key is empty");
  for (const char c : text) {
    if (static_cast<unsigned char>(c) <= 0x20 || static_cast<unsigned char>(c) >= 0x7f)
      return bad(field, "the key has characters that no header can carry");
  }
  key = std::move(text);
  return std::nullopt;
}

}  // namespace weighlock
