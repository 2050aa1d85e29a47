// Result<T>: a value or an Error. The part of std::expected (C++23) that the project needs.
//
//   Result<Header> parsed = parse_header(bytes);
//   if (!parsed) return wrap("shard 'a.safetensors'", std::move(parsed).error());
//   use(*parsed);
//
// Reading the value of a failed result, or the error of a good one, is a programmer's error and aborts, in release
// builds too.
#pragma once

#include <utility>
#include <variant>

#include "weighlock/core/check.hpp"
#include "weighlock/core/error.hpp"

namespace weighlock {

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }

  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(value()); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  T& value() & {
    WEIGHLOCK_CHECK(has_value(), "value of a failed Result");
    return std::get<0>(state_);
  }
  const T& value() const& {
    WEIGHLOCK_CHECK(has_value(), "value of a failed Result");
    return std::get<0>(state_);
  }
  T&& value() && { return std::move(value()); }
  template <typename U>
  T value_or(U&& other) const& {
    return has_value() ? std::get<0>(state_) : static_cast<T>(std::forward<U>(other));
  }

  const Error& error() const& {
    WEIGHLOCK_CHECK(!has_value(), "error of a good Result");
    return std::get<1>(state_);
  }
  Error&& error() && {
    WEIGHLOCK_CHECK(!has_value(), "error of a good Result");
    return std::move(std::get<1>(state_));
  }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), failed_(true) {}  // NOLINT(google-explicit-constructor)

  bool has_value() const { return !failed_; }
  explicit operator bool() const { return !failed_; }
  const Error& error() const& {
    WEIGHLOCK_CHECK(failed_, "error of a good Result");
    return error_;
  }
  Error&& error() && {
    WEIGHLOCK_CHECK(failed_, "error of a good Result");
    return std::move(error_);
  }

 private:
  Error error_;
  bool failed_ = false;
};

using Status = Result<void>;

}  // namespace weighlock
