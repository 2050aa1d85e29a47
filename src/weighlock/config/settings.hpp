// From defaults, TOML file, environment and flags to ServeOptions; later wins, and each value remembers its origin.
//
// Pure but for `read_toml_file`, reading the key files, and looking whether the fence and the storage roots are there.
// Errors are invalid_argument or unknown_key and name the key, the value and where it stands.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weighlock/config/options.hpp"
#include "weighlock/core/result.hpp"

namespace weighlock::config {

enum class Kind { text, whole, seconds, list, flag, secret };

// One row of the table.
struct Setting {
  std::string_view name;  // as in the file; "--save-path" and WEIGHLOCK_SAVE_PATH follow from it
  Kind kind = Kind::text;
  std::string_view help;
  Status (*assign)(ServeOptions&, const std::vector<std::string>& values);
  std::string (*print)(const ServeOptions&);
};

const std::vector<Setting>& settings();
std::vector<std::string_view> setting_names();
// Each secret may be given as NAME_file too, which holds it: the setting that `name` is the file of, or null.
const Setting* secret_of_file(std::string_view name);
std::string flag_name(std::string_view setting);         // "--save-path"
std::string environment_name(std::string_view setting);  // "WEIGHLOCK_SAVE_PATH"

// Values as written in one place. A list has any number of texts, everything else one.
struct Layer {
  std::string place;  // "file /etc/weighlock.toml", "environment", "flags"
  std::vector<std::pair<std::string, std::vector<std::string>>> values;
};

using Environment = std::function<std::optional<std::string>(std::string_view name)>;

Result<Layer> parse_toml(std::string_view text, const std::string& path);
Result<Layer> read_toml_file(const std::string& path);

struct EnvironmentLayer {
  Layer layer;
  std::vector<std::string> warnings;
};
// `variables` is "NAME=value" each, as in environ. A WEIGHLOCK_* name that resembles a setting but is none is an error;
// names of other programs are left alone, and what Kubernetes injects for a service named weighlock
// (WEIGHLOCK_PORT=tcp://...) is ignored with a warning.
Result<EnvironmentLayer> environment_layer(const std::vector<std::string>& variables);

struct Origin {
  std::string setting;
  std::string value;  // for display: secrets are not shown
  std::string place;  // "default", or the layer's
};

struct Loaded {
  ServeOptions options;
  std::vector<Origin> origins;        // one for each setting, in table order
  std::vector<std::string> warnings;  // what is accepted but shouldn't be done
};

// `layers` from weakest to strongest. `environment` is asked for XDG_STATE_HOME and HOME only.
Result<Loaded> load(const std::vector<Layer>& layers, const Environment& environment);

// What is refused at start: a fence program that can't be run; the public key off loopback, unless
// AREAL_ALLOW_DEFAULT_ADMIN_KEY=1. A wildcard host stands for `own_addresses`, those of this host's interfaces; where
// none are known, for one that can be reached.
Status admissible(const ServeOptions& options, const Environment& environment,
                  const std::vector<std::string>& own_addresses);
// What works but leaves a door open, or won't work as things stand; each with its remedy.
std::vector<std::string> concerns(const ServeOptions& options);

bool is_loopback(std::string_view host);

}  // namespace weighlock::config
