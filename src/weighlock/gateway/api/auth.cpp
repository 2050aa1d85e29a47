#include "weighlock/gateway/api/auth.hpp"

#include <openssl/crypto.h>

#include <algorithm>

#include "weighlock/gateway/api/answer.hpp"

namespace weighlock {
namespace {

constexpr std::string_view kMissing = "Missing or malformed Authorization header. Expected 'Bearer <token>'.";
constexpr std::string_view kWrong = "Admin API key required.";

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

}  // namespace

AuthOutcome check_bearer(const HttpRequest& request, std::string_view key) {
  // Of two keys nobody knows which one a proxy before us has checked.
  const auto is_key = [](const HttpHeader& one) {
    const std::string_view name = "authorization";
    return std::equal(one.name.begin(), one.name.end(), name.begin(), name.end(),
                      [](unsigned char a, char b) { return std::tolower(a) == b; });
  };
  if (std::count_if(request.headers.begin(), request.headers.end(), is_key) != 1) return AuthOutcome::missing;
  const std::string_view value = trimmed(header(request.headers, "authorization"));
  const std::size_t blank = value.find(' ');
  if (blank == std::string_view::npos) return AuthOutcome::missing;
  std::string scheme(value.substr(0, blank));
  std::transform(scheme.begin(), scheme.end(), scheme.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const std::string_view token = trimmed(value.substr(blank + 1));
  if (scheme != "bearer" || token.empty()) return AuthOutcome::missing;
  if (std::any_of(token.begin(), token.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; }))
    return AuthOutcome::wrong;
  // The length may leak; the bytes may not.
  const bool same = token.size() == key.size() && CRYPTO_memcmp(token.data(), key.data(), key.size()) == 0;
  return same ? AuthOutcome::ok : AuthOutcome::wrong;
}

HttpResponse auth_refusal(AuthOutcome outcome) {
  return outcome == AuthOutcome::missing ? detail_answer(401, kMissing) : detail_answer(403, kWrong);
}

Error auth_error(AuthOutcome outcome) {
  if (outcome == AuthOutcome::missing) return Error{ErrorCode::unauthenticated, std::string(kMissing)};
  return Error{ErrorCode::permission_denied, std::string(kWrong)};
}

}  // namespace weighlock
