#include "weighlock/gateway/awex_groups.hpp"

#include <utility>

#include "weighlock/awex/calls.hpp"
#include "weighlock/awex/colocated.hpp"
#include "weighlock/awex/predict.hpp"
#include "weighlock/gateway/awex_members.hpp"
#include "weighlock/runtime/log.hpp"

namespace weighlock {

namespace {

// What is served corrupts silently if it is wrong, so what workers will make of it is proven first.
Status prove_lists(const awex::Repaired& lists, const std::string& group, std::size_t pairs_max) {
  const std::uint64_t pairs = awex::pairs_of_parts(lists);
  if (pairs > pairs_max) {
    log_warn("group {}: its plan was not proven: {} pairs of sending and receiving parts, and up to {} are looked at",
             group, pairs, pairs_max);
    return {};
  }
  Status proven = awex::prove(lists);
  if (proven) return proven;
  return wrap(
      "no worker was brought up, since the metadata for them would be wrong; it is the gateway's mistake, so please "
      "report it",
      proven.error());
}

}  // namespace

struct AwexGroups::Build {
  protocol::BuildGroup order;
  std::function<void(protocol::GroupBuilt)> done;
  AwexMembers members;
  awex::BringUp all;
  std::vector<std::string> store_urls;  // by member
  std::vector<std::uint32_t> numbers;   // of engines in the group, by worker
  bool joined = false;                  // a bring-up was sent, so there may be something to leave

  // Inference ranks come first: an engine is told its number, a trainer all engines' ranks and its own.
  std::uint32_t transfer_rank(std::size_t i) const {
    const std::size_t trainers = members.trainers.size();
    if (i >= trainers) return numbers[i - trainers];
    return all.infer_world_size + static_cast<std::uint32_t>(i);
  }
};

AwexGroups::AwexGroups(Loop& loop, HttpClient& http, Pool& pool, MetaStore& meta, Settings settings)
    : pool_(pool),
      meta_(meta),
      admin_api_key_(std::move(settings.admin_api_key)),
      proven_pairs_max_(settings.proven_pairs_max),
      put_right_(std::move(settings.put_right)),
      calls_(loop, http, {settings.init_timeout, settings.failure_grace, settings.report_bytes_max}),
      trainers_(loop, calls_),
      reports_(loop, pool, calls_,
               {std::move(settings.kv_store_url), std::move(settings.host), std::move(settings.port),
                settings.reports_bytes_max}),
      transfers_(calls_, trainers_, meta) {}

void AwexGroups::build(protocol::BuildGroup order, std::function<void(protocol::GroupBuilt)> done) {
  const auto build = std::make_shared<Build>();
  build->order = std::move(order);
  build->done = std::move(done);
  build->members = {build->order.trainers, build->order.workers};
  trainers_.when_free(build->order.ask, build->order.trainers, [this, build] {
    reports_.gather(build->members, build->order.awex.colocate,
                    [this, build](Result<AwexReported> reported, std::vector<protocol::RefusedWorker> refused) {
                      if (!reported)
                        return fail(build, StepFailure{std::move(reported).error(), false, std::move(refused)});
                      put_right(build, *std::move(reported));
                    });
  });
}

void AwexGroups::put_right(const BuildRef& build, AwexReported reported) {
  const awex::Topology topology = reported.topology;
  build->store_urls = std::move(reported.store_urls);
  build->numbers = std::move(reported.numbers);
  build->all = {.pair_name = build->order.name,
                .master_addr = build->order.awex.master_addr,
                .master_port = build->order.awex.master_port,
                .world_size = topology.world(),
                .infer_world_size = topology.infer_ranks(),
                .train_world_size = topology.train_ranks,
                .engines = topology.engines,
                .admin_api_key = admin_api_key_};
  auto reports = std::make_shared<AwexReported>(std::move(reported));
  auto made = std::make_shared<Result<awex::Served>>(Error{});
  pool_.run(
      [reports, made, put_right = put_right_, pairs_max = proven_pairs_max_, bytes_max = meta_.list_bytes_max(),
       name = build->order.name] {
        Result<awex::Repaired> repaired = put_right(reports->train, reports->infer, reports->topology);
        *reports = {};
        if (!repaired)
          *made = std::move(repaired).error();
        else if (Status reached = awex::check_reach(*repaired); !reached)
          *made = reached.error();
        else if (Status proven = prove_lists(*repaired, name, pairs_max); !proven)
          *made = proven.error();
        else
          *made = awex::serialise(*repaired, bytes_max);
      },
      [this, alive = std::weak_ptr(alive_), build, made] {
        if (alive.expired()) return;
        if (!*made) return fail(build, StepFailure{std::move(*made).error()});
        if (Status stored = store(build->order.name, **std::move(made)); !stored)
          return fail(build, StepFailure{stored.error()});
        trainers_.when_free(build->order.ask, build->order.trainers, [this, build] { bring_up(build); });
      });
}

Status AwexGroups::store(const std::string& name, awex::Served lists) {
  Status stored =
      meta_.put_list(name, "training_params_meta", std::make_shared<const std::string>(std::move(lists.train)));
  if (!stored) return stored;
  return meta_.put_list(name, "infer_params_meta", std::make_shared<const std::string>(std::move(lists.infer)));
}

void AwexGroups::bring_up(const BuildRef& build) {
  build->joined = true;
  trainers_.joining(build->order.name, build->order.trainers);
  const bool colocate = build->order.awex.colocate;
  const std::string target =
      colocate ? "POST /awex/init_colocate_weight_update" : "POST /awex/init_weights_update_group";
  calls_.ask_all(
      build->members.each([&](std::size_t i) {
        return colocate ? awex::init_colocate_request(build->all, build->store_urls[i], build->transfer_rank(i))
                        : awex::init_request(build->all, build->store_urls[i], build->transfer_rank(i));
      }),
      [target](std::size_t, const HttpResult& result) { return !awex::classify(target, result).ok(); },
      [this, build, target, colocate](const AwexCalls::Answers& answers) {
        if (auto failure = failure_of(build->members, answers, target)) return fail(build, *std::move(failure));
        if (colocate) return stands(build);
        warm_up(build);
      });
}

void AwexGroups::warm_up(const BuildRef& build) {
  constexpr const char* kTarget = "POST /awex/batch_isend_irecv";
  calls_.ask_all(
      build->members.each([&](std::size_t) { return awex::warm_up_request(build->all.world_size); }),
      [](std::size_t, const HttpResult& result) { return !awex::classify(kTarget, result).ok(); },
      [this, build](const AwexCalls::Answers& answers) {
        if (auto failure = failure_of(build->members, answers, kTarget)) return fail(build, *std::move(failure));
        stands(build);
      });
}

void AwexGroups::stands(const BuildRef& build) {
  build->done(protocol::GroupBuilt{build->order.ask, std::nullopt, false});
  trainers_.give_back(build->order.ask, build->order.trainers);
}

void AwexGroups::fail(const BuildRef& build, StepFailure failure) {
  meta_.clear(build->order.name);
  if (build->joined && !build->order.awex.colocate) trainers_.leave(build->order.name, build->order.trainers);
  build->done(
      protocol::GroupBuilt{build->order.ask, std::move(failure.error), failure.port_taken, std::move(failure.refused)});
  trainers_.give_back(build->order.ask, build->order.trainers);
}

void AwexGroups::drop(const protocol::DropGroup& order) {
  meta_.clear(order.name);
  if (!order.awex.colocate) trainers_.leave(order.name, order.trainers);
}

}  // namespace weighlock
