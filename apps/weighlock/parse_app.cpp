#include "parse_app.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <memory>
#include <sstream>

#include "weighlock/core/limits.hpp"
#include "weighlock/core/suggest.hpp"
#include "weighlock/core/url.hpp"

namespace weighlock::cli {
namespace {

constexpr double kSecondsMax = 7.0 * 24 * 3600;
constexpr std::string_view kDefaultGateway = "http://127.0.0.1:7080";

Error bad(std::string message) {
  return Error{ErrorCode::invalid_argument, std::move(message)};
}

// Words by what they are, as flags' values are: "PAIR", not "pair PAIR".
class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(std::string words) : words_(std::move(words)) {}
  std::string make_usage(const CLI::App* app, std::string name) const override {
    if (words_.empty()) return CLI::Formatter::make_usage(app, std::move(name));
    return fmt::format("Usage: {} {} [OPTIONS]\n", name, words_);
  }
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    if (!is_positional) return CLI::Formatter::make_option(option, false);
    std::ostringstream out;
    CLI::detail::format_help(out, option->get_type_name(), option->get_description(), column_width_);
    return out.str();
  }

 private:
  std::string words_;
};

}  // namespace

CommandParser::CommandParser(const std::string& name, const std::string& words, const std::string& description,
                             const std::string& example)
    : app_(description + "\n", "weighlock " + name) {
  app_.formatter(std::make_shared<HelpFormatter>(words));
  app_.allow_extras();
  app_.footer("\nExample:\n  " + example + "\n");
}

void CommandParser::add_json() {
  app_.add_flag("--json", json, "print the result as JSON");
}

std::optional<Ended> CommandParser::parse(std::vector<std::string> arguments, std::vector<std::string>* extras) {
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
  try {
    app_.parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    return Ended{0, app_.help(), false};
  } catch (const CLI::Error& failure) {
    return mistake(failure.what());
  }
  const std::vector<std::string> rest = app_.remaining();
  if (extras) {
    *extras = rest;
  } else if (!rest.empty()) {
    return unexpected(rest.front());
  }
  return std::nullopt;
}

