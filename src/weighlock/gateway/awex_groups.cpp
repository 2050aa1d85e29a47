#include "weighlock/gateway/awex_groups.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "weighlock/awex/repair.hpp"
#include "weighlock/awex/report.hpp"
#include "weighlock/awex/serve.hpp"
#include "weighlock/core/check.hpp"
#include "weighlock/core/limits.hpp"
#include "weighlock/core/url.hpp"
#include "weighlock/runtime/log.hpp"

namespace weighlock {
namespace {

constexpr int kFirstMasterPort = 29'500;  // torch's own default, and where AReaL's gateway began to count
constexpr int kMasterPorts = 1'000;

Url url_of(const std::string& text) {
  Result<Url> url = parse_url(text);
  WEIGHLOCK_CHECK(url, "URLs are checked where they come in");
  return *std::move(url);
}

HttpResult timed_out(Milliseconds after) {
  return TransportError{TransportError::Kind::timeout, false, fmt::format("no answer within {} ms", after.count())};
}

bool is_bad_status(std::size_t, const HttpResult& result) {
  const HttpResponse* response = std::get_if<HttpResponse>(&result);
  return !response || response->status != 200;
}

}  // namespace

struct AwexGroups::Build {
  protocol::BuildGroup order;
  std::function<void(std::optional<Error>)> done;
  awex::Parallelism train, infer;
  awex::BringUp all;
  std::vector<std::string> store_urls;  // trainers, then workers: how each reaches us
  bool joined = false;                  // a bring-up was sent, so there may be something to leave

