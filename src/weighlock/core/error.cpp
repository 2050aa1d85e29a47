#include "weighlock/core/error.hpp"

#include <array>
#include <utility>

namespace weighlock {
namespace {

constexpr std::array kTable = {
#define X(name, type, http, exit, retry) ErrorInfo{type, http, exit, retry},
#include "weighlock/core/error_codes.def"
#undef X
};

}  // namespace

const ErrorInfo& info(ErrorCode code) {
  return kTable.at(static_cast<std::size_t>(code));
}

ErrorCode error_code_from(std::string_view type) {
  for (std::size_t i = 0; i < kTable.size(); ++i) {
    if (kTable[i].type == type) return static_cast<ErrorCode>(i);
  }
  return ErrorCode::internal;
}

std::string Error::text() const {
  return cause ? message + ": " + cause->text() : message;
}

Error wrap(std::string message, Error inner) {
  const ErrorCode code = inner.code;
  return wrap(code, std::move(message), std::move(inner));
}

Error wrap(ErrorCode code, std::string message, Error inner) {
  return Error{code, std::move(message), std::make_shared<const Error>(std::move(inner))};
}

}  // namespace weighlock
