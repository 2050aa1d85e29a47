#include "weighlock/io/os_error.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace weighlock {
namespace {

ErrorCode code_of(int failure) {
  switch (failure) {
    case ENOENT:
    case ENOTDIR:
      return ErrorCode::not_found;
    case EACCES:
    case EPERM:
    case EROFS:
      return ErrorCode::permission_denied;
    case EEXIST:
    case ENOTEMPTY:
      return ErrorCode::conflict;
    case ENOSPC:
    case EDQUOT:
      return ErrorCode::storage_full;
    case ESTALE:
      return ErrorCode::storage_not_visible;
    case ELOOP:
    case EXDEV:
      return ErrorCode::invalid_argument;
    default:
      return ErrorCode::storage_failed;
  }
}

}  // namespace

Error os_error(std::string what, int failure) {
  const int number = std::abs(failure);
  const char* symbol = ::strerrorname_np(number);
  const char* words = ::strerrordesc_np(number);
  return Error{code_of(number), fmt::format("cannot {}: {} ({})", what, words ? words : "unknown error",
                                            symbol ? symbol : std::to_string(number).c_str())};
}

}  // namespace weighlock
