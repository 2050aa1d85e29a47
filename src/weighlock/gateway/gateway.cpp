#include "weighlock/gateway/gateway.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "weighlock/core/limits.hpp"
#include "weighlock/core/url.hpp"
#include "weighlock/engines/dialect.hpp"
#include "weighlock/gateway/api/context.hpp"
#include "weighlock/gateway/api/openapi.hpp"
#include "weighlock/gateway/ended_text.hpp"
#include "weighlock/gateway/executor.hpp"
#include "weighlock/gateway/state_at_start.hpp"
#include "weighlock/gateway/told.hpp"
#include "weighlock/io/file_system.hpp"
#include "weighlock/journal/memory_journal.hpp"
#include "weighlock/journal/sqlite_journal.hpp"
#include "weighlock/net/socket.hpp"
#include "weighlock/runtime/log.hpp"
#include "weighlock/runtime/random.hpp"

namespace weighlock {
namespace {

constexpr std::size_t kStorageThreads =
    4;  // a digest at a time is the disk's speed; prepare and seal don't wait behind it
constexpr std::size_t kEpochThreads = 2;    // one mount that hangs isn't all
constexpr Milliseconds kAnswersFlush{100};  // answers given in the last moment leave the socket's buffers

const protocol::Dialects& dialects() {
  static const protocol::Dialects kDialects{traits(DialectKind::sglang), traits(DialectKind::vllm)};
  return kDialects;
}

protocol::Policy default_policy(const GatewaySettings& settings) {
  protocol::Policy out;
  out.deadlines.save = std::max(out.deadlines.save, settings.update_timeout);
  out.deadlines.load = std::max(out.deadlines.load, settings.update_timeout);
  return out;
}

Result<std::unique_ptr<Journal>> open_journal(const std::string& state_dir, int holder) {
  if (state_dir.empty()) return std::unique_ptr<Journal>(std::make_unique<MemoryJournal>());
  SqliteJournal::Settings settings;
  settings.directory = state_dir;
  settings.holder = holder;
  Result<std::unique_ptr<SqliteJournal>> opened = SqliteJournal::open(std::move(settings));
  if (!opened) return std::move(opened).error();
  return std::unique_ptr<Journal>(*std::move(opened));
}

}  // namespace

// Calls to workers at a time, as far as the limit of open files allows.
std::size_t calls_at_most() {
  const std::size_t descriptors = raise_descriptor_limit();
  const DescriptorShares shares = descriptor_shares(descriptors);
  if (shares.calls < limits::kWorkersPerPairMax)
    log_warn(
        "only {} files may be open, so at most {} workers are called at a time and the others wait; raise the limit "
        "(ulimit -n, LimitNOFILE=) for fleets that are larger",
        descriptors, shares.calls);
  return shares.calls;
}

// Members in the order of dependence: each is destroyed before what it borrows.
struct Gateway::Implementation {
  Implementation(Loop& l, GatewaySettings s, std::unique_ptr<Journal> j, Confinement c, protocol::State state);

  void on_update_ended(const protocol::UpdateId& id);
  void on_stopped(bool clean);
  void leave_undone();

