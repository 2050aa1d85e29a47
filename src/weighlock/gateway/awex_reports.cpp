#include "weighlock/gateway/awex_reports.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <array>
#include <numeric>
#include <optional>
#include <utility>

namespace weighlock {

namespace {

// As numbers are usually written, and an IPv4 address that stands in IPv6's notation ("::ffff:0.0.0.0") as what it is:
// it stands for no more. Names stay.
std::string plain(const std::string& host) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  in_addr four{};
  in6_addr six{};
  if (inet_pton(AF_INET6, host.c_str(), &six) == 1) {
    const bool mapped = IN6_IS_ADDR_V4MAPPED(&six);
    const unsigned char* const bytes = six.s6_addr;
    inet_ntop(mapped ? AF_INET : AF_INET6, mapped ? bytes + 12 : bytes, text.data(), text.size());
  } else if (inet_aton(host.c_str(), &four) == 1) {
    inet_ntop(AF_INET, &four, text.data(), text.size());
  } else {
    return host;
  }
  return text.data();
}

bool is_loopback(const std::string& address) {
  return address == "::1" || address == "localhost" || address.starts_with("127.");
}

}  // namespace

struct AwexReports::Gathering {
  AwexMembers members;
  bool colocate = false;
  Done done;
  awex::Parallelism train, infer;                            // the first of each side speaks for it
  AwexReported reported;                                     // but for the reports
  std::optional<Error> out_of_reach;                         // a member that can't reach us
  std::vector<std::optional<Result<awex::Report>>> reports;  // by member; none while it is read
  std::size_t reading = 0;                                   // on the pool
  bool answered = false;                                     // by all members

  void end(Error error, std::vector<protocol::RefusedWorker> refused = {}) {
    std::exchange(done, nullptr)(std::move(error), std::move(refused));
  }
  void end_if_read();
};

AwexReports::AwexReports(Loop& loop, Pool& pool, AwexCalls& calls, Settings settings)
    : pool_(pool),
      calls_(calls),
      settings_(std::move(settings)),
      room_(std::make_shared<AnswerRoom>(loop, settings_.reports_bytes_max)) {}

// Where devices are shared all are asked, for theirs.
void AwexReports::gather(AwexMembers members, bool colocate, Done done) {
  const auto all = std::make_shared<Gathering>();
  all->members = std::move(members);
  all->colocate = colocate;
  all->done = std::move(done);
  std::vector<AwexCalls::Request> requests;
  if (colocate) {
    requests = all->members.each([](std::size_t) { return awex::parallelism_request(true); });
  } else {
    requests.push_back({all->members.trainers.front(), awex::parallelism_request(false), nullptr});
    requests.push_back({all->members.workers.front(), awex::parallelism_request(false), nullptr});
  }
  calls_.ask_all(
      std::move(requests), [](std::size_t, const HttpResult& result) { return is_bad_status(result); },
      [this, all](const AwexCalls::Answers& answers) { take_parallelism(all, answers); });
}

void AwexReports::take_parallelism(const std::shared_ptr<Gathering>& all, const AwexCalls::Answers& answers) {
  const AwexMembers& members = all->members;
  const std::size_t first_worker = members.trainers.size();
  std::vector<awex::DeviceOf> trainers, engines;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const std::size_t member = all->colocate || i == 0 ? i : first_worker;
    Result<awex::Parallelism> read = awex::read_parallelism(members.who(member), answers[i]);
    if (!read) return all->end(read.error(), refusal_of_report(members, member, answers[i], read.error().message));
    (members.is_trainer(member) ? trainers : engines).push_back({members.who(member), read->device});
    if (member == 0)
      all->train = *std::move(read);
    else if (member == first_worker)
      all->infer = *std::move(read);
  }
  all->reported.numbers.resize(members.workers.size());
  std::iota(all->reported.numbers.begin(), all->reported.numbers.end(), 0);
  if (all->colocate) {
    Result<std::vector<std::uint32_t>> numbers = awex::engine_numbers(trainers, engines, all->infer.world_size);
    if (!numbers) return all->end(numbers.error());
    all->reported.numbers = *std::move(numbers);
  }
  all->reported.topology = {all->train.world_size, all->infer.world_size,
                            static_cast<std::uint32_t>(members.workers.size()), all->colocate};
  ask_for_metadata(all);
}

