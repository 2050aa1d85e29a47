#include "weighlock/core/transport.hpp"

namespace weighlock {

ErrorCode code_of(TransportError::Kind kind) {
  switch (kind) {
    case TransportError::Kind::timeout:
      return ErrorCode::timed_out;
    case TransportError::Kind::reset:
      return ErrorCode::connection_lost;
    case TransportError::Kind::cancelled:
      return ErrorCode::cancelled;
    case TransportError::Kind::malformed:
    case TransportError::Kind::too_large:
      return ErrorCode::bad_answer;
    case TransportError::Kind::resolve:
    case TransportError::Kind::refused:
    case TransportError::Kind::unreachable:
    case TransportError::Kind::tls:
      return ErrorCode::unreachable;
  }
  return ErrorCode::unreachable;
}

}  // namespace weighlock
