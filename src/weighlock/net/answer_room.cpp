#include "weighlock/net/answer_room.hpp"

#include <algorithm>

#include "weighlock/core/check.hpp"

namespace weighlock {

AnswerRoom::Place::~Place() {
  std::erase(room_->waiting_, this);
  room_->taken_ -= taken_;
  room_->let_in();
}

bool AnswerRoom::Place::enter(std::size_t bytes, std::function<void()> then) {
  WEIGHLOCK_CHECK(taken_ == 0 && wanted_ == 0, "an answer enters once");
  if (room_->waiting_.empty() && room_->fits(bytes)) {
    taken_ = bytes;
    room_->taken_ += bytes;
    return true;
  }
  wanted_ = bytes;
  then_ = std::move(then);
  room_->waiting_.push_back(this);
  return false;
}

void AnswerRoom::let_in() {
  while (!waiting_.empty() && fits(waiting_.front()->wanted_)) {
    Place* const first = waiting_.front();
    waiting_.pop_front();
    first->taken_ = first->wanted_;
    taken_ += first->taken_;
    loop_.post(std::exchange(first->then_, nullptr));
  }
}

}  // namespace weighlock