void AwexReports::ask_for_metadata(const std::shared_ptr<Gathering>& all) {
  const AwexMembers& members = all->members;
  const HttpRequest of_trainer = awex::train_meta_request(all->train, all->infer, all->reported.topology.infer_ranks());
  const HttpRequest of_worker = awex::infer_meta_request(all->train, all->infer);
  std::vector<AwexCalls::Request> requests =
      members.each([&](std::size_t i) { return members.is_trainer(i) ? of_trainer : of_worker; });
  for (AwexCalls::Request& request : requests) request.place = room_->place();
  std::vector<std::shared_ptr<AnswerRoom::Place>> places;
  for (const AwexCalls::Request& request : requests) places.push_back(request.place);
  all->reports.resize(members.size());
  all->reported.store_urls.resize(members.size());
  calls_.ask_all(
      std::move(requests),
      [this, all, places = std::move(places)](std::size_t i, HttpResult& result) mutable {
        return !take_report(all, i, result, std::move(places[i]));
      },
      [this, all](const AwexCalls::Answers& answers) { all_answered(all, answers); });
}

Result<std::string> AwexReports::store_url_for(const std::string& who, const std::string& local) const {
  if (!settings_.kv_store_url.empty()) return settings_.kv_store_url;
  const int port = settings_.port ? settings_.port() : 0;
  const std::string host = plain(settings_.host);
  const bool all_of_four = host == "0.0.0.0", all = host == "::";
  const bool is_six = local.find(':') != std::string::npos;
  const bool reachable = all || (all_of_four ? !is_six : !is_loopback(host) || is_loopback(local));
  if (reachable) return awex::store_url(all || all_of_four ? local : host, port);
  return Error{ErrorCode::invalid_argument,
               fmt::format("{} is reached from {}, and the gateway listens at {} only{}, so it can't read the metadata "
                           "here: start the gateway with another --host (:: is every address), or give the address by "
                           "which workers reach it with --kv-store-url",
                           who, local, settings_.host, is_six ? ", not on IPv6" : ""),
               nullptr};
}

// Tens of MB, so it is read on the pool, as soon as it is there; then its bytes go, and others have their place.
bool AwexReports::take_report(const std::shared_ptr<Gathering>& all, std::size_t member, HttpResult& result,
                              std::shared_ptr<AnswerRoom::Place> place) {
  if (is_bad_status(result)) return false;
  const AwexMembers& members = all->members;
  HttpResponse& response = std::get<HttpResponse>(result);
  Result<std::string> store = store_url_for(members.who(member), response.local_address);
  if (store)
    all->reported.store_urls[member] = *std::move(store);
  else if (!all->out_of_reach)
    all->out_of_reach = store.error();
  const bool is_trainer = members.is_trainer(member);
  awex::Origin origin{is_trainer ? awex::Side::train : awex::Side::infer,
                      is_trainer ? member : member - members.trainers.size(), members.url(member)};
  auto body = std::make_shared<std::string>(std::exchange(response.body, {}));
  auto read = std::make_shared<Result<awex::Report>>(Error{});
  ++all->reading;
  pool_.run(
      [origin = std::move(origin), body, read] {
        *read = awex::parse_report(origin, *body);
        std::string().swap(*body);
      },
      [alive = std::weak_ptr(alive_), all, member, read, place = std::move(place)] {
        if (alive.expired()) return;
        all->reports[member] = std::move(*read);
        --all->reading;
        all->end_if_read();
      });
  return true;
}

void AwexReports::all_answered(const std::shared_ptr<Gathering>& all, const AwexCalls::Answers& answers) {
  if (auto failure = failure_of_reports(all->members, answers))
    return all->end(std::move(failure->error), failure->refused);
  if (all->out_of_reach) return all->end(*all->out_of_reach);
  all->answered = true;
  all->end_if_read();
}

void AwexReports::Gathering::end_if_read() {
  if (!answered || reading != 0) return;
  for (const auto& report : reports) {
    if (!*report) return end(report->error());
  }
  for (std::size_t i = 0; i < reports.size(); ++i)
    (members.is_trainer(i) ? reported.train : reported.infer).push_back(*std::move(*reports[i]));
  reports.clear();
  std::exchange(done, nullptr)(std::move(reported), {});
}

}  // namespace weighlock
