// What all dialects' conversations share: how a request is put together, what a lost connection or a refused key means,
// and how an answer becomes an outcome. A dialect adds its routes, its table and its order of requests.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "weighlock/engines/conversation.hpp"
#include "weighlock/engines/table.hpp"

namespace weighlock {

class Exchange : public Conversation {
 public:
  Exchange(std::span<const Row> table, EngineTask task);

  Turn begin() final;
  Turn next(const HttpResult& result) final;

 protected:
  enum class Key { admin, api };
  enum class Effect { reads, changes };
  using Then = std::function<Turn(const Answer&)>;

  struct Ask {
    std::string method = "GET";
    std::string target;
    std::string body;
    Key key = Key::admin;
    Effect effect = Effect::reads;
    bool fresh = false;
    bool recent = false;
    // For a read that the operation can do without: what comes next when its key was refused.
    std::function<Turn()> if_refused = nullptr;
    // Likewise, when there was no answer, or none within `at_most`.
    std::function<Turn()> if_unanswered = nullptr;
    std::optional<Milliseconds> at_most = std::nullopt;
  };

  static Ask get(std::string target, Key key);
  static Ask post(std::string target, json::object body, Key key, Effect effect);

  virtual Turn start() = 0;

  // Sends; `then` gets the answer, unless there is none or it is 401 or 403.
  Turn ask(Ask what, Then then);

  // By the dialect's table, under the rows of `as` (a verify is made of reads, a barrier of a read of the state).
  Outcome judge(OperationKind as, const Answer& answer) const;
  // Not by the table: what the answer says doesn't fit together.
  Outcome failed(OutcomeKind kind, ErrorCode code, std::string_view why) const;
  static Outcome done();

  const Operation& operation() const { return task_.operation; }
  const Expectations* expectations() const { return task_.expectations.get(); }

 private:
  Turn lost(const TransportError& error) const;
  Turn refused_key(int status) const;
  std::string without_keys(std::string text) const;

  std::span<const Row> table_;
  EngineTask task_;
  Ask pending_;
  Then then_;
  bool change_sent_ = false;  // an earlier request of this conversation, or the pending one, changes something
};

// A conversation that ends before its first request.
std::unique_ptr<Conversation> not_supported(DialectKind kind, const Operation& operation);

}  // namespace weighlock
