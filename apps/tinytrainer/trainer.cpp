#include "tinytrainer/trainer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "tinyengine/engine/reply.hpp"
#include "tinyengine/model/checkpoint.hpp"
#include "tinytrainer/adapter_save.hpp"

namespace weighlock::tiny {
namespace {

constexpr Milliseconds kRefuseDefault{1000};
constexpr Milliseconds kReplyFirst{30};  // the answer that set the fault leaves before the port is closed
constexpr std::uint64_t kStraySeed = 0x57A4;

// Flask's: sorted keys and a newline.
HttpResponse flask(int status, const json::object& body) {
  return {status, {{"Content-Type", "application/json"}, {"Server", "Werkzeug"}}, json::serialize(body) + "\n"};
}

HttpResponse internal_error(const std::string& message) {
  return flask(500, {{"error", "Internal server error: " + message}});
}

std::string save_path(const json::value& body) {
  const json::value* args = find(body, "args");
  if (!args || !args->is_array() || args->as_array().empty()) return "";
  const json::value* data = find(args->as_array()[0], "data");
  return data ? std::string(find_string(*data, "path").value_or("")) : "";
}

void spoil(std::vector<Tensor>& tensors, RankFaultKind kind) {
  if (kind == RankFaultKind::partial) tensors.resize(tensors.size() / 2);
  if (kind != RankFaultKind::wrong_shape) return;
  for (Tensor& tensor : tensors) {
    if (tensor.shape.size() != 2) continue;
    tensor.shape[0] /= 2;
    tensor.bytes.resize(tensor.bytes.size() / 2);
    return;
  }
}

// One rank's part of a save; `parts` are all ranks' shards as they should be.
Status write_shard(const std::string& directory, const ModelShape& shape, const std::vector<std::vector<Tensor>>& parts,
                   std::size_t rank, RankFaultKind fault) {
  std::error_code failed;
  std::filesystem::create_directories(directory, failed);
  if (failed) return Error{ErrorCode::storage_failed, fmt::format("{}: {}", directory, failed.message())};
  if (rank < parts.size()) {
    const std::string file = directory + "/" + shard_name(rank, parts.size());
    std::vector<Tensor> mine = parts[rank];
    spoil(mine, fault);
    std::string bytes = safetensors_bytes(mine);
    if (fault == RankFaultKind::truncated) bytes.resize(bytes.size() * 6 / 10);
    if (Status wrote = write_text(file, bytes); !wrote) return wrote;
  }
  if (fault == RankFaultKind::stray) {
    const std::string bytes = safetensors_bytes(seeded_model(shape, kStraySeed));
    if (Status wrote = write_text(directory + "/old.safetensors", bytes); !wrote) return wrote;
  }
  if (rank != 0) return {};
  if (Status wrote = write_model_files(directory, shape); !wrote) return wrote;
  return fault == RankFaultKind::no_index ? Status{} : write_index(directory, parts);
}

}  // namespace

// One rank's call, from its arrival to its answer.
struct Trainer::Save {
  std::size_t rank = 0;
  std::uint64_t number = 0;  // in the rank's log
  std::string path;
  std::optional<RankFault> fault;
  Responder responder;
  bool answered = false;

  bool has(RankFaultKind kind) const { return fault && fault->kind == kind; }
};

// The calls that belong together, once all are there.
struct Trainer::Collective {
  std::vector<std::shared_ptr<Save>> members;
  std::vector<std::vector<Tensor>> parts;
  std::size_t writing = 0;
  bool failed = false;
};

Trainer::Trainer(Loop& loop, Pool& pool, TrainerSettings settings)
    : loop_(loop),
      pool_(pool),
      settings_(std::move(settings)),
      model_(settings_.shape, settings_.seed, settings_.step_scale) {
  for (std::size_t rank = 0; rank < settings_.ranks; ++rank) ranks_.push_back(std::make_unique<Rank>());
}

Trainer::~Trainer() {
  for (const auto& rank : ranks_) {
    if (rank->server) rank->server->close(true);
  }
}

std::string Trainer::url(std::size_t rank) const {
  return fmt::format("http://{}:{}", settings_.host, port(rank));
}

Status Trainer::start() {
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (settings_.port != 0) ranks_[rank]->port = settings_.port + static_cast<int>(rank);
    if (Status opened = listen(rank); !opened) return wrap(fmt::format("rank {}", rank), opened.error());
  }
  return {};
}

