#include "weighlock/engines/exchange.hpp"

#include <fmt/format.h>

#include <utility>

#include "weighlock/core/check.hpp"
#include "weighlock/core/transport.hpp"
#include "weighlock/core/words.hpp"

namespace weighlock {
namespace {

class Refusal final : public Conversation {
 public:
  explicit Refusal(Outcome outcome) : outcome_(std::move(outcome)) {}
  Turn begin() override { return outcome_; }
  Turn next(const HttpResult&) override { return outcome_; }

 private:
  Outcome outcome_;
};

bool changes_something(OperationKind kind) {
  switch (kind) {
    case OperationKind::pause:
    case OperationKind::set_label:
    case OperationKind::load:
    case OperationKind::load_empty:
    case OperationKind::flush:
    case OperationKind::resume:
    case OperationKind::load_adapter:
    case OperationKind::unload_adapter:
      return true;
    case OperationKind::identify:
    case OperationKind::read_state:
    case OperationKind::verify:
    case OperationKind::probe:
    case OperationKind::barrier:
    case OperationKind::list_adapters:
      return false;
  }
  return true;
}

void replace_all(std::string& text, std::string_view what, std::string_view with) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size()))
    text.replace(at, what.size(), with);
}

}  // namespace

Exchange::Exchange(std::span<const Row> table, EngineTask task) : table_(table), task_(std::move(task)) {}

Turn Exchange::begin() {
  return start();
}

Turn Exchange::next(const HttpResult& result) {
  WEIGHLOCK_CHECK(then_ != nullptr, "next() follows a request");
  const Then then = std::exchange(then_, nullptr);
  if (const TransportError* error = std::get_if<TransportError>(&result)) {
    if (const auto if_unanswered = std::exchange(pending_.if_unanswered, nullptr)) return if_unanswered();
    return lost(*error);
  }
  const HttpResponse& response = std::get<HttpResponse>(result);
  if (response.status == 401 || response.status == 403) {
    if (const auto if_refused = std::exchange(pending_.if_refused, nullptr)) return if_refused();
    return refused_key(response.status);
  }
  return then(read_answer(response));
}

Exchange::Ask Exchange::get(std::string target, Key key) {
  Ask ask;
  ask.target = std::move(target);
  ask.key = key;
  return ask;
}

Exchange::Ask Exchange::post(std::string target, json::object body, Key key, Effect effect) {
  Ask ask;
  ask.method = "POST";
  ask.target = std::move(target);
  ask.body = json::serialize(body);
  ask.key = key;
  ask.effect = effect;
  ask.recent = effect == Effect::changes;
  return ask;
}

Turn Exchange::ask(Ask what, Then then) {
  Step step{{what.method, what.target, {{"Accept", "application/json, text/plain, */*"}}, what.body},
            what.fresh,
            what.recent,
            what.at_most};
  // Old releases of SGLang answer 422 to a POST without a body, new ones 400: there always is one, with its type.
  if (!what.body.empty()) step.request.headers.push_back({"Content-Type", "application/json"});
  const std::string& first = what.key == Key::admin ? task_.credentials.admin_key : task_.credentials.api_key;
  const std::string& second = what.key == Key::admin ? task_.credentials.api_key : task_.credentials.admin_key;
  const std::string& key = first.empty() ? second : first;
  if (!key.empty()) step.request.headers.push_back({"Authorization", "Bearer " + key});
  if (what.effect == Effect::changes) change_sent_ = true;
  pending_ = std::move(what);
  then_ = std::move(then);
  return step;
}

Turn Exchange::lost(const TransportError& error) const {
  OutcomeKind kind = OutcomeKind::unknown;
  // Only one request of a conversation changes something. Before it, nothing has happened; after it, that a further
  // request was never sent is no comfort.
  const bool before_change = !change_sent_ && changes_something(task_.operation.kind);
  if (before_change) kind = OutcomeKind::untouched;
  if (error.nothing_sent && (!change_sent_ || pending_.effect == Effect::changes)) kind = OutcomeKind::not_sent;
  return failed(kind, code_of(error.kind),
                "got no answer: " + (error.text.empty() ? std::string(name(error.kind)) : error.text));
}

Turn Exchange::refused_key(int status) const {
  const bool admin = pending_.key == Key::admin;
  const std::string& own = admin ? task_.credentials.admin_key : task_.credentials.api_key;
  const std::string& other = admin ? task_.credentials.api_key : task_.credentials.admin_key;
  const std::string_view wanted = admin ? "admin_key" : "api_key";
  const std::string_view used = admin ? "api_key" : "admin_key";
  std::string why;
  if (!own.empty()) {
    why = fmt::format("answered {}: the worker's {} is wrong: set the one that the engine was started with", status,
                      wanted);
  } else if (!other.empty()) {
    why =
        fmt::format("answered {}: the worker has no {}, and its {} was refused: set {}", status, wanted, used, wanted);
  } else {
    why = fmt::format("answered {}: the engine asks for a key: set the worker's {}", status, wanted);
  }
  const bool earlier_change = change_sent_ && pending_.effect == Effect::reads;
  return failed(earlier_change ? OutcomeKind::unknown : OutcomeKind::untouched, ErrorCode::permission_denied, why);
}

Outcome Exchange::judge(OperationKind as, const Answer& answer) const {
  const Row& row = table_[classify(table_, as, answer)];
  if (row.kind == OutcomeKind::ok) return done();
  std::string why = fmt::format("answered {}", answer.status);
  const std::string words = answer.words();
  why += words.empty() ? std::string(" without a word") : fmt::format(" \"{}\"", words);
  if (!row.remedy.empty()) why += fmt::format(" ({})", row.remedy);
  Outcome outcome = failed(row.kind, row.code, why);
  outcome.needs_restart = row.needs_restart;
  return outcome;
}

Outcome Exchange::failed(OutcomeKind kind, ErrorCode code, std::string_view why) const {
  Outcome outcome;
  outcome.kind = kind;
  outcome.code = code;
  outcome.text = without_keys(fmt::format("{} {} {}", pending_.method, pending_.target, why));
  return outcome;
}

Outcome Exchange::done() {
  Outcome outcome;
  outcome.kind = OutcomeKind::ok;
  return outcome;
}

std::string Exchange::without_keys(std::string text) const {
  for (const std::string& key : {task_.credentials.admin_key, task_.credentials.api_key}) {
    if (!key.empty()) replace_all(text, key, "[key]");
  }
  return text;
}

std::unique_ptr<Conversation> not_supported(DialectKind kind, const Operation& operation) {
  Outcome outcome;
  outcome.kind = OutcomeKind::untouched;
  outcome.code = ErrorCode::not_supported;
  outcome.text = fmt::format("{} has no operation '{}'", name(kind), name(operation.kind));
  if (operation.kind == OperationKind::pause)
    outcome.text = fmt::format("{} has no pause mode '{}'", name(kind), name(operation.pause_mode));
  return std::make_unique<Refusal>(std::move(outcome));
}

}  // namespace weighlock
