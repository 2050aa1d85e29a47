#include "sim/clients.hpp"

#include "sim/violation.hpp"

namespace weighlock::sim {

using protocol::ReplyToken;

Clients::Clients(const Scenario& scenario, Random& random, Network& network, Store& store, Scheduler& scheduler,
                 const Trace& trace, Post post)
    : scenario_(scenario),
      random_(random),
      network_(network),
      store_(store),
      scheduler_(scheduler),
      trace_(trace),
      post_(std::move(post)),
      views_(scenario.pairs.size()) {}

ReplyToken Clients::token(AskKind kind, std::size_t pair) {
  const ReplyToken made = next_++;
  Ask& ask = asks_[made];
  ask.kind = kind;
  ask.pair = scenario_.pairs[pair].name;
  ask.after_shutdown = shut_down_;
  return made;
}

void Clients::connect(std::size_t pair, bool again) {
  protocol::ConnectPair event;
  views_[pair].connected = true;
  event.token = token(AskKind::connect, pair);
  event.spec = scenario_.pairs[pair];
  event.new_lineage = !again || random_.chance(600);
  if (again && event.spec.workers.size() > 1 && random_.chance(400)) {
    event.spec.workers.erase(event.spec.workers.begin() +
                             static_cast<std::ptrdiff_t>(random_.below(event.spec.workers.size())));
  }
  if (event.spec.awex && scenario_.no_storage[pair]) {
    event.spec.save_path.clear();
  } else if (event.spec.awex && again && random_.chance(300)) {
    event.spec.awex.reset();  // by files from now on
  }
  if (again && event.spec.lora && random_.chance(300)) event.spec.lora->keep = random_.between(0, 3);
  if (event.new_lineage) {
    // A trainer that starts again may start at an earlier step.
    views_[pair].version = random_.chance(500) ? 0 : views_[pair].version;
  }
  trace_.line("client connects {} ({} workers)", event.spec.name, event.spec.workers.size());
  post_(std::move(event));
}

void Clients::request(std::size_t pair, std::int64_t version, std::string key, std::string path) {
  PairView& view = views_[pair];
  protocol::RequestUpdate event;
  event.token = token(AskKind::update, pair);
  event.pair = scenario_.pairs[pair].name;
  event.version = version;
  event.key = key;
  event.path = path;
  event.policy = scenario_.pairs[pair].policy;
  asks_[event.token].key = key;
  asks_[event.token].version = version;
  asks_[event.token].path = path;
  view.last_key = std::move(key);
  view.last_version = version;
  view.last_path = std::move(path);
  trace_.line("client asks {} for version {} (token {}, key '{}', path '{}')", event.pair, version, event.token,
              event.key, event.path);
  post_(std::move(event));
}

// To the version before, or to one that it names: now and then one that there isn't.
void Clients::roll_back(std::size_t pair) {
  protocol::RequestUpdate event;
  event.token = token(AskKind::update, pair);
  event.pair = scenario_.pairs[pair].name;
  event.policy = scenario_.pairs[pair].policy;
  event.rollback = true;
  if (random_.chance(400)) event.rollback_to = random_.between(0, views_[pair].version);
  trace_.line("client rolls {} back (token {}) to {}", event.pair, event.token, event.rollback_to.value_or(-1));
  post_(std::move(event));
}

// Often it isn't possible: adding who is there, releasing who isn't held.
void Clients::change_worker(std::size_t pair) {
  protocol::ChangeWorker event;
  event.token = token(AskKind::change, pair);
  event.pair = scenario_.pairs[pair].name;
  event.change = static_cast<protocol::WorkerChange>(random_.below(5));
  event.worker = random_.pick(scenario_.pairs[pair].workers);
  event.reason = "an operator's words";
  trace_.line("client changes {} of {}: {} (token {})", event.worker.url, event.pair, static_cast<int>(event.change),
              event.token);
  post_(std::move(event));
}

void Clients::steal(std::size_t pair) {
  if (scenario_.pairs.size() < 2) return;
  const std::size_t other = (pair + 1) % scenario_.pairs.size();
  if (scenario_.pairs[other].lora) return;  // those share their workers
  if (!views_[other].connected) return;     // it would be taken for the thief's
  protocol::ConnectPair event;
  event.token = token(AskKind::steal, pair);
  event.spec = scenario_.pairs[pair];
  event.spec.workers.push_back(scenario_.pairs[other].workers.front());
  event.new_lineage = false;
  trace_.line("client connects {} with a worker of {}", event.spec.name, scenario_.pairs[other].name);
  post_(std::move(event));
}

void Clients::cancel(std::size_t pair) {
  const protocol::UpdateId& update = views_[pair].last_update;
  trace_.line("client cancels {}", update);
  const ReplyToken made = token(AskKind::cancel, pair);
  asks_[made].update = update;
  post_(protocol::CancelUpdate{made, update});
}

// As AReaL v2 does: the trainer pauses its engines, asks for the update, and continues them itself.
void Clients::pause_first(std::size_t pair) {
  for (const protocol::WorkerSpec& worker : scenario_.pairs[pair].workers) network_.find(worker.url)->foreign_pause();
  const bool caller = scenario_.pairs[pair].policy.pause == protocol::PauseOwner::caller;
  if (caller || scenario_.calm[pair] || random_.chance(800)) {  // or it dies and leaves them so
    for (const protocol::WorkerSpec& worker : scenario_.pairs[pair].workers) paused_for_[next_].push_back(worker.url);
  }
  request(pair, ++views_[pair].version, fmt::format("k{}", ++keys_), "");
}

void Clients::continue_all(const std::vector<std::string>& urls) {
  for (const std::string& url : urls) {
    scheduler_.after(random_.between(1, 2'000), [this, url] { network_.find(url)->foreign_resume(); });
  }
}

void Clients::act(const ClientAction& action) {
  if (action.kind == ClientActionKind::shutdown && shut_down_) return;
  PairView& view = views_[action.pair];
  const std::string& name = scenario_.pairs[action.pair].name;
  if (action.is_last) {
    view.version += 100;  // above whatever an earlier lineage was asked for
    last_asks_[action.pair] = next_;
  }
  switch (action.kind) {
    case ClientActionKind::connect:
      connect(action.pair, false);
      break;
    case ClientActionKind::reconnect:
      connect(action.pair, true);
      break;
    case ClientActionKind::request:
      view.version += !scenario_.planned && random_.chance(150) ? 2 : 1;
      request(action.pair, view.version, scenario_.planned || random_.chance(700) ? fmt::format("k{}", ++keys_) : "",
              "");
      break;
    case ClientActionKind::request_same_key:
      request(action.pair, view.last_version, view.last_key, view.last_path);
      break;
    case ClientActionKind::request_same_version:
      request(action.pair, view.last_version, fmt::format("k{}", ++keys_), view.last_path);
      break;
    case ClientActionKind::request_again:
      request(action.pair, view.last_version, "", view.last_path);
      break;
    case ClientActionKind::request_lower:
      request(action.pair, view.version > 1 ? view.version - 1 : 0, fmt::format("k{}", ++keys_), "");
      break;
    case ClientActionKind::request_path:
      request(action.pair, ++view.version, fmt::format("k{}", ++keys_),
              store_.hand_over(scenario_.pairs[action.pair].save_path));
      break;
    case ClientActionKind::roll_back:
      roll_back(action.pair);
      break;
    case ClientActionKind::change_worker:
      change_worker(action.pair);
      break;
    case ClientActionKind::collect:
      trace_.line("client collects {}", name);
      post_(protocol::CollectVersions{token(AskKind::collect, action.pair), name, random_.chance(300)});
      break;
    case ClientActionKind::cancel:
      if (view.last_update.empty()) break;
      cancel(action.pair);
      break;
    case ClientActionKind::remove:
      trace_.line("client removes {}", name);
      post_(protocol::RemovePair{token(AskKind::remove, action.pair), name});
      break;
    case ClientActionKind::steal_worker:
      steal(action.pair);
      break;
    case ClientActionKind::pause_first:
      pause_first(action.pair);
      break;
    case ClientActionKind::continue_all: {
      std::vector<std::string> urls;
      for (const protocol::WorkerSpec& worker : scenario_.pairs[action.pair].workers) urls.push_back(worker.url);
      continue_all(urls);
      break;
    }
    case ClientActionKind::shutdown:
      trace_.line("shutdown");
      shut_down_ = true;
      post_(protocol::Shutdown{});
      break;
  }
}

void Clients::on_reply(const protocol::Reply& reply) {
  if (reply.token == 0) return;
  const auto it = asks_.find(reply.token);
  if (it == asks_.end()) throw Violation{0, fmt::format("a reply to token {}, which nobody holds", reply.token)};
  Ask& ask = it->second;
  if (ask.replied) throw Violation{0, fmt::format("a second reply to token {}", reply.token)};
  ask.replied = true;
  ask.refused = reply.error.has_value();
  if (const auto paused = paused_for_.find(reply.token); paused != paused_for_.end()) {
    if (ask.refused) {
      continue_all(paused->second);
    } else {
      continue_after_[reply.update] = paused->second;
    }
  }
  if (ask.kind == AskKind::connect && ask.refused && reply.error->code == ErrorCode::worker_failed)
    connect_again(ask.pair);
  if (ask.kind == AskKind::remove && !ask.refused) {  // the pair's keys are forgotten with it
    std::erase_if(by_key_, [&](const auto& entry) { return entry.first.first == ask.pair; });
  }
  if (ask.kind != AskKind::update || ask.refused) return;
  if (ask.after_shutdown) throw Violation{0, fmt::format("token {} was accepted after Shutdown", reply.token)};
  ask.update = reply.update;
  if (reply.update.empty()) throw Violation{0, fmt::format("token {} was accepted without an update", reply.token)};
  ++accepted_[reply.update];
  for (std::size_t p = 0; p < views_.size(); ++p) {
    if (scenario_.pairs[p].name == ask.pair) views_[p].last_update = reply.update;
  }
  if (ask.key.empty()) return;
  const auto [known, fresh] = by_key_.emplace(std::pair{ask.pair, ask.key}, reply.update);
  if (!fresh && known->second != reply.update) {
    throw Violation{9,
                    fmt::format("key '{}' of {} is update {} and {}", ask.key, ask.pair, known->second, reply.update)};
  }
}

void Clients::on_update_ended(const protocol::UpdateId& update) {
  told_.insert(update);
  const auto it = continue_after_.find(update);
  if (it == continue_after_.end()) return;
  continue_all(it->second);
}

// A client that was cut off asks again, with the key that it had: there is one true outcome.
void Clients::ask_again(const Ask& ask) {
  if (ask.kind != AskKind::update || ask.key.empty() || !random_.chance(500)) return;
  for (std::size_t p = 0; p < views_.size(); ++p) {
    if (scenario_.pairs[p].name != ask.pair) continue;
    scheduler_.after(random_.between(1, 5'000), [this, p, version = ask.version, key = ask.key, path = ask.path] {
      if (!shut_down_) request(p, version, key, path);
    });
  }
}

// The bring-up of its group failed, or nobody told how it ended.
void Clients::connect_again(const std::string& name) {
  const std::size_t pair = scenario_.pair_of(name);
  if (!scenario_.pairs[pair].awex || scenario_.planned || views_[pair].connects_left-- <= 0) return;
  scheduler_.after(random_.between(1'000, 20'000), [this, pair] {
    if (!shut_down_) connect(pair, false);
  });
}

void Clients::gateway_died() {
  const std::map<protocol::ReplyToken, Ask> before = asks_;
  for (const auto& [token, ask] : before) {
    const bool waits = !ask.replied || (accepted_.count(ask.update) > 0 && !ask.refused && !told_.count(ask.update));
    if (waits) ask_again(ask);
  }
  for (auto& [token, ask] : asks_) {
    if (ask.replied) continue;
    ask.replied = ask.refused = true;
    if (ask.kind == AskKind::connect) connect_again(ask.pair);
    if (ask.kind == AskKind::remove)  // it may have been done all the same
      std::erase_if(by_key_, [&](const auto& entry) { return entry.first.first == ask.pair; });
  }
  accepted_.clear();
  for (const auto& [token, urls] : paused_for_) continue_all(urls);
  for (const auto& [update, urls] : continue_after_) continue_all(urls);
  paused_for_.clear();
  continue_after_.clear();
  shut_down_ = false;
}

void Clients::gateway_ended() {
  for (auto& [token, ask] : asks_) {
    if (!ask.replied) ask.replied = ask.refused = true;
  }
}

ReplyToken Clients::waiting() const {
  for (const auto& [token, ask] : asks_) {
    if (!ask.replied) return token;
  }
  return 0;
}

}  // namespace weighlock::sim
