// `weighlock connect`: makes or changes a pair, and tells what is different from before.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <ostream>
#include <set>

#include "explain.hpp"
#include "table.hpp"
#include "terminal.hpp"

namespace weighlock::cli {
namespace {

// What the pair was before; nothing if there was none.
struct Former {
  json::value pair;
  std::set<std::string> workers;
};

struct Changed {
  std::string what, from, to;
};

struct Changes {
  std::vector<std::string> joined, left;
  std::vector<Changed> terms;
};

std::string text_of(const json::value& value) {
  if (value.is_string()) return one_line(std::string(std::string_view(value.get_string())));
  return value.is_null() ? "none" : json::serialize(value);
}

// {"deadlines_ms": {"load": 5}} is "deadlines_ms.load" -> "5".
void flatten(const std::string& at, const json::value& value, std::map<std::string, std::string>& out) {
  const json::object* object = value.if_object();
  if (!object) {
    if (!value.is_null()) out[at] = text_of(value);
    return;
  }
  for (const json::key_value_pair& member : *object)
    flatten(at.empty() ? std::string(member.key()) : fmt::format("{}.{}", at, std::string_view(member.key())),
            member.value(), out);
}

// What a connect decides about a pair.
std::map<std::string, std::string> terms_of(const json::value& pair) {
  std::map<std::string, std::string> out;
  for (const char* member : {"mode", "lineage", "save_path", "trainers", "trainer", "lora"}) {
    if (const json::value* value = find(pair, member)) flatten(member, *value, out);
  }
  if (const json::value* settings = find(pair, "settings")) flatten("", *settings, out);
  return out;
}

Result<std::optional<Former>> read_former(client::Client& gateway, const std::string& name) {
  Result<client::Pair> pair = gateway.pair(name);
  if (!pair && pair.error().code == ErrorCode::not_found) return std::optional<Former>();
  if (!pair) return std::move(pair).error();
  Result<std::vector<client::Worker>> workers = gateway.workers(name);
  if (!workers) return std::move(workers).error();
  Former former{pair->raw, {}};
  for (const client::Worker& worker : *workers) former.workers.insert(worker.url);
  return std::optional<Former>(std::move(former));
}

Changes compare(const Former& former, const json::object& spec, const json::value& now) {
  Changes out;
  std::set<std::string> wanted;
  for (const json::value& worker : spec.at("workers").as_array())
    wanted.insert(std::string(*find_string(worker, "url")));
  std::set_difference(wanted.begin(), wanted.end(), former.workers.begin(), former.workers.end(),
                      std::back_inserter(out.joined));
  std::set_difference(former.workers.begin(), former.workers.end(), wanted.begin(), wanted.end(),
                      std::back_inserter(out.left));
  const std::map<std::string, std::string> before = terms_of(former.pair), after = terms_of(now);
  std::set<std::string> names;
  for (const auto& [name, value] : before) names.insert(name);
  for (const auto& [name, value] : after) names.insert(name);
  for (const std::string& name : names) {
    const auto value = [&name](const std::map<std::string, std::string>& terms) {
      const auto it = terms.find(name);
      return it == terms.end() ? std::string("none") : it->second;
    };
    if (value(before) != value(after)) out.terms.push_back(Changed{name, value(before), value(after)});
  }
  return out;
}

std::string changes_text(const Changes& changes) {
  std::string text;
  for (const std::string& url : changes.joined) text += fmt::format("  joins: {}\n", url);
  for (const std::string& url : changes.left) text += fmt::format("  leaves: {}\n", url);
  for (const Changed& term : changes.terms) text += fmt::format("  {}: {} -> {}\n", term.what, term.from, term.to);
  return text.empty() ? "  as it was before\n" : text;
}

json::object changes_json(const Changes& changes) {
  json::object terms;
  for (const Changed& term : changes.terms) terms[term.what] = json::object{{"from", term.from}, {"to", term.to}};
  return json::object{{"joined", json::array(changes.joined.begin(), changes.joined.end())},
                      {"left", json::array(changes.left.begin(), changes.left.end())},
                      {"terms", std::move(terms)}};
}

}  // namespace

int run_connect(const ConnectArguments& arguments, Terminal& terminal) {
  const bool as_json = arguments.gateway.json;
  client::Client gateway(client_settings(arguments.gateway));
  const Result<std::optional<Former>> former = read_former(gateway, arguments.pair);
  if (!former) return report(terminal, former.error(), as_json);
  json::object spec = arguments.spec;
  // Its settings were for the other mode; the gateway refuses to keep them.
  if (arguments.change_mode && *former && find_string((*former)->pair, "mode") != find_string(spec, "mode"))
    spec.erase("keep_unnamed");
  const Result<client::Pair> pair = gateway.put_pair(arguments.pair, spec);
  if (!pair) return report(terminal, pair.error(), as_json);
  std::optional<Changes> changes;
  if (*former) changes = compare(**former, spec, pair->raw);
  if (as_json) {
    json::object out = pair->raw.as_object();
    if (changes) out["changes"] = changes_json(*changes);
    print_json(terminal, out);
    return 0;
  }
  terminal.out << fmt::format("pair {}: {} workers, lineage {}, committed {}\n", pair->name, pair->workers_total,
                              pair->lineage,
                              pair->committed ? fmt::format("v{}", *pair->committed) : std::string("nothing yet"))
               << (changes ? changes_text(*changes) : "");
  return 0;
}

}  // namespace weighlock::cli
