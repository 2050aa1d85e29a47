// Clients that wait: for the machine's reply to an event, for the end of an update, or for any change of the journal.
//
// Thread rule: loop thread only. A callback runs at most once (`on_change`: until forgotten), never inside the call
// that registers it, and may register or forget others.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "weighlock/protocol/effect.hpp"

namespace weighlock {

class Waiters {
 public:
  using WaitId = std::uint64_t;

  protocol::ReplyToken on_reply(std::function<void(const protocol::Reply&)> then);
  WaitId on_ended(protocol::UpdateId update, std::function<void()> then);
  WaitId on_change(std::function<void()> then);
  void forget(WaitId id);  // of on_ended or on_change

  void replied(const protocol::Reply& reply);
  void ended(const protocol::UpdateId& update);
  void changed();

 private:
  struct Ended {
    protocol::UpdateId update;
    std::function<void()> then;
  };
  std::uint64_t next_ = 1;
  std::map<protocol::ReplyToken, std::function<void(const protocol::Reply&)>> replies_;
  std::map<WaitId, Ended> ended_;
  std::map<WaitId, std::function<void()>> changes_;
};

}  // namespace weighlock
