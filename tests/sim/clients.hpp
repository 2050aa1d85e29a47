// The people and programs that use the gateway: they connect pairs, ask for updates, change their minds and repeat
// themselves. Keeps what each was answered, for the invariants about clients.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sim/network.hpp"
#include "sim/scenario.hpp"
#include "weighlock/protocol/effect.hpp"
#include "weighlock/protocol/event.hpp"

namespace weighlock::sim {

enum class AskKind { connect, remove, update, cancel, steal, collect, change };

struct Ask {
  AskKind kind = AskKind::update;
  std::string pair;
  std::string key;
  std::string path;
  std::int64_t version = 0;
  bool after_shutdown = false;
  bool replied = false;
  bool refused = false;
  protocol::UpdateId update;  // that it became, or that it wants cancelled
};

class Clients {
 public:
  using Post = std::function<void(protocol::EventBody)>;
  Clients(const Scenario& scenario, Random& random, Network& network, Store& store, Scheduler& scheduler,
          const Trace& trace, Post post);

  void act(const ClientAction& action);
  // Throws a Violation on an answer that the specification forbids.
  void on_reply(const protocol::Reply& reply);
  void on_update_ended(const protocol::UpdateId& update);
  // Whoever waits sees its connection end, and is answered nothing more.
  void gateway_died();
  // It had stopped, and died before it told those who came in the last moment.
  void gateway_ended();
  // ... and its last records are gone: what was promised by them isn't known any more.
  void keys_are_forgotten() { by_key_.clear(); }
  // The first client that still waits; 0 if none.
  protocol::ReplyToken waiting() const;
  bool shut_down() const { return shut_down_; }
  const std::map<protocol::ReplyToken, Ask>& asks() const { return asks_; }
  // By pair: what was asked after the faults, where something is.
  const std::map<std::size_t, protocol::ReplyToken>& last_asks() const { return last_asks_; }
  bool accepted(const protocol::UpdateId& update) const { return accepted_.count(update) > 0; }

 private:
  struct PairView {  // what the clients of one pair remember
    std::int64_t version = 0;
    bool connected = false;  // once
    std::string last_key;
    std::int64_t last_version = 0;
    protocol::UpdateId last_update;
    std::string last_path;
    int connects_left = 6;  // after a bring-up that failed
  };
  protocol::ReplyToken token(AskKind kind, std::size_t pair);
  void connect(std::size_t pair, bool again);
  void request(std::size_t pair, std::int64_t version, std::string key, std::string path);
  void steal(std::size_t pair);
  void cancel(std::size_t pair);
  void roll_back(std::size_t pair);
  void change_worker(std::size_t pair);
  void ask_again(const Ask& ask);
  void connect_again(const std::string& name);
  void pause_first(std::size_t pair);
  void continue_all(const std::vector<std::string>& urls);

  const Scenario& scenario_;
  Random& random_;
  Network& network_;
  Store& store_;
  Scheduler& scheduler_;
  const Trace& trace_;
  Post post_;
  std::map<protocol::ReplyToken, Ask> asks_;
  std::vector<PairView> views_;
  std::map<std::pair<std::string, std::string>, protocol::UpdateId> by_key_;
  std::map<protocol::UpdateId, int> accepted_;
  std::set<protocol::UpdateId> told_;  // its end
  // Engines that a trainer paused by itself, to be continued by it: by request, then by update.
  std::map<protocol::ReplyToken, std::vector<std::string>> paused_for_;
  std::map<protocol::UpdateId, std::vector<std::string>> continue_after_;
  std::map<std::size_t, protocol::ReplyToken> last_asks_;
  protocol::ReplyToken next_ = 1;
  int keys_ = 0;
  bool shut_down_ = false;
};

}  // namespace weighlock::sim
