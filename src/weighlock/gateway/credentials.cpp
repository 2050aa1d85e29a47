#include "weighlock/gateway/credentials.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

namespace weighlock {
namespace {

constexpr std::size_t kKeyBytesMax = 4096;  // a header line must hold it

std::optional<FieldError> bad(std::string_view field, std::string_view what) {
  return FieldError{std::string(field), Error{ErrorCode::invalid_argument, fmt::format("{}: {}", field, what)}};
}

// On the loop, so nothing here may wait: a FIFO or device is refused before it is read, and a regular file of a few
// bytes is read at once. Nothing: it can't be read, or is no such file.
std::optional<std::string> read_key_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  struct stat found {};
  std::optional<std::string> out;
  if (::fstat(file, &found) == 0 && S_ISREG(found.st_mode) && found.st_size <= static_cast<off_t>(kKeyBytesMax)) {
    std::string buffer(kKeyBytesMax, '\0');
    const ssize_t got = ::read(file, buffer.data(), buffer.size());
    if (got >= 0) out = buffer.substr(0, static_cast<std::size_t>(got));
  }
  ::close(file);
  return out;
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
    const std::optional<std::string> held = read_key_file(std::string(*file));
    if (!held)
      return bad(field, fmt::format("'{}' can't be read, is no regular file, or is longer than {} bytes", *file,
                                    kKeyBytesMax));
    text = *held;
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
