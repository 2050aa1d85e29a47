// The bearer key. Pure; compares in constant time.
#pragma once

#include <string>
#include <string_view>

#include "weighlock/core/http.hpp"
#include "weighlock/core/result.hpp"

namespace weighlock {

enum class AuthOutcome { ok, missing, wrong };

// Scheme without case, blanks around the key ignored. A key with bytes outside ASCII is wrong.
AuthOutcome check_bearer(const HttpRequest& request, std::string_view key);

// The compatible routes' words for missing and wrong.
HttpResponse auth_refusal(AuthOutcome outcome);
// The same as an error of the table, for /v1.
Error auth_error(AuthOutcome outcome);

}  // namespace weighlock
