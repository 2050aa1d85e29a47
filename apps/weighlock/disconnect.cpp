// `weighlock disconnect`: removes a pair, and tells whom it left behind.
#include <fmt/format.h>

#include <ostream>

#include "table.hpp"
#include "terminal.hpp"

namespace weighlock::cli {
namespace {

std::vector<std::string> abandoned_of(const json::value& answer) {
  std::vector<std::string> out;
  const json::value* list = find(answer, "abandoned");
  if (!list || !list->is_array()) return out;
  for (const json::value& one : list->get_array()) {
    if (one.is_string()) out.emplace_back(std::string_view(one.get_string()));
  }
  return out;
}

}  // namespace

int run_disconnect(const DisconnectArguments& arguments, Terminal& terminal) {
  client::Client gateway(client_settings(arguments.gateway));
  const Result<client::Pair> former = gateway.pair(arguments.pair);
  if (!former) return report(terminal, former.error(), arguments.gateway.json);
  if (former->state == "updating")
    terminal.err << fmt::format("pair {}: its running update is waited for\n", former->name) << std::flush;
  const Result<json::value> answer = gateway.remove_pair(arguments.pair);
  if (!answer) return report(terminal, answer.error(), arguments.gateway.json);
  const std::vector<std::string> abandoned = abandoned_of(*answer);
  if (arguments.gateway.json) {
    print_json(terminal, *answer);
  } else {
    const auto left = static_cast<std::int64_t>(abandoned.size());
    terminal.out << fmt::format("pair {} is removed: {} of {} workers let go, as they serve{}\n", former->name,
                                std::max<std::int64_t>(0, former->workers_total - left), former->workers_total,
                                former->committed ? fmt::format(" v{}", *former->committed) : "");
    for (const std::string& one : abandoned) terminal.out << fmt::format("  left behind: {}\n", one_line(one));
    if (left > 0)
      terminal.out << fmt::format(
          "    to do: restart the engine, then forget it with `weighlock workers release {} URL`; or connect it again, "
          "and the next update brings it along\n",
          former->name);
  }
  return abandoned.empty() ? 0 : info(ErrorCode::degraded).exit_code;
}

}  // namespace weighlock::cli