Status Trainer::listen(std::size_t rank) {
  auto server = std::make_unique<HttpServer>(loop_, [this, rank](HttpRequest request, Responder responder) {
    handle(rank, std::move(request), std::move(responder));
  });
  HttpServer::Settings at;
  at.host = settings_.host;
  at.port = ranks_[rank]->port;
  if (Status opened = server->listen(at); !opened) return opened;
  ranks_[rank]->port = server->port();
  ranks_[rank]->server = std::move(server);
  return {};
}

void Trainer::refuse(std::size_t rank, Milliseconds how_long) {
  if (auto& server = ranks_[rank]->server) {
    server->close(true);
    loop_.post([old = std::shared_ptr<HttpServer>(std::move(server))] {});  // not inside its own callback
  }
  loop_.after(how_long, [this, token = std::weak_ptr(token_), rank] {
    if (token.expired() || ranks_[rank]->server) return;
    if (Status opened = listen(rank); !opened) refuse(rank, Milliseconds{10});
  });
}

void Trainer::add_fault(std::size_t rank, RankFault fault) {
  if (fault.kind != RankFaultKind::refuse) {
    ranks_[rank]->faults.push_back(std::move(fault));
    return;
  }
  const Milliseconds how_long = fault.delay.count() > 0 ? fault.delay : kRefuseDefault;
  loop_.after(kReplyFirst, [this, token = std::weak_ptr(token_), rank, how_long] {
    if (!token.expired()) refuse(rank, how_long);
  });
}

std::optional<RankFault> Trainer::take_fault(std::size_t rank) {
  auto& faults = ranks_[rank]->faults;
  if (faults.empty()) return std::nullopt;
  RankFault fault = faults.front();
  if (fault.times > 0 && --faults.front().times == 0) faults.erase(faults.begin());
  return fault;
}

void Trainer::handle(std::size_t rank, HttpRequest request, Responder responder) {
  const std::string path = request.target.substr(0, request.target.find('?'));
  const std::string action = request.method + " " + path;
  if (path.starts_with("/_tiny/")) {
    handle_tiny(rank, action, request, responder);
    return;
  }
  const std::uint64_t number = ranks_[rank]->log.begin(loop_.now(), request, "");
  const auto reply = [&](HttpResponse response) {
    ranks_[rank]->log.end(number, loop_.now(), response.status);
    responder.respond(std::move(response));
  };
  if (action == "POST /save") {
    save(rank, number, request, responder);
  } else if (action == "GET /health") {
    reply(flask(200, {{"rank", rank}, {"ready", true}, {"role", "train_worker"}, {"status", "healthy"}}));
  } else if (action == "GET /topology") {
    reply(flask(200, {{"rank", rank}, {"world_size", size()}}));
  } else if (action == "POST /set_version") {
    reply(flask(200, {{"result", nullptr}, {"status", "success"}}));
  } else if (action == "GET /get_version") {
    ranks_[rank]->queued.emplace_back(number, responder);
    answer_queued(rank);
  } else if (action == "POST /step") {
    auto body = parse_json(request.body.empty() ? "{}" : request.body, "request body");
    const std::int64_t count = body ? find_int(*body, "count").value_or(1) : 0;
    for (std::int64_t i = 0; i < std::min<std::int64_t>(count, 1000); ++i) model_.advance();
    reply(flask(200, {{"result", model_.step()}, {"status", "success"}}));
  } else {
    reply({404, {{"Content-Type", "text/html"}}, "<!doctype html>\n<title>404 Not Found</title>\n"});
  }
}

