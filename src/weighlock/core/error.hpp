// What went wrong, in words that a person on call can act on.
//
// A message names the object, the limit and the value, and where there is one the remedy. `cause` is the error below
// this one; `text()` prints the whole chain. Values; safe to copy between threads.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace weighlock {

enum class ErrorCode {
#define X(name, type, http, exit, retry) name,
#include "weighlock/core/error_codes.def"
#undef X
};

// The row of the table (core/error_codes.def) that belongs to a code.
struct ErrorInfo {
  std::string_view type;  // JSON "code", metric label
  int http_status;
  int exit_code;
  bool retryable;
};

const ErrorInfo& info(ErrorCode code);

// Of a gateway that can't record what it does any more (EX_SOFTWARE of sysexits.h). Its parent starts another one,
// which asks the disk.
inline constexpr int kExitJournalFailed = 70;

// The code whose `type` is given, or `internal` for a word that this build doesn't know.
ErrorCode error_code_from(std::string_view type);

struct Error {
  ErrorCode code = ErrorCode::internal;
  std::string message;
  std::shared_ptr<const Error> cause = nullptr;

  // "message: cause's message: ..."
  std::string text() const;
};

// A new error around `inner`, with the same code.
Error wrap(std::string message, Error inner);
// A new error around `inner`, with a code of its own.
Error wrap(ErrorCode code, std::string message, Error inner);

}  // namespace weighlock
