#include "weighlock/gateway/credentials.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "weighlock/core/limits.hpp"
#include "weighlock/core/words.hpp"

namespace weighlock {
namespace {

std::optional<FieldError> bad(std::string_view field, std::string_view what) {
  return FieldError{std::string(field), Error{ErrorCode::invalid_argument, fmt::format("{}: {}", field, what)}};
}

constexpr std::size_t kNameShown = 200;

std::optional<FieldError> check_key(std::string text, std::string_view field, std::string& key) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.pop_back();
  if (text.empty()) return bad(field, "the key is empty");
  if (text.size() > limits::kKeyBytesMax)
    return bad(field, fmt::format("the key is longer than {} bytes", limits::kKeyBytesMax));
  for (const char c : text) {
    if (static_cast<unsigned char>(c) <= 0x20 || static_cast<unsigned char>(c) >= 0x7f)
      return bad(field, "the key has characters that no header can carry");
  }
  key = std::move(text);
  return std::nullopt;
}

}  // namespace

const Credentials& CredentialStore::of(const std::string& worker_url) const {
  const auto it = by_worker_.find(worker_url);
  return it == by_worker_.end() ? for_all_ : it->second;
}

std::optional<FieldError> read_key_reference(const json::value& reference, std::string_view field, std::string& key,
                                             std::string& path) {
  if (reference.is_null()) return std::nullopt;
  const json::object* object = reference.if_object();
  const auto env = find_string(reference, "env");
  const auto file = find_string(reference, "file");
  if (!object || object->size() != 1 || (!env && !file))
    return bad(field, "must be {\"env\": NAME} or {\"file\": PATH}; keys themselves are not taken here");
  const std::string_view name = env ? *env : *file;
  // What is NUL-terminated below must not be another name than the one that is checked here.
  if (name.find('\0') != std::string_view::npos) return bad(field, "contains a NUL");
  if (env) {
    const char* value = std::getenv(std::string(name).c_str());
    if (!value) return bad(field, fmt::format("the gateway's environment has no {}", printable(name, kNameShown)));
    return check_key(value, field, key);
  }
  if (!name.starts_with('/'))
    return bad(field, fmt::format("'{}' is not an absolute path", printable(name, kNameShown)));
  if (name.size() > limits::kPathBytesMax)
    return bad(field, fmt::format("has {} bytes; at most {} are taken", name.size(), limits::kPathBytesMax));
  path = name;
  return std::nullopt;
}

// A FIFO or device is refused before it is read, without waiting for its other end.
std::optional<std::string> read_key_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  struct stat found {};
  std::optional<std::string> out;
  if (::fstat(file, &found) == 0 && S_ISREG(found.st_mode) &&
      found.st_size <= static_cast<off_t>(limits::kKeyBytesMax)) {
    std::string buffer(limits::kKeyBytesMax, '\0');
    const ssize_t got = ::read(file, buffer.data(), buffer.size());
    if (got >= 0) out = buffer.substr(0, static_cast<std::size_t>(got));
  }
  ::close(file);
  return out;
}

std::optional<FieldError> take_key(const std::optional<std::string>& held, KeyFile& file) {
  if (!held)
    return bad(file.field, fmt::format("'{}' can't be read, is no regular file, or is longer than {} bytes",
                                       printable(file.path, kNameShown), limits::kKeyBytesMax));
  return check_key(*held, file.field, file.key);
}

}  // namespace weighlock
