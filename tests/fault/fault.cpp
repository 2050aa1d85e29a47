#include "fault.hpp"

namespace weighlock::fault {

std::string_view name(Fault fault) {
  switch (fault) {
    case Fault::none:
      return "none";
    case Fault::refuse:
      return "refuse";
    case Fault::reset_before:
      return "reset_before";
    case Fault::reset_after:
      return "reset_after";
    case Fault::hang:
      return "hang";
    case Fault::hang_after:
      return "hang_after";
    case Fault::freeze:
      return "freeze";
    case Fault::late:
      return "late";
    case Fault::drip:
      return "drip";
    case Fault::status_500:
      return "status_500";
    case Fault::status_400:
      return "status_400";
    case Fault::not_success:
      return "not_success";
    case Fault::garbage:
      return "garbage";
    case Fault::empty:
      return "empty";
  }
  return "none";
}

std::vector<std::string_view> words_of_cause(Fault fault) {
  switch (fault) {
    case Fault::refuse:
      return {"refused", "reset"};  // a connection that was already waiting when the port closed is reset
    case Fault::reset_before:
    case Fault::reset_after:
      return {"reset", "closed"};
    case Fault::hang:
    case Fault::hang_after:
    case Fault::freeze:
      return {"within"};
    case Fault::empty:
      return {"without a word", "isn't JSON", "answered 200 \"\""};
    case Fault::status_500:
      return {"500"};
    case Fault::status_400:
      return {"400"};
    default:
      return {kWords};
  }
}

}  // namespace weighlock::fault
