#include "terminal.hpp"

#include <ostream>

namespace weighlock::cli {

int report(Terminal& terminal, const Error& error, bool json) {
  const ErrorInfo& row = info(error.code);
  if (json) {
    const std::string code(row.type);
    print_json(terminal, json::object{{"error", json::object{{"code", code}, {"message", error.text()}}}});
  } else {
    terminal.err << "weighlock: " << error.text() << "\n";
  }
  return row.exit_code == 0 ? 1 : row.exit_code;
}

void print_json(Terminal& terminal, const json::value& value) {
  terminal.out << json::serialize(value) << "\n" << std::flush;
}

client::Settings client_settings(const GatewayArguments& arguments) {
  return client::Settings{arguments.gateway, arguments.admin_key,
                          Milliseconds(static_cast<std::int64_t>(arguments.timeout_s * 1000))};
}

}  // namespace weighlock::cli
