#include <fmt/format.h>

#include <ostream>

#include "table.hpp"
#include "terminal.hpp"

namespace weighlock::cli {

int run_config(const ConfigArguments& arguments, Terminal& terminal) {
  if (!arguments.check) {
    std::vector<std::vector<std::string>> rows;
    json::object out;
    for (const config::Origin& origin : arguments.loaded.origins) {
      rows.push_back({origin.setting, origin.value.empty() ? "-" : origin.value, origin.place});
      out[origin.setting] = json::object{{"value", origin.value}, {"origin", origin.place}};
    }
    for (const std::string& warning : arguments.loaded.warnings) terminal.err << "weighlock: " << warning << "\n";
    if (arguments.json) {
      print_json(terminal, out);
    } else {
      terminal.out << table({"SETTING", "VALUE", "ORIGIN"}, rows);
    }
    return 0;
  }
  std::vector<std::string> found = arguments.loaded.warnings;
  for (std::string& concern : config::concerns(arguments.loaded.options)) found.push_back(std::move(concern));
  if (arguments.json) {
    json::array items;
    for (const std::string& text : found) items.emplace_back(text);
    print_json(terminal, json::object{{"warnings", std::move(items)}});
  } else {
    for (const std::string& text : found) terminal.out << "warning: " << text << "\n";
    terminal.out << fmt::format("{} setting{} read, {} warning{}\n", arguments.loaded.origins.size(),
                                arguments.loaded.origins.size() == 1 ? "" : "s", found.size(),
                                found.size() == 1 ? "" : "s");
  }
  return 0;
}

}  // namespace weighlock::cli