void Trainer::handle_tiny(std::size_t rank, const std::string& action, const HttpRequest& request,
                          const Responder& responder) {
  Rank& mine = *ranks_[rank];
  const auto ok = [&] { responder.respond(json_response(200, json::object{{"status", "ok"}})); };
  if (action == "POST /_tiny/faults") {
    auto body = parse_json(request.body, "fault");
    auto fault = body ? parse_rank_fault(*body) : Result<RankFault>(body.error());
    if (!fault) {
      responder.respond(json_response(400, json::object{{"error", fault.error().text()}}));
      return;
    }
    add_fault(rank, *std::move(fault));
    ok();
  } else if (action == "DELETE /_tiny/faults") {
    mine.faults.clear();
    ok();
  } else if (action == "GET /_tiny/log") {
    responder.respond(json_response(200, mine.log.listing()));
  } else if (action == "DELETE /_tiny/log") {
    mine.log.clear();
    ok();
  } else if (action == "GET /_tiny/state") {
    json::object state{{"rank", rank},
                       {"step", model_.step()},
                       {"saves", saves_},
                       {"waiting", mine.waiting.size()},
                       {"faults", mine.faults.size()}};
    responder.respond(json_response(200, state));
  } else {
    responder.respond(json_response(404, json::object{{"error", "no route '" + action + "' on a training rank"}}));
  }
}

// True if the fault ends the call here, outside the collective.
bool Trainer::fails_at_once(std::size_t rank, std::uint64_t number, const RankFault& fault,
                            const Responder& responder) {
  int status = 0;
  switch (fault.kind) {
    case RankFaultKind::status:
      status = fault.status;
      responder.respond(status == 500 ? internal_error(fault.message) : flask(status, {{"error", fault.message}}));
      break;
    case RankFaultKind::hang:
      ++ranks_[rank]->saving;  // its engine never comes out of it
      responder.hang();
      break;
    case RankFaultKind::reset:
      responder.reset();
      break;
    case RankFaultKind::garbage:
      status = 200;
      responder.respond({200, {{"Content-Type", "text/html"}}, "<html><body>it works</body></html>"});
      break;
    default:
      return false;
  }
  ranks_[rank]->log.end(number, loop_.now(), status);
  return true;
}

void Trainer::save(std::size_t rank, std::uint64_t number, const HttpRequest& request, const Responder& responder) {
  auto fault = take_fault(rank);
  if (fault && fails_at_once(rank, number, *fault, responder)) return;
  auto body = parse_json(request.body, "request body");
  const std::string path = body ? save_path(*body) : "";
  if (path.empty()) {
    ranks_[rank]->log.end(number, loop_.now(), 500);
    responder.respond(internal_error("'dict' object has no attribute 'path'"));
    return;
  }
  enter(std::make_shared<Save>(Save{rank, number, path, std::move(fault), responder}));
}

void Trainer::enter(std::shared_ptr<Save> entry) {
  ranks_[entry->rank]->waiting.push_back(entry);
  ++ranks_[entry->rank]->saving;
  if (settings_.collective_timeout.count() > 0) {
    loop_.after(settings_.collective_timeout, [this, token = std::weak_ptr(token_), entry] {
      if (token.expired() || entry->answered) return;
      std::erase(ranks_[entry->rank]->waiting, entry);
      answer(*entry, internal_error(fmt::format("rank {} timed out in the collective", entry->rank)));
      entry->answered = true;
    });
  }
  start_collectives();
}

// The calls of one save, oldest first, or nothing if some rank's is missing.
std::optional<std::vector<std::shared_ptr<Trainer::Save>>> Trainer::next_group() {
  for (const auto& first : ranks_[0]->waiting) {
    std::vector<std::shared_ptr<Save>> group;
    for (const auto& rank : ranks_) {
      const auto fits = [&](const auto& entry) {
        return settings_.pairing == TrainerSettings::Pairing::call || entry->path == first->path;
      };
      const auto found = std::find_if(rank->waiting.begin(), rank->waiting.end(), fits);
      if (found == rank->waiting.end()) break;
      group.push_back(*found);
    }
    if (group.size() < ranks_.size()) continue;
    for (const auto& entry : group) std::erase(ranks_[entry->rank]->waiting, entry);
    return group;
  }
  return std::nullopt;
}

