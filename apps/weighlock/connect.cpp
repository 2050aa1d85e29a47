#include <fmt/format.h>

#include <ostream>

#include "terminal.hpp"

namespace weighlock::cli {

int run_connect(const ConnectArguments& arguments, Terminal& terminal) {
  client::Client gateway(client_settings(arguments.gateway));
  Result<client::Pair> pair = gateway.put_pair(arguments.pair, arguments.spec);
  if (!pair) return report(terminal, pair.error(), arguments.gateway.json);
  if (arguments.gateway.json) {
    print_json(terminal, pair->raw);
  } else {
    terminal.out << fmt::format("pair {}: {} workers, lineage {}, committed {}\n", pair->name, pair->workers_total,
                                pair->lineage,
                                pair->committed ? fmt::format("v{}", *pair->committed) : std::string("nothing yet"));
  }
  return 0;
}

}  // namespace weighlock::cli