  std::size_t members() const { return order.trainers.size() + order.workers.size(); }
  const std::string& url(std::size_t i) const {
    const std::size_t trainers = order.trainers.size();
    return i < trainers ? order.trainers[i] : order.workers[i - trainers];
  }
  std::string who(std::size_t i) const {
    return fmt::format("{} {}", i < order.trainers.size() ? "trainer" : "worker", url(i));
  }
  std::vector<Request> each(const std::function<HttpRequest(std::size_t)>& make) const {
    std::vector<Request> out;
    for (std::size_t i = 0; i < members(); ++i) out.push_back({url(i), make(i)});
    return out;
  }
  // Inference ranks come first: an engine is told its index, a trainer all engines' ranks and its own.
  std::uint32_t transfer_rank(std::size_t i) const {
    const std::size_t trainers = order.trainers.size();
    if (i >= trainers) return static_cast<std::uint32_t>(i - trainers);
    return all.infer_world_size + static_cast<std::uint32_t>(i);
  }
};

AwexGroups::AwexGroups(Loop& loop, HttpClient& http, Pool& pool, MetaStore& meta, Settings settings)
    : loop_(loop), http_(http), pool_(pool), meta_(meta), settings_(std::move(settings)) {}

AwexGroups::~AwexGroups() {
  for (const auto& [call, id] : members_) http_.cancel(id);
}

HttpClient::CallId AwexGroups::send(const std::string& url, HttpRequest request, Milliseconds deadline,
                                    std::function<void(HttpResult)> done) {
  HttpCallOptions options;
  options.deadline = deadline;
  options.fresh_connection = true;  // never repeated, so a connection that may be dying is not good enough
  options.never_waits = true;       // no member is out of a collective before all are in
  return http_.send(url_of(url), std::move(request), options,
                    [alive = std::weak_ptr(alive_), done = std::move(done)](HttpResult result) {
                      if (!alive.expired()) done(std::move(result));
                    });
}

void AwexGroups::ask_all(std::vector<Request> requests, Failed failed, std::function<void(Answers)> done) {
  struct Round {
    Answers answers;
    std::vector<std::optional<HttpClient::CallId>> calls;
    std::size_t open = 0;
    std::optional<Loop::TimerId> grace;
    Failed failed;
    std::function<void(Answers)> done;
  };
  const auto round = std::make_shared<Round>();
  round->answers.resize(requests.size(), timed_out(settings_.failure_grace));
  round->calls.resize(requests.size());
  round->open = requests.size();
  round->failed = std::move(failed);
  round->done = std::move(done);
  const auto conclude = [this, round] {
    if (!round->done) return;
    if (round->grace) loop_.cancel(*round->grace);
    for (auto& call : round->calls) {
      if (call) http_.cancel(*std::exchange(call, std::nullopt));
    }
    std::exchange(round->done, nullptr)(std::move(round->answers));
  };
  for (std::size_t i = 0; i < requests.size(); ++i) {
    round->calls[i] =
        send(requests[i].url, std::move(requests[i].request), settings_.init_timeout,
             [this, round, conclude, i](HttpResult result) {
               if (!round->done || !round->calls[i]) return;
               round->calls[i].reset();
               const bool bad = round->failed(i, result);
               round->answers[i] = std::move(result);
               if (--round->open == 0) return conclude();
               if (bad && !round->grace)
                 round->grace = loop_.after(settings_.failure_grace, [conclude, alive = std::weak_ptr(alive_), round] {
                   if (alive.expired()) return;
                   round->grace.reset();
                   conclude();
                 });
             });
  }
}

// --- building

void AwexGroups::build(protocol::BuildGroup order, std::function<void(std::optional<Error>)> done) {
  const auto made = std::make_shared<Build>();
  made->order = std::move(order);
  made->done = std::move(done);
  when_free(made, [this, made] { begin(made); });
}

void AwexGroups::when_free(const std::shared_ptr<Build>& build, std::function<void()> next) {
  const auto& trainers = build->order.trainers;
  const bool waits = std::any_of(trainers.begin(), trainers.end(), [&](const std::string& url) {
    const auto other = built_.find(url);
    return leaving_.contains(url) || (other != built_.end() && other->second != build.get());
  });
  if (waits) return waiting_.emplace_back(build, std::move(next)), void();
  for (const std::string& url : trainers) built_[url] = build.get();
  next();
}

void AwexGroups::someone_is_free() {
  for (auto& [build, next] : std::exchange(waiting_, {})) when_free(build, std::move(next));
}

void AwexGroups::ended(const std::shared_ptr<Build>& build, std::optional<Error> error) {
  for (const std::string& url : build->order.trainers) built_.erase(url);
  build->done(std::move(error));
  someone_is_free();
}

void AwexGroups::begin(const std::shared_ptr<Build>& build) {
  // The first of each side speaks for it.
  std::vector<Request> first{{build->order.trainers.front(), awex::parallelism_request()},
                             {build->order.workers.front(), awex::parallelism_request()}};
  ask_all(std::move(first), is_bad_status, [this, build](const Answers& answers) { report(build, answers); });
}

void AwexGroups::report(const std::shared_ptr<Build>& build, const Answers& answers) {
  Result<awex::Parallelism> train = awex::read_parallelism(build->who(0), answers[0]);
  if (!train) return fail(build, train.error().code, train.error().text());
  Result<awex::Parallelism> infer = awex::read_parallelism(build->who(build->order.trainers.size()), answers[1]);
  if (!infer) return fail(build, infer.error().code, infer.error().text());
  build->train = *std::move(train);
  build->infer = *std::move(infer);
  awex::BringUp& all = build->all;
  const auto engines = static_cast<std::uint32_t>(build->order.workers.size());
  const std::uint32_t infer_ranks = build->infer.world_size * engines;
  all.pair_name = build->order.name;
  all.engines = engines;
  all.train_world_size = build->train.world_size;
  all.world_size = infer_ranks + all.train_world_size;
  all.infer_world_size = infer_ranks;
  all.master_addr = build->order.awex.master_addr;
  if (all.master_addr.empty()) all.master_addr = url_of(build->order.workers.front()).host;
  all.master_port = build->order.awex.master_port;
  if (all.master_port == 0)
    all.master_port = kFirstMasterPort + static_cast<int>(generation_++ % static_cast<std::uint64_t>(kMasterPorts));
  all.admin_api_key = settings_.admin_api_key;
  const HttpRequest of_trainer = awex::train_meta_request(build->train, build->infer, infer_ranks);
  const HttpRequest of_worker = awex::infer_meta_request(build->train, build->infer);
  ask_all(build->each([&](std::size_t i) { return i < build->order.trainers.size() ? of_trainer : of_worker; }),
          is_bad_status, [this, build](Answers told) { merge(build, std::move(told)); });
}

// Tens of MB, so not on the loop.
void AwexGroups::merge(const std::shared_ptr<Build>& build, Answers answers) {
  ErrorCode code = ErrorCode::worker_failed;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (is_bad_status(i, answers[i])) {
      std::string text = failures(*build, answers, "POST /awex/report_weight_meta", code);
      return fail(build, code, std::move(text));
    }
    const std::string& local = std::get<HttpResponse>(answers[i]).local_address;
    build->store_urls.push_back(settings_.kv_store_url.empty()
                                    ? awex::store_url(local, settings_.port ? settings_.port() : 0)
                                    : settings_.kv_store_url);
  }
  auto told = std::make_shared<Answers>(std::move(answers));
  auto made = std::make_shared<Result<awex::Served>>(Error{});
  const awex::Topology topology{build->train.world_size, build->infer.world_size, build->all.engines};
  pool_.run(
      [build, told, made, topology] {
        std::vector<awex::Report> train;
        std::vector<awex::Report> infer;
        const std::size_t trainers = build->order.trainers.size();
        for (std::size_t i = 0; i < told->size(); ++i) {
          const bool is_train = i < trainers;
          const awex::Origin origin{is_train ? awex::Side::train : awex::Side::infer, is_train ? i : i - trainers,
                                    build->url(i)};
          Result<awex::Report> read = awex::parse_report(origin, std::get<HttpResponse>((*told)[i]).body);
          if (!read) {
            *made = std::move(read).error();
            return;
          }
          (is_train ? train : infer).push_back(*std::move(read));
        }
        Result<awex::Repaired> repaired = awex::repair(train, infer, topology);
        if (!repaired) {
          *made = std::move(repaired).error();
          return;
        }
        *made = awex::serialise(*repaired);
      },
      [this, alive = std::weak_ptr(alive_), build, made] {
        if (alive.expired()) return;
        if (!*made) return fail(build, made->error().code, made->error().text());
        const std::string& name = build->order.name;
        Status stored =
            meta_.put(name, "training_params_meta", std::make_shared<const std::string>(std::move((*made)->train)));
        if (stored)
          stored = meta_.put(name, "infer_params_meta", std::make_shared<const std::string>(std::move((*made)->infer)));
        if (!stored) return fail(build, stored.error().code, stored.error().text());
        when_free(build, [this, build] { bring_up(build); });
      });
}

