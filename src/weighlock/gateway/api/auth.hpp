// The bearer key. Pure; compares in constant time.
#pragma once

#include <string>
#include <string_view>

#include "weighlock/core/http.hpp"
#include "weighlock/core/result.hpp"

namespace weighlock {

inline constexpr std::string_view kDefaultAdminKey = "areal-admin-key";  // public: the Python gateway's default

enum class AuthOutcome { ok, missing, wrong };

// Scheme without case, blanks around the key ignored. A key with bytes outside ASCII is wrong.
AuthOutcome check_bearer(const HttpRequest& request, std::string_view key);

// The compatible routes' words for missing and wrong.
HttpResponse auth_refusal(AuthOutcome outcome);
// The same as an error of the table, for /v1.
Error auth_error(AuthOutcome outcome);

// The default key is refused off loopback, unless the environment acknowledges it.
Status check_admin_key(std::string_view host, std::string_view key, bool allow_default);

}  // namespace weighlock