  Loop& loop;
  GatewaySettings settings;
  std::unique_ptr<Journal> journal;
  Confinement confinement;
  RealFileSystem real_files;
  VersionStorage storage;
  Epochs epochs;
  CredentialStore credentials;
  Waiters waiters;
  Metrics metrics;
  MetaStore meta;
  Pool journal_pool;
  Pool storage_pool;
  Pool epoch_pool;
  Pool fence_pool;
  Pool read_pool;
  Pool body_pool;
  HttpClient http;
  Outside outside;
  EngineCalls engine_calls;
  Readiness readiness;
  AwexGroups awex_groups;
  Executor executor;
  protocol::Driver driver;
  ApiContext api;
  Router router;
  Refusals refusals;
  HttpServer server;
  std::function<void(bool)> stopped;
};

Gateway::Implementation::Implementation(Loop& l, GatewaySettings s, std::unique_ptr<Journal> j, Confinement c,
                                        protocol::State state)
    : loop(l),
      settings(std::move(s)),
      journal(std::move(j)),
      confinement(std::move(c)),
      storage(settings.files ? *settings.files : real_files, "gateway-" + state.boot, confinement.storage_roots()),
      epochs(settings.files ? *settings.files : real_files, confinement.storage_roots()),
      credentials(settings.engine_credentials),
      meta(MetaStore::Limits{.list_bytes = settings.list_bytes_max}),
      journal_pool(loop, 1),
      storage_pool(loop, kStorageThreads),
      epoch_pool(loop, kEpochThreads),
      fence_pool(loop, 1),
      read_pool(loop, 1),
      body_pool(loop, 1),
      http(loop, HttpClient::Settings{.connections_max = calls_at_most(),
                                      .name_may_be_at =
                                          [this](const std::string& name, const SocketAddress& address) {
                                            return confinement.may_be_called(name, address);
                                          }}),
      outside(loop, http, settings.read_key_file ? settings.read_key_file : read_key_file),
      engine_calls(loop, http),
      readiness(loop, engine_calls, credentials),
      awex_groups(loop, http, body_pool, meta,
                  AwexGroups::Settings{.kv_store_url = settings.kv_store_url,
                                       .admin_api_key = settings.admin_api_key,
                                       .init_timeout = settings.init_timeout,
                                       .failure_grace = settings.transfer_failure_grace,
                                       .host = settings.host,
                                       .port = [this] { return server.port(); },
                                       .report_bytes_max = settings.report_bytes_max,
                                       .reports_bytes_max = settings.reports_bytes_max,
                                       .proven_pairs_max = settings.proven_pairs_max,
                                       .put_right = settings.awex_put_right ? settings.awex_put_right : awex::repair}),
      executor(Executor::Parts{loop, journal_pool, storage_pool, epoch_pool, fence_pool, *journal, http, engine_calls,
                               storage, epochs, credentials, waiters, awex_groups},
               Executor::Hooks{settings.fence, [this](const protocol::UpdateId& id) { on_update_ended(id); },
                               [this] { on_stopped(true); }, settings.journal_failed}),
      driver(std::move(state), dialects(), executor),
      api{loop,
          driver,
          waiters,
          *journal,
          read_pool,
          storage,
          storage_pool,
          confinement,
          credentials,
          outside,
          readiness,
          metrics,
          meta,
          awex_groups,
          body_pool,
          WallClock(unix_now_ms(), loop.now()),
          ApiSettings{settings.admin_api_key, default_policy(settings), settings.reply_by,
                      settings.compat_error_status}},
      server(loop, [this](HttpRequest request, Responder responder) {
        if (request.method != "GET" && request.method != "HEAD")
          responder.on_answer([this, asked = request.method + " " + request.target.substr(0, request.target.find('?'))](
                                  const HttpResponse& answer) { refusals.tell(asked, answer, loop.now()); });
        router.handle(std::move(request), std::move(responder));
      }) {
  executor.attach(driver);
  executor.tell_space();
  restore_credentials(driver.state(), credentials);
  add_compat_routes(router, api);
  add_meta_routes(router, api);
  add_pair_routes(router, api);
  add_update_routes(router, api);
  add_version_routes(router, api);
  add_worker_routes(router, api);
  add_event_routes(router, api);
  add_health_routes(router, api);
  add_openapi_route(router);
}

void Gateway::Implementation::on_update_ended(const protocol::UpdateId& id) {
  const protocol::Update* update = api.find_update(id);
  if (!update || update->kind == protocol::UpdateKind::leave) return;
  if (update->kind == protocol::UpdateKind::join) {
    const std::string line = join_line(*update);
    return update->state == protocol::UpdateState::failed ? log_warn("{}", line) : log_info("{}", line);
  }
  metrics.update_ended(*update, loop.now());
  const std::string line = log_line(driver.state(), *update, loop.now());
  if (update->state == protocol::UpdateState::succeeded)
    log_info("{}", line);
  else
    log_warn("{}", line);
}

void Gateway::Implementation::on_stopped(bool clean) {
  if (!stopped) return;
  storage.stop();
  server.stop_accepting();
  loop.after(kAnswersFlush, [this, alive = std::weak_ptr(api.alive), clean, then = std::exchange(stopped, nullptr)] {
    if (alive.expired()) return;
    server.close();
    then(clean);
  });
}

// The budget is over. Whoever waits for an update is told how far it is; the rest is the next process's.
void Gateway::Implementation::leave_undone() {
  const protocol::State& state = driver.state();
  const std::string remedy =
      settings.state_dir.empty()
          ? std::string("there is no state directory, so they must be continued by hand")
          : fmt::format("`weighlock finish --state-dir {}` ends it, and so does the next `weighlock serve` there",
                        settings.state_dir);
  log_error("leaving with work undone: {}; {}", left_text(state), remedy);
  for (const auto& [name, pair] : state.pairs) {
    if (!pair.active.empty()) waiters.ended(pair.active);
  }
  on_stopped(false);
}

Result<std::unique_ptr<Gateway>> Gateway::make(Loop& loop, GatewaySettings settings) {
  if (settings.admin_api_key.empty())
    return Error{ErrorCode::invalid_argument,
                 "the admin API key is empty; give one by file, environment or descriptor"};
  if (!settings.kv_store_url.empty()) {
    Result<Url> url = parse_url(settings.kv_store_url);
    if (!url)
      return Error{ErrorCode::invalid_argument,
                   fmt::format("kv_store_url: {}; it is how AWEX workers reach the gateway, and can be left out",
                               url.error().text())};
    settings.kv_store_url = url->text;
  }
  Result<Confinement> confinement = Confinement::make(settings.worker_hosts, settings.storage_roots);
  if (!confinement) return std::move(confinement).error();
  Result<std::unique_ptr<Journal>> journal = open_journal(settings.state_dir, settings.holder);
  if (!journal) return std::move(journal).error();
  if (settings.around_journal) journal = settings.around_journal(*std::move(journal));
  Result<protocol::State> state =
      read_state(**journal, dialects(), random_hex(4), StartTime{loop.now(), unix_now_ms()});
  if (!state) return std::move(state).error();
  state->watch_period = settings.watch_period;
  state->idle_watch_period = settings.idle_watch_period;
  state->watch_read_timeout = settings.watch_read_timeout;
  std::vector<protocol::Record> first(1);
  first.front().kind = protocol::RecordKind::gateway_started;
  first.front().body["boot"] = state->boot;
  if (state->owner.empty()) {  // before any epoch bears it
    state->owner = random_hex(8);
    first.emplace_back().kind = protocol::RecordKind::owner;
    first.back().body["owner"] = state->owner;
  }
  if (Status done = (*journal)->append(std::move(first), unix_now_ms()); !done) return done.error();
  return std::unique_ptr<Gateway>(new Gateway(std::make_unique<Implementation>(
      loop, std::move(settings), *std::move(journal), *std::move(confinement), *std::move(state))));
}

Gateway::Gateway(std::unique_ptr<Implementation> implementation) : implementation_(std::move(implementation)) {}
Gateway::~Gateway() = default;

Status Gateway::listen() {
  Implementation& self = *implementation_;
  HttpServer::Settings settings;
  settings.host = self.settings.host;
  settings.port = self.settings.port;
  settings.socket = self.settings.socket;
  settings.limits = self.settings.limits;
  if (Status done = self.server.listen(settings); !done) return done;
  if (protocol::needs_recovery(self.driver.state()))
    log_warn("taking over what the gateway before left undone: {}", left_text(self.driver.state()));
  self.driver.post(protocol::Recover{});
  return {};
}

int Gateway::port() const {
  return implementation_->server.port();
}

void Gateway::stop(std::function<void(bool clean)> stopped) {
  Implementation& self = *implementation_;
  if (self.api.stopping) return;
  self.api.stopping = true;
  self.stopped = std::move(stopped);
  self.loop.after(limits::kStopBudget, [&self, alive = std::weak_ptr(self.api.alive)] {
    if (!alive.expired() && self.stopped) self.leave_undone();
  });
  self.driver.post(protocol::Shutdown{});
}

void Gateway::finish(std::function<void(const std::vector<FinishedWorker>&)> done) {
  Implementation& self = *implementation_;
  const std::vector<LeftWorker> before = left_behind(self.driver.state());
  self.api.stopping = true;
  self.stopped = [&self, before, done = std::move(done)](bool) { done(finished(before, self.driver.state())); };
  self.driver.post(protocol::Recover{});
  self.driver.post(protocol::Shutdown{});
}

}  // namespace weighlock
