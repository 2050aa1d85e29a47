// Laying the layers over each other, and judging the outcome.
#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>

#include "weighlock/config/settings.hpp"
#include "weighlock/core/suggest.hpp"

namespace weighlock::config {
namespace {

constexpr std::string_view kPrefix = "WEIGHLOCK_";
constexpr std::size_t kKeyBytesMax = 4096;

const Setting* find_setting(std::string_view name) {
  for (const Setting& setting : settings()) {
    if (setting.name == name) return &setting;
  }
  return nullptr;
}

// "/dev/fd/3" reads an inherited descriptor. One newline at the end is not part of the key.
Result<std::string> read_key(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error{ErrorCode::invalid_argument, fmt::format("key file '{}' can't be read", path)};
  std::string key(kKeyBytesMax + 1, '\0');
  file.read(key.data(), static_cast<std::streamsize>(key.size()));
  key.resize(static_cast<std::size_t>(file.gcount()));
  if (!key.empty() && key.back() == '\n') key.pop_back();
  if (!key.empty() && key.back() == '\r') key.pop_back();
  if (key.empty()) return Error{ErrorCode::invalid_argument, fmt::format("key file '{}' is empty", path)};
  if (key.size() > kKeyBytesMax || key.find('\n') != std::string::npos)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("key file '{}' holds more than one line of {} bytes", path, kKeyBytesMax)};
  return key;
}

// The part of a WEIGHLOCK_* name after the prefix, in lower case.
std::string setting_of(std::string_view variable) {
  std::string setting(variable.substr(kPrefix.size()));
  std::transform(setting.begin(), setting.end(), setting.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return setting;
}

std::vector<std::string> split_commas(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    std::string_view part = text.substr(0, comma);
    while (!part.empty() && part.front() == ' ') part.remove_prefix(1);
    while (!part.empty() && part.back() == ' ') part.remove_suffix(1);
    if (!part.empty()) parts.emplace_back(part);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return parts;
}

std::string default_state_dir(const ServeOptions& options, const Environment& environment) {
  std::string base;
  if (const auto xdg = environment("XDG_STATE_HOME"); xdg && !xdg->empty() && xdg->front() == '/') base = *xdg;
  if (base.empty()) {
    const auto home = environment("HOME");
    base = (home && !home->empty() ? *home : std::string("/var/tmp")) + "/.local/state";
  }
  // Started in place of the Python gateway the port is drawn at random: each start has a directory of its own.
  const bool own = options.compat || options.port == 0;
  return own ? fmt::format("{}/weighlock/{}.{}", base, options.port, ::getpid())
             : fmt::format("{}/weighlock/{}", base, options.port);
}

Status apply(const Layer& layer, Loaded& loaded) {
  std::set<std::string_view> keys_given;
  for (const auto& [key, values] : layer.values) {
    const Setting* secret = secret_of_file(key);
    const Setting* setting = secret ? secret : find_setting(key);
    if (setting && setting->kind == Kind::secret && !keys_given.insert(setting->name).second)
      return Error{ErrorCode::invalid_argument, fmt::format("{}: {} and {}_file are both given; leave one out",
                                                            layer.place, setting->name, setting->name)};
    std::vector<std::string> given = values;
    if (secret) {
      Result<std::string> held = values.size() == 1
                                     ? read_key(values.front())
                                     : Result<std::string>(Error{ErrorCode::invalid_argument, "needs one path"});
      if (!held) return wrap(fmt::format("{}: {}", layer.place, key), std::move(held).error());
      given = {*held};
    }
    if (!setting)
      return Error{ErrorCode::unknown_key,
                   fmt::format("{}: unknown key '{}'{}", layer.place, key, suggestion(key, setting_names()))};
    if (Status assigned = setting->assign(loaded.options, given); !assigned)
      return wrap(fmt::format("{}: {}", layer.place, key), std::move(assigned).error());
    for (Origin& origin : loaded.origins) {
      if (origin.setting == setting->name)
        origin.place = secret ? fmt::format("{}, {} {}", layer.place, key, values.front()) : layer.place;
    }
  }
  return {};
}

// Every interface: "0.0.0.0", "::" in any spelling.
bool is_wildcard(const std::string& host) {
  in_addr v4{};
  in6_addr v6{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return v4.s_addr == 0;
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_UNSPECIFIED(&v6);
}

}  // namespace

Result<EnvironmentLayer> environment_layer(const std::vector<std::string>& variables) {
  EnvironmentLayer out{Layer{"environment", {}}, {}};
  for (const std::string& variable : variables) {
    const std::size_t equals = variable.find('=');
    if (equals == std::string::npos || !variable.starts_with(kPrefix)) continue;
    const std::string variable_name = variable.substr(0, equals);
    const std::string value = variable.substr(equals + 1);
    const std::string key = setting_of(variable_name);
    if (key.starts_with("service_") || key.starts_with("port_")) continue;  // Kubernetes, for a service named weighlock
    if (key == "port" && value.starts_with("tcp://")) {
      out.warnings.push_back(fmt::format("{}={} comes from Kubernetes and is ignored; set enableServiceLinks: false",
                                         variable_name, value));
      continue;
    }
    const Setting* setting = find_setting(key);
    if (!setting && !secret_of_file(key)) {
      // WEIGHLOCK_URL and WEIGHLOCK_CONFIG are the client's and main's; other programs have names of their own.
      if (key == "url" || key == "config" || nearest(key, setting_names()).empty()) continue;
      return Error{ErrorCode::unknown_key, fmt::format("environment: {} is no setting; did you mean {}?", variable_name,
                                                       environment_name(nearest(key, setting_names())))};
    }
    if (value.empty()) continue;  // an empty variable is as good as none
    const bool list = setting && setting->kind == Kind::list;
    out.layer.values.emplace_back(key, list ? split_commas(value) : std::vector<std::string>{value});
  }
  return out;
}

Result<Loaded> load(const std::vector<Layer>& layers, const Environment& environment) {
  Loaded loaded;
  for (const Setting& setting : settings()) loaded.origins.push_back(Origin{std::string(setting.name), "", "default"});
  for (const Layer& layer : layers) {
    if (Status applied = apply(layer, loaded); !applied) return std::move(applied).error();
    if (layer.place != "flags") continue;
    for (const auto& [key, values] : layer.values) {
      const Setting* setting = find_setting(key);
      if (setting && setting->kind == Kind::secret)
        loaded.warnings.push_back(fmt::format("{0} shows the key to every user of this host; use {0}-file or {1}",
                                              flag_name(key), environment_name(key)));
    }
  }
  ServeOptions& options = loaded.options;
  if (options.state_dir.empty()) options.state_dir = default_state_dir(options, environment);
  if (options.state_dir.front() != '/')
    return Error{ErrorCode::invalid_argument, fmt::format("state_dir '{}' isn't an absolute path", options.state_dir)};
  for (std::size_t i = 0; i < loaded.origins.size(); ++i) loaded.origins[i].value = settings()[i].print(options);
  return loaded;
}

bool is_loopback(std::string_view host) {
  const std::string text(host);
  in_addr v4{};
  in6_addr v6{};
  if (inet_pton(AF_INET, text.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  if (inet_pton(AF_INET6, text.c_str(), &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6);
  return text == "localhost";
}

namespace {

// A hook that can't be run is found out when it is needed most.
Status check_fence(const std::string& fence) {
  if (!fence.starts_with('/')) return {};
  struct stat found = {};
  int failure = ::stat(fence.c_str(), &found) == 0 ? 0 : errno;
  if (failure == 0 && !S_ISREG(found.st_mode)) failure = EISDIR;
  if (failure == 0 && ::faccessat(AT_FDCWD, fence.c_str(), X_OK, AT_EACCESS) != 0) failure = errno;
  if (failure == 0) return {};
  return Error{ErrorCode::invalid_argument,
               fmt::format("fence '{}' can't be run by uid {}: {}; name a program that can, a URL, or none", fence,
                           ::geteuid(), failure == EISDIR ? "it is no file" : ::strerrordesc_np(failure))};
}

Status check_key(const ServeOptions& options, const Environment& environment,
                 const std::vector<std::string>& own_addresses) {
  if (options.admin_api_key != kPublicAdminKey) return {};
  if (environment("AREAL_ALLOW_DEFAULT_ADMIN_KEY").value_or("") == "1") return {};
  std::vector<std::string> at = {options.host};
  if (is_wildcard(options.host) && !own_addresses.empty()) at = own_addresses;
  const auto outside = std::find_if(at.begin(), at.end(), [](const std::string& host) { return !is_loopback(host); });
  if (outside == at.end()) return {};
  const std::string where =
      *outside == options.host ? options.host : fmt::format("{} (here: {})", options.host, *outside);
  return Error{ErrorCode::permission_denied, fmt::format("host {} can be reached from outside, and the admin key is "
                                                         "the public default '{}': anyone could change weights; "
                                                         "set WEIGHLOCK_ADMIN_API_KEY or --admin-api-key-file, listen "
                                                         "on --host 127.0.0.1, or, where only friends are, "
                                                         "set AREAL_ALLOW_DEFAULT_ADMIN_KEY=1",
                                                         where, kPublicAdminKey)};
}

}  // namespace

Status admissible(const ServeOptions& options, const Environment& environment,
                  const std::vector<std::string>& own_addresses) {
  if (Status key = check_key(options, environment, own_addresses); !key) return key;
  return check_fence(options.fence);
}

std::vector<std::string> concerns(const ServeOptions& options) {
  std::vector<std::string> found;
  for (const std::string& root : options.storage_roots) {
    struct stat status = {};
    const int failure = ::stat(root.c_str(), &status) != 0 ? errno : S_ISDIR(status.st_mode) ? 0 : ENOTDIR;
    if (failure != 0)
      found.push_back(
          fmt::format("storage_roots '{}': {}: until it is there and mounted on this host, nothing in it "
                      "can be read",
                      root, ::strerrordesc_np(failure)));
  }
  const bool outside = !is_loopback(options.host);
  if (options.admin_api_key == kPublicAdminKey)
    found.push_back("the admin key is the public default: set WEIGHLOCK_ADMIN_API_KEY or admin_api_key_file");
  else if (options.admin_api_key.size() < 16)
    found.push_back(fmt::format("the admin key has only {} characters: use 16 or more", options.admin_api_key.size()));
  if (outside && options.storage_roots.empty())
    found.push_back(
        "storage_roots is empty and the host isn't loopback: clients may name any path that the gateway can read; list "
        "the shared directories");
  if (outside && options.worker_hosts.empty())
    found.push_back(
        "worker_hosts is empty and the host isn't loopback: clients may make the gateway call any address; list the "
        "workers' networks");
  if (options.reply_by_s >= 300)
    found.push_back(
        fmt::format("reply_by {} s isn't below the 300 s after which AReaL's controller gives up", options.reply_by_s));
  return found;
}

}  // namespace weighlock::config