void AwexGroups::bring_up(const std::shared_ptr<Build>& build) {
  build->joined = true;
  for (const std::string& url : build->order.trainers) joined_[url] = build->order.name;
  const bool colocate = build->order.awex.colocate;
  const std::string target =
      colocate ? "POST /awex/init_colocate_weight_update" : "POST /awex/init_weights_update_group";
  auto requests = build->each([&](std::size_t i) {
    return colocate ? awex::init_colocate_request(build->all, build->store_urls[i], build->transfer_rank(i))
                    : awex::init_request(build->all, build->store_urls[i], build->transfer_rank(i));
  });
  ask_all(
      std::move(requests),
      [target](std::size_t, const HttpResult& result) { return !awex::classify(target, result).ok(); },
      [this, build, target, colocate](const Answers& answers) {
        ErrorCode code = ErrorCode::worker_failed;
        if (std::string text = failures(*build, answers, target, code); !text.empty())
          return fail(build, code, std::move(text));
        if (colocate) return ended(build, std::nullopt);
        warm_up(build);
      });
}

void AwexGroups::warm_up(const std::shared_ptr<Build>& build) {
  constexpr const char* kTarget = "POST /awex/batch_isend_irecv";
  ask_all(
      build->each([&](std::size_t) { return awex::warm_up_request(build->all.world_size); }),
      [](std::size_t, const HttpResult& result) { return !awex::classify(kTarget, result).ok(); },
      [this, build](const Answers& answers) {
        ErrorCode code = ErrorCode::worker_failed;
        if (std::string text = failures(*build, answers, kTarget, code); !text.empty())
          return fail(build, code, std::move(text));
        ended(build, std::nullopt);
      });
}

std::string AwexGroups::failures(const Build& build, const Answers& answers, std::string_view target,
                                 ErrorCode& code) const {
  std::string text;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const awex::Answer answer = awex::classify(target, answers[i]);
    const bool is_meta = target.ends_with("report_weight_meta");  // its own status is read with the rest of it
    if (answer.ok() || (is_meta && !is_bad_status(i, answers[i]))) continue;
    if (text.empty()) code = answer.code;
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", build.who(i), answer.text);
  }
  return text;
}

void AwexGroups::fail(const std::shared_ptr<Build>& build, ErrorCode code, std::string text) {
  meta_.clear(build->order.name);
  if (build->joined && !build->order.awex.colocate) teardown(build->order.name, build->order.trainers);
  ended(build, Error{code, std::move(text), nullptr});
}

// --- taking apart

void AwexGroups::drop(const protocol::DropGroup& order) {
  meta_.clear(order.name);
  if (!order.awex.colocate) teardown(order.name, order.trainers);
}

// A rank that sits in a collective answers when that has ended.
void AwexGroups::teardown(const std::string& name, const std::vector<std::string>& trainers) {
  for (const std::string& url : trainers) {
    const auto last = joined_.find(url);
    if (last == joined_.end() || last->second != name) continue;
    joined_.erase(last);
    leaving_.insert(url);
    send(url, awex::teardown_request(), settings_.init_timeout, [this, url](const HttpResult& result) {
      const awex::Answer answer = awex::classify("POST /awex/teardown", result);
      if (!answer.ok()) log_warn("trainer {} did not leave its transfer group: {}", url, answer.text);
      leaving_.erase(leaving_.find(url));
      someone_is_free();
    });
  }
}

}  // namespace weighlock