Ended CommandParser::unexpected(const std::string& word) const {
  if (!word.starts_with("-")) return mistake(fmt::format("unexpected argument '{}'", word));
  const std::string flag = word.substr(0, word.find('='));
  std::vector<std::string> names;
  for (const CLI::Option* option : app_.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return mistake(fmt::format("unknown flag '{}'{}", flag, suggestion(flag, {names.begin(), names.end()})));
}

Ended CommandParser::mistake(const std::string& text) const {
  return Ended{
      2, json ? text : fmt::format("{}: {}\n(`{} --help` tells more)\n", app_.get_name(), text, app_.get_name()), json};
}

GatewayFlags::GatewayFlags(CommandParser& parser) : parser_(parser) {
  CLI::App& app = parser.app();
  app.add_option("--gateway", url_, "the gateway's URL; else WEIGHLOCK_URL, else http://127.0.0.1:7080")
      ->type_name("URL");
  app.add_option("--admin-api-key-file", key_file_,
                 "file with the admin key; else WEIGHLOCK_ADMIN_API_KEY, WEIGHLOCK_ADMIN_API_KEY_FILE")
      ->type_name("FILE");
  app.add_option("--timeout", timeout_, "seconds for one call (30)")->type_name("SECONDS");
  parser.add_json();
}

Result<GatewayArguments> GatewayFlags::check(const Surroundings& surroundings) const {
  GatewayArguments arguments;
  arguments.json = parser_.json;
  const std::string from_environment = surroundings.environment("WEIGHLOCK_URL").value_or("");
  const std::string text = !url_.empty()               ? url_
                           : !from_environment.empty() ? from_environment
                                                       : std::string(kDefaultGateway);
  Result<Url> url = parse_url(text);
  if (!url) return wrap(!url_.empty() ? "--gateway" : "WEIGHLOCK_URL", std::move(url).error());
  arguments.gateway = *url;

  // The same rules as the server's: a layer of the environment, and one of the flags above it.
  config::Layer environment{"environment", {}}, flags{"flags", {}};
  for (const std::string_view name : {"admin_api_key", "admin_api_key_file"}) {
    const auto value = surroundings.environment(config::environment_name(name));
    if (value && !value->empty()) environment.values.push_back({std::string(name), {*value}});
  }
  if (!key_file_.empty()) flags.values.push_back({"admin_api_key_file", {key_file_}});
  Result<config::Loaded> loaded = config::load({environment, flags}, surroundings.environment);
  if (!loaded) return std::move(loaded).error();
  arguments.admin_key = loaded->options.admin_api_key;
  if (!timeout_.empty()) {
    Result<double> timeout = parse_seconds("--timeout", timeout_);
    if (!timeout) return std::move(timeout).error();
    if (*timeout <= 0) return bad("--timeout: must be above 0");
    arguments.timeout_s = *timeout;
  }
  return arguments;
}

KeyFlags::KeyFlags(CommandParser& parser) {
  CLI::App& app = parser.app();
  app.add_option("--worker-key-env", key_env_, "the gateway's environment variable with the workers' admin key")
      ->type_name("NAME");
  app.add_option("--worker-key-file", key_file_, "... or a file on the gateway's host")->type_name("FILE");
  app.add_option("--worker-api-key-env", api_key_env_, "likewise, the workers' api key")->type_name("NAME");
  app.add_option("--worker-api-key-file", api_key_file_, "... or a file on the gateway's host")->type_name("FILE");
}

Result<json::object> KeyFlags::check() const {
  json::object out;
  const auto reference = [&out](const char* key, const std::string& env, const std::string& file) -> Status {
    if (!env.empty() && !file.empty())
      return bad(fmt::format("{} is given as environment variable and as file; leave one out", key));
    if (!env.empty()) out[key] = json::object{{"env", env}};
    if (!file.empty() && file.front() != '/') return bad(fmt::format("{}: '{}' isn't an absolute path", key, file));
    if (!file.empty()) out[key] = json::object{{"file", file}};
    return {};
  };
  if (Status ok = reference("admin_key", key_env_, key_file_); !ok) return std::move(ok).error();
  if (Status ok = reference("api_key", api_key_env_, api_key_file_); !ok) return std::move(ok).error();
  return out;
}

Result<double> parse_seconds(std::string_view flag, const std::string& text) {
  double number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || end != text.data() + text.size() || !(number >= 0) || number > kSecondsMax)
    return bad(fmt::format("{}: '{}' isn't a number of seconds in 0..{}", flag, text, kSecondsMax));
  return number;
}

Result<std::int64_t> parse_count(std::string_view flag, const std::string& text) {
  std::int64_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || end != text.data() + text.size() || number < 0)
    return bad(fmt::format("{}: '{}' isn't a whole number of 0 or more", flag, text));
  return number;
}

Result<json::value> parse_worker(std::string_view flag, const std::string& text, const json::object& keys) {
  std::string dialect, url_text = text;
  for (const std::string_view kind : {"auto", "sglang", "vllm"}) {
    if (!text.starts_with(std::string(kind) + "=")) continue;
    dialect = kind;
    url_text = text.substr(kind.size() + 1);
  }
  Result<Url> url = parse_url(url_text);
  if (!url) return wrap(std::string(flag), std::move(url).error());
  json::object out(keys);
  out["url"] = url->text;
  if (!dialect.empty()) out["dialect"] = dialect;  // else found out, or as it was
  return json::value(std::move(out));
}

Status check_pair_name(const std::string& name) {
  if (name.empty()) return bad("the pair's name is empty");
  if (name.size() > limits::kNameBytesMax)
    return bad(fmt::format("the pair's name has {} bytes, more than {}", name.size(), limits::kNameBytesMax));
  return {};
}

}  // namespace weighlock::cli
