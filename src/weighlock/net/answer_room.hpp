// Room for the large answers of calls that are made together: it bounds what they take, however many there are.
//
// An answer has to have room for all of its body before more than the beginning is read; without it the answer stays in
// the peer's hands, in the order of coming. One that is larger than all the room is let in by itself.
//
// Thread rule: loop thread only. Places share the room, which goes with the last of them.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "weighlock/runtime/loop.hpp"

namespace weighlock {

class AnswerRoom : public std::enable_shared_from_this<AnswerRoom> {
 public:
  // One answer's; what it takes is free again when it goes. Whoever reads the body keeps it for as long.
  class Place {
   public:
    explicit Place(std::shared_ptr<AnswerRoom> room) : room_(std::move(room)) {}
    ~Place();
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

    // Once. True: there is room now. Else `then` runs on the loop when there is, unless the place has gone.
    bool enter(std::size_t bytes, std::function<void()> then);

   private:
    friend class AnswerRoom;
    std::shared_ptr<AnswerRoom> room_;
    std::size_t taken_ = 0;
    std::size_t wanted_ = 0;
    std::function<void()> then_;
  };

  AnswerRoom(Loop& loop, std::size_t bytes) : loop_(loop), bytes_(bytes) {}
  std::shared_ptr<Place> place() { return std::make_shared<Place>(shared_from_this()); }
  std::size_t taken() const { return taken_; }

 private:
  bool fits(std::size_t bytes) const { return taken_ == 0 || bytes <= bytes_ - taken_; }
  void let_in();

  Loop& loop_;
  std::size_t bytes_;
  std::size_t taken_ = 0;
  std::deque<Place*> waiting_;
};

}  // namespace weighlock
