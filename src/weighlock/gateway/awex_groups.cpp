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
#include "weighlock/protocol/awex_blame.hpp"
#include "weighlock/runtime/log.hpp"

namespace weighlock {
namespace {

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
  std::function<void(protocol::GroupBuilt)> done;
  awex::Parallelism train, infer;
  awex::BringUp all;
  std::vector<std::string> store_urls;  // trainers, then workers: how each reaches us
  std::optional<Error> out_of_reach;    // a worker that can't reach us
  // As `store_urls`: what each reported; none while it is read.
  std::vector<std::optional<Result<awex::Report>>> reports;
  std::size_t reading = 0;         // on the pool
  std::function<void()> all_read;  // runs when there are none any more
  bool joined = false;             // a bring-up was sent, so there may be something to leave

  std::size_t members() const { return order.trainers.size() + order.workers.size(); }
  bool is_trainer(std::size_t i) const { return i < order.trainers.size(); }
  const std::string& url(std::size_t i) const {
    const std::size_t trainers = order.trainers.size();
    return i < trainers ? order.trainers[i] : order.workers[i - trainers];
  }
  std::string who(std::size_t i) const { return fmt::format("{} {}", is_trainer(i) ? "trainer" : "worker", url(i)); }
  std::vector<Request> each(const std::function<HttpRequest(std::size_t)>& make) const {
    std::vector<Request> out;
    for (std::size_t i = 0; i < members(); ++i) out.push_back({url(i), make(i), nullptr});
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
    : loop_(loop),
      http_(http),
      pool_(pool),
      meta_(meta),
      settings_(std::move(settings)),
      room_(std::make_shared<AnswerRoom>(loop, settings_.reports_bytes_max)) {}

AwexGroups::~AwexGroups() {
  for (const auto& [call, id] : members_) http_.cancel(id);
  for (const auto& [id, leaving] : leavings_) {
    if (leaving.timer) loop_.cancel(*leaving.timer);
  }
}

HttpClient::CallId AwexGroups::send(Request request, Milliseconds deadline, std::function<void(HttpResult)> done) {
  HttpCallOptions options;
  options.deadline = deadline;
  options.fresh_connection = true;  // never repeated, so a connection that may be dying is not good enough
  options.never_waits = true;       // no member is out of a collective before all are in
  if (request.place) options.answer_bytes_max = settings_.report_bytes_max;
  options.answer_place = std::move(request.place);
  return http_.send(url_of(request.url), std::move(request.request), options,
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
        send(std::move(requests[i]), settings_.init_timeout, [this, round, conclude, i](HttpResult result) {
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

void AwexGroups::build(protocol::BuildGroup order, std::function<void(protocol::GroupBuilt)> done) {
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
  std::vector<std::uint64_t> over;
  for (const auto& [id, leaving] : leavings_) {
    if (still_leaving(leaving.trainers).empty()) over.push_back(id);
  }
  for (const std::uint64_t id : over) end_leaving(id);
}

void AwexGroups::ended(const std::shared_ptr<Build>& build, std::optional<Error> error, bool port_taken) {
  for (const std::string& url : build->order.trainers) built_.erase(url);
  build->done(protocol::GroupBuilt{build->order.ask, std::move(error), port_taken});
  someone_is_free();
}

// The first of each side speaks for it. Where devices are shared all are asked, for theirs.
void AwexGroups::begin(const std::shared_ptr<Build>& build) {
  std::vector<Request> requests;
  if (build->order.awex.colocate) {
    requests = build->each([](std::size_t) { return awex::parallelism_request(true); });
  } else {
    requests.push_back({build->order.trainers.front(), awex::parallelism_request(false), nullptr});
    requests.push_back({build->order.workers.front(), awex::parallelism_request(false), nullptr});
  }
  ask_all(std::move(requests), is_bad_status, [this, build](const Answers& answers) { report(build, answers); });
}

void AwexGroups::report(const std::shared_ptr<Build>& build, const Answers& answers) {
  const std::size_t trainers = build->order.trainers.size();
  std::vector<awex::DeviceOf> devices;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const std::size_t member = build->order.awex.colocate || i == 0 ? i : trainers;
    Result<awex::Parallelism> read = awex::read_parallelism(build->who(member), answers[i]);
    if (!read) return fail(build, read.error());
    devices.push_back({build->who(member), build->is_trainer(member), read->device});
    if (member == 0)
      build->train = *std::move(read);
    else if (member == trainers)
      build->infer = *std::move(read);
  }
  if (build->order.awex.colocate) {
    if (const Status shared = awex::check_devices(devices); !shared) return fail(build, shared.error());
  }
  awex::BringUp& all = build->all;
  const auto engines = static_cast<std::uint32_t>(build->order.workers.size());
  const std::uint32_t infer_ranks = build->infer.world_size * engines;
  all.pair_name = build->order.name;
  all.engines = engines;
  all.train_world_size = build->train.world_size;
  all.world_size = infer_ranks + all.train_world_size;
  all.infer_world_size = infer_ranks;
  all.master_addr = build->order.awex.master_addr;
  all.master_port = build->order.awex.master_port;
  all.admin_api_key = settings_.admin_api_key;
  ask_for_metadata(build);
}

void AwexGroups::ask_for_metadata(const std::shared_ptr<Build>& build) {
  const HttpRequest of_trainer = awex::train_meta_request(build->train, build->infer, build->all.infer_world_size);
  const HttpRequest of_worker = awex::infer_meta_request(build->train, build->infer);
  std::vector<Request> requests =
      build->each([&](std::size_t i) { return build->is_trainer(i) ? of_trainer : of_worker; });
  for (Request& request : requests) request.place = room_->place();
  std::vector<std::shared_ptr<AnswerRoom::Place>> places;
  for (const Request& request : requests) places.push_back(request.place);
  build->reports.resize(build->members());
  build->store_urls.resize(build->members());
  ask_all(
      std::move(requests),
      [this, build, places = std::move(places)](std::size_t i, HttpResult& result) mutable {
        return !take_report(build, i, result, std::move(places[i]));
      },
      [this, build](const Answers& told) { reported(build, told); });
}

Result<std::string> AwexGroups::store_url_for(const Build& build, std::size_t member, const std::string& local) const {
  if (!settings_.kv_store_url.empty()) return settings_.kv_store_url;
  const int port = settings_.port ? settings_.port() : 0;
  const bool all_of_four = settings_.host == "0.0.0.0", all = settings_.host == "::";
  const bool is_six = local.find(':') != std::string::npos;
  const auto is_loopback = [](const std::string& address) { return address == "::1" || address.starts_with("127."); };
  const bool reachable = all || (all_of_four ? !is_six : !is_loopback(settings_.host) || is_loopback(local));
  if (reachable) return awex::store_url(all || all_of_four ? local : settings_.host, port);
  return Error{ErrorCode::invalid_argument,
               fmt::format("{} is reached from {}, and the gateway listens at {} only{}, so it can't read the metadata "
                           "here: start the gateway with another --host (:: is every address), or give the address by "
                           "which workers reach it with --kv-store-url",
                           build.who(member), local, settings_.host, is_six ? ", not on IPv6" : ""),
               nullptr};
}

// Tens of MB, so it is read on the pool, as soon as it is there; then its bytes go, and others have their place.
bool AwexGroups::take_report(const std::shared_ptr<Build>& build, std::size_t member, HttpResult& result,
                             std::shared_ptr<AnswerRoom::Place> place) {
  if (is_bad_status(member, result)) return false;
  HttpResponse& response = std::get<HttpResponse>(result);
  Result<std::string> store = store_url_for(*build, member, response.local_address);
  if (store)
    build->store_urls[member] = *std::move(store);
  else if (!build->out_of_reach)
    build->out_of_reach = store.error();
  const std::size_t trainers = build->order.trainers.size();
  const bool is_trainer = build->is_trainer(member);
  awex::Origin origin{is_trainer ? awex::Side::train : awex::Side::infer, is_trainer ? member : member - trainers,
                      build->url(member)};
  auto body = std::make_shared<std::string>(std::exchange(response.body, {}));
  auto read = std::make_shared<Result<awex::Report>>(Error{});
  ++build->reading;
  pool_.run(
      [origin = std::move(origin), body, read] {
        *read = awex::parse_report(origin, *body);
        std::string().swap(*body);
      },
      [this, alive = std::weak_ptr(alive_), build, member, read, place = std::move(place)] {
        if (alive.expired()) return;
        build->reports[member] = std::move(*read);
        if (--build->reading == 0 && build->all_read) std::exchange(build->all_read, nullptr)();
      });
  return true;
}

void AwexGroups::reported(const std::shared_ptr<Build>& build, const Answers& answers) {
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (!is_bad_status(i, answers[i])) continue;
    std::optional<Failure> failure = failure_of(*build, answers, "POST /awex/report_weight_meta");
    return fail(build, std::move(failure->error));
  }
  if (build->out_of_reach) return fail(build, *build->out_of_reach);
  if (build->reading == 0) return merge(build);
  build->all_read = [this, waits = std::weak_ptr(build)] {
    if (const auto whole = waits.lock()) merge(whole);
  };
}

void AwexGroups::merge(const std::shared_ptr<Build>& build) {
  for (const auto& report : build->reports) {
    if (!*report) return fail(build, report->error());
  }
  auto made = std::make_shared<Result<awex::Served>>(Error{});
  const awex::Topology topology{build->train.world_size, build->infer.world_size, build->all.engines};
  pool_.run(
      [build, made, topology] {
        std::vector<awex::Report> train;
        std::vector<awex::Report> infer;
        const std::size_t trainers = build->order.trainers.size();
        for (std::size_t i = 0; i < build->reports.size(); ++i)
          (i < trainers ? train : infer).push_back(*std::move(*build->reports[i]));
        build->reports.clear();
        Result<awex::Repaired> repaired = awex::repair(train, infer, topology);
        if (!repaired) {
          *made = std::move(repaired).error();
          return;
        }
        *made = awex::serialise(*repaired);
      },
      [this, alive = std::weak_ptr(alive_), build, made] {
        if (alive.expired()) return;
        if (!*made) return fail(build, made->error());
        const std::string& name = build->order.name;
        Status stored =
            meta_.put(name, "training_params_meta", std::make_shared<const std::string>(std::move((*made)->train)));
        if (stored)
          stored = meta_.put(name, "infer_params_meta", std::make_shared<const std::string>(std::move((*made)->infer)));
        if (!stored) return fail(build, stored.error());
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
        if (std::optional<Failure> failure = failure_of(*build, answers, target))
          return fail(build, std::move(failure->error), failure->port_taken);
        if (colocate) return ended(build, std::nullopt, false);
        warm_up(build);
      });
}

void AwexGroups::warm_up(const std::shared_ptr<Build>& build) {
  constexpr const char* kTarget = "POST /awex/batch_isend_irecv";
  ask_all(
      build->each([&](std::size_t) { return awex::warm_up_request(build->all.world_size); }),
      [](std::size_t, const HttpResult& result) { return !awex::classify(kTarget, result).ok(); },
      [this, build](const Answers& answers) {
        if (std::optional<Failure> failure = failure_of(*build, answers, kTarget))
          return fail(build, std::move(failure->error), failure->port_taken);
        ended(build, std::nullopt, false);
      });
}

std::optional<AwexGroups::Failure> AwexGroups::failure_of(const Build& build, const Answers& answers,
                                                          std::string_view target) const {
  std::vector<protocol::MemberEnd> ends;
  std::optional<ErrorCode> of_first, of_silent, of_others;
  bool port_taken = false;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const awex::Answer answer = awex::classify(target, answers[i]);
    const bool is_meta = target.ends_with("report_weight_meta");  // its own status is read with the rest of it
    if (answer.ok() || (is_meta && !is_bad_status(i, answers[i]))) continue;
    const TransportError* error = std::get_if<TransportError>(&answers[i]);
    const bool silent = error && error->kind == TransportError::Kind::timeout && !error->nothing_sent;
    auto& first = silent ? of_silent : answer.blames_a_peer ? of_others : of_first;
    if (!first) first = answer.code;
    port_taken = port_taken || answer.port_taken;
    ends.push_back({build.who(i), answer.text, silent, answer.blames_a_peer});
  }
  if (ends.empty()) return std::nullopt;
  const ErrorCode code = of_first ? *of_first : of_silent ? *of_silent : *of_others;
  return Failure{Error{code, protocol::blame_text(std::move(ends)), nullptr}, port_taken};
}

void AwexGroups::fail(const std::shared_ptr<Build>& build, Error error, bool port_taken) {
  meta_.clear(build->order.name);
  if (build->joined && !build->order.awex.colocate) teardown(build->order.name, build->order.trainers);
  ended(build, std::move(error), port_taken);
}

// --- taking apart

void AwexGroups::drop(const protocol::DropGroup& order) {
  meta_.clear(order.name);
  if (!order.awex.colocate) teardown(order.name, order.trainers);
}

std::vector<std::string> AwexGroups::still_leaving(const std::vector<std::string>& trainers) const {
  std::vector<std::string> out;
  for (const std::string& url : trainers) {
    if (leaving_.contains(url)) out.push_back(url);
  }
  return out;
}

void AwexGroups::when_left(std::vector<std::string> trainers, Milliseconds at_most,
                           std::function<void(const std::vector<std::string>& still)> then) {
  if (still_leaving(trainers).empty()) return then({});
  const std::uint64_t id = next_leaving_++;
  Leaving& leaving = leavings_[id];
  leaving.trainers = std::move(trainers);
  leaving.then = std::move(then);
  leaving.timer = loop_.after(at_most, [this, id] {
    leavings_.at(id).timer.reset();
    end_leaving(id);
  });
}

void AwexGroups::end_leaving(std::uint64_t id) {
  auto node = leavings_.extract(id);
  if (node.empty()) return;
  Leaving& leaving = node.mapped();
  if (leaving.timer) loop_.cancel(*leaving.timer);
  leaving.then(still_leaving(leaving.trainers));
}

// A rank that sits in a collective answers when that has ended.
void AwexGroups::teardown(const std::string& name, const std::vector<std::string>& trainers) {
  for (const std::string& url : trainers) {
    const auto last = joined_.find(url);
    if (last == joined_.end() || last->second != name) continue;
    joined_.erase(last);
    leaving_.insert(url);
    send({url, awex::teardown_request(), nullptr}, settings_.init_timeout, [this, url](const HttpResult& result) {
      const awex::Answer answer = awex::classify("POST /awex/teardown", result);
      if (!answer.ok()) log_warn("trainer {} did not leave its transfer group: {}", url, answer.text);
      leaving_.erase(leaving_.find(url));
      someone_is_free();
    });
  }
}

}  // namespace weighlock
