#include "weighlock/engines/dialect.hpp"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "weighlock/engines/exchange.hpp"
#include "weighlock/engines/sglang.hpp"
#include "weighlock/engines/vllm.hpp"

namespace weighlock {
namespace {

EngineTask reading_task(Credentials credentials) {
  Operation operation;
  operation.kind = OperationKind::identify;
  return EngineTask{std::move(operation), std::move(credentials)};
}

// vLLM answers {"version":...} to /version, which SGLang doesn't have; SGLang answers /model_info, which vLLM doesn't
// have. Ends with an Outcome that is ok and names the dialect, or tells why none can be named.
class Finder final : public Exchange {
 public:
  explicit Finder(Credentials credentials) : Exchange(vllm_table(), reading_task(std::move(credentials))) {}

 private:
  Turn start() override {
    Ask version = get("/version", Key::api);
    version.if_refused = [this] { return ask_sglang(); };  // a keyed SGLang answers 401 to what it doesn't know
    return ask(std::move(version), [this](const Answer& answer) -> Turn {
      if (answer.status == 200 && body::has(answer, "version")) return found(DialectKind::vllm);
      return ask_sglang();
    });
  }

  Turn ask_sglang() {
    return ask(get("/model_info", Key::api), [this](const Answer& answer) -> Turn {
      if (answer.status == 200 && body::has(answer, "model_path")) return found(DialectKind::sglang);
      return failed(
          answer.status / 100 == 5 ? OutcomeKind::unknown : OutcomeKind::untouched, ErrorCode::not_supported,
          fmt::format("answered {} \"{}\", and /version isn't vLLM's: this is neither SGLang nor vLLM, or not yet; "
                      "check that the URL is the engine's own",
                      answer.status, answer.words()));
    });
  }

  static Outcome found(DialectKind kind) {
    Outcome outcome = done();
    outcome.dialect = kind;
    return outcome;
  }
};

class Identification final : public Conversation {
 public:
  explicit Identification(Credentials credentials)
      : credentials_(credentials), current_(std::make_unique<Finder>(std::move(credentials))) {}

  Turn begin() override { return carry_on(current_->begin()); }
  Turn next(const HttpResult& answer) override { return carry_on(current_->next(answer)); }

 private:
  Turn carry_on(Turn turn) {
    Outcome* outcome = std::get_if<Outcome>(&turn);
    if (!outcome) return turn;
    if (dialect_) {
      outcome->dialect = dialect_;
      return turn;
    }
    if (!outcome->ok()) return turn;
    dialect_ = outcome->dialect;
    current_ = start_conversation(*dialect_, reading_task(credentials_));
    return current_->begin();
  }

  Credentials credentials_;
  std::optional<DialectKind> dialect_;
  std::unique_ptr<Conversation> current_;
};

}  // namespace

const DialectTraits& traits(DialectKind kind) {
  return kind == DialectKind::sglang ? sglang::traits() : vllm::traits();
}

std::unique_ptr<Conversation> start_conversation(DialectKind kind, EngineTask task) {
  return kind == DialectKind::sglang ? sglang::start(std::move(task)) : vllm::start(std::move(task));
}

std::unique_ptr<Conversation> start_identify(Credentials credentials) {
  return std::make_unique<Identification>(std::move(credentials));
}

}  // namespace weighlock
