// `weighlock workers`: the fleet of a pair, and changes of one worker.
#include <fmt/format.h>

#include <ostream>

#include "explain.hpp"
#include "table.hpp"
#include "terminal.hpp"

namespace weighlock::cli {
namespace {

using Act = WorkersArguments::Act;

int list(client::Client& gateway, const WorkersArguments& arguments, Terminal& terminal) {
  Result<std::vector<json::value>> raw = gateway.workers_raw(arguments.pair);
  if (!raw) return report(terminal, raw.error(), arguments.gateway.json);
  if (arguments.gateway.json) {
    print_json(terminal, json::object{{"items", json::array(raw->begin(), raw->end())}});
    return 0;
  }
  std::vector<client::Worker> workers;
  for (const json::value& item : *raw) {
    Result<client::Worker> worker = client::read_worker(item);
    if (!worker) return report(terminal, worker.error(), false);
    workers.push_back(std::move(*worker));
  }
  terminal.out << workers_text(workers);
  return 0;
}

Result<client::ChangedWorker> change(client::Client& gateway, const WorkersArguments& arguments) {
  switch (arguments.act) {
    case Act::add:
      return gateway.add_worker(arguments.pair, arguments.added);
    case Act::remove:
      return gateway.remove_worker(arguments.pair, arguments.worker, arguments.reason);
    case Act::drain:
      return gateway.drain_worker(arguments.pair, arguments.worker, arguments.reason);
    case Act::quarantine:
      return gateway.quarantine_worker(arguments.pair, arguments.worker, arguments.reason);
    case Act::set_key:
      return gateway.set_worker_key(arguments.pair, arguments.worker, arguments.keys);
    case Act::release:
    case Act::list:
      break;
  }
  return gateway.release_worker(arguments.pair, arguments.worker, arguments.reason);
}

}  // namespace

int run_workers(const WorkersArguments& arguments, Terminal& terminal) {
  client::Client gateway(client_settings(arguments.gateway));
  if (arguments.act == Act::list) return list(gateway, arguments, terminal);
  const Result<client::ChangedWorker> changed = change(gateway, arguments);
  if (!changed) return report(terminal, changed.error(), arguments.gateway.json);
  if (arguments.gateway.json) {
    print_json(terminal, changed->raw);
    return 0;
  }
  const client::Pair& pair = changed->pair;
  std::string text = fmt::format("pair {}: ", pair.name);
  if (changed->worker) {
    const client::Worker& worker = *changed->worker;
    text += fmt::format("{} is {}, version {}", worker.url, worker.state, version_text(worker.version));
    if (worker.cause) text += fmt::format(" ({}: {})", worker.cause->code, one_line(worker.cause->message));
  } else {
    text += fmt::format("{} has left", arguments.worker);
  }
  terminal.out << text << fmt::format("; {} of {} workers ready\n", pair.workers_ready, pair.workers_total);
  return 0;
}

}  // namespace weighlock::cli