void Trainer::start_collectives() {
  if (writing_) return;  // one engine thread a rank: the next collective waits
  if (auto group = next_group()) {
    writing_ = true;
    write_all(*std::move(group));
  }
}

void Trainer::write_all(std::vector<std::shared_ptr<Save>> group) {
  if (settings_.step_on_save) model_.advance();
  ++saves_;
  const auto collective = std::make_shared<Collective>();
  collective->members = std::move(group);
  if (!settings_.adapter) collective->parts = split_shards(model_.tensors(), ranks_.size());
  collective->writing = collective->members.size();
  for (const auto& entry : collective->members) {
    const auto status = std::make_shared<Status>();
    const auto done = [this, token = std::weak_ptr(token_), collective, entry, status] {
      if (!token.expired()) wrote(collective, entry, *status);
    };
    if (entry->has(RankFaultKind::write_error)) {
      *status = Error{ErrorCode::storage_failed, entry->fault->message};
      loop_.post(done);
      continue;
    }
    if (entry->has(RankFaultKind::silent)) {
      loop_.post(done);
      continue;
    }
    const auto job = [status, write = writer(*entry, collective)] { *status = write(); };
    const Milliseconds delay = entry->has(RankFaultKind::slow) ? entry->fault->delay : Milliseconds{0};
    loop_.after(delay, [this, token = std::weak_ptr(token_), job, done] {
      if (!token.expired()) pool_.run(job, done);
    });
  }
}

// What the rank does on the pool.
std::function<Status()> Trainer::writer(const Save& entry, const std::shared_ptr<Collective>& collective) const {
  const RankFaultKind kind = entry.fault ? entry.fault->kind : RankFaultKind::slow;
  if (!settings_.adapter) {
    return [collective, path = entry.path, rank = entry.rank, kind, shape = model_.shape()] {
      return write_shard(path, shape, collective->parts, rank, kind);
    };
  }
  if (entry.rank != 0) return [] { return Status{}; };
  return [path = entry.path, shape = model_.shape(), config = *settings_.adapter, seed = settings_.seed,
          step = model_.step(), kind] { return write_trained_adapter(path, shape, config, seed, step, kind); };
}

void Trainer::wrote(const std::shared_ptr<Collective>& collective, const std::shared_ptr<Save>& entry,
                    const Status& status) {
  --collective->writing;
  if (!status && !entry->answered) {
    // It skips the last barrier, so the others never leave theirs.
    collective->failed = true;
    entry->answered = true;
    answer(*entry, internal_error(status.error().text()));
  }
  if (collective->writing > 0) return;
  for (const auto& member : collective->members) {
    if (member->answered) continue;
    if (collective->failed) {
      // Kept where only the time-out finds it.
      if (settings_.collective_timeout.count() == 0) member->responder.hang();
      continue;
    }
    member->answered = true;
    answer_saved(*member);
  }
  writing_ = false;
  start_collectives();
}

void Trainer::left_save(std::size_t rank) {
  --ranks_[rank]->saving;
  answer_queued(rank);
}

void Trainer::answer_queued(std::size_t rank) {
  if (ranks_[rank]->saving > 0) return;
  for (const auto& [number, responder] : std::exchange(ranks_[rank]->queued, {})) {
    ranks_[rank]->log.end(number, loop_.now(), 200);
    responder.respond(flask(200, {{"result", model_.step()}, {"status", "success"}}));
  }
}

void Trainer::answer(const Save& entry, HttpResponse response) {
  ranks_[entry.rank]->log.end(entry.number, loop_.now(), response.status);
  entry.responder.respond(std::move(response));
  left_save(entry.rank);
}

void Trainer::answer_saved(const Save& entry) {
  if (entry.has(RankFaultKind::reset_after) || entry.has(RankFaultKind::hang_after)) {
    ranks_[entry.rank]->log.end(entry.number, loop_.now(), 0);
    if (entry.has(RankFaultKind::reset_after)) {
      entry.responder.reset();
    } else {
      entry.responder.hang();
    }
    left_save(entry.rank);
    return;
  }
  answer(entry, flask(200, {{"result", nullptr}, {"status", "success"}}));
}

}  // namespace weighlock::tiny
