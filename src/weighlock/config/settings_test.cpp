#include "weighlock/config/settings.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

namespace weighlock::config {
namespace {

Environment environment_of(std::map<std::string, std::string> values) {
  return [values](std::string_view name) -> std::optional<std::string> {
    const auto found = values.find(std::string(name));
    return found == values.end() ? std::nullopt : std::optional(found->second);
  };
}

const Environment kHome = environment_of({{"HOME", "/home/u"}});

std::string place_of(const Loaded& loaded, std::string_view setting) {
  for (const Origin& origin : loaded.origins) {
    if (origin.setting == setting) return origin.place;
  }
  return "?";
}

Layer flags(std::vector<std::pair<std::string, std::vector<std::string>>> values) {
  return Layer{"flags", std::move(values)};
}

class KeyFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "weighlock_config_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::string write(std::string_view text) {
    const std::string path = directory_ + "/file";
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  std::string directory_;
};

TEST(Settings, defaults_are_those_of_the_specification) {
  const Result<Loaded> loaded = load({}, kHome);
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->options.host, "0.0.0.0");
  EXPECT_EQ(loaded->options.port, 7080);
  EXPECT_EQ(loaded->options.init_timeout_s, 300);
  EXPECT_EQ(loaded->options.update_timeout_s, 120);
  EXPECT_EQ(loaded->options.reply_by_s, 280);
  EXPECT_EQ(loaded->options.compat_error_status, 200);
  EXPECT_EQ(loaded->options.state_dir, "/home/u/.local/state/weighlock/7080");
  EXPECT_EQ(loaded->origins.size(), settings().size());
}

TEST(Settings, later_layers_win_and_each_value_knows_its_place) {
  const Result<Layer> file = parse_toml("port = 1\nhost = \"127.0.0.1\"\nreply_by = 100\n", "/etc/w.toml");
  ASSERT_TRUE(file);
  const Result<EnvironmentLayer> environment = environment_layer({"WEIGHLOCK_PORT=2", "WEIGHLOCK_REPLY_BY=90.5"});
  ASSERT_TRUE(environment);
  const Result<Loaded> loaded = load({*file, environment->layer, flags({{"port", {"3"}}})}, kHome);
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->options.port, 3);
  EXPECT_EQ(loaded->options.reply_by_s, 90.5);
  EXPECT_EQ(loaded->options.host, "127.0.0.1");
  EXPECT_EQ(place_of(*loaded, "port"), "flags");
  EXPECT_EQ(place_of(*loaded, "reply_by"), "environment");
  EXPECT_EQ(place_of(*loaded, "host"), "file /etc/w.toml");
  EXPECT_EQ(place_of(*loaded, "log_level"), "default");
}

TEST(Settings, an_unknown_key_of_the_file_is_refused_with_line_and_suggestion) {
  const Result<Layer> file = parse_toml("port = 1\nstorage_root = [\"/a\"]\n", "w.toml");
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, ErrorCode::unknown_key);
  EXPECT_EQ(file.error().message, "file w.toml:2: unknown key 'storage_root'; did you mean 'storage_roots'?");
}

TEST(Settings, a_wrong_type_or_syntax_in_the_file_names_its_line) {
  EXPECT_EQ(parse_toml("\nport = \"x\"", "w").error().message, "file w:2: port must be a whole number");
  EXPECT_EQ(parse_toml("storage_roots = \"/a\"", "w").error().message,
            "file w:1: storage_roots must be an array of strings");
  EXPECT_EQ(parse_toml("storage_roots = [1]", "w").error().message,
            "file w:1: storage_roots must be an array of strings");
  EXPECT_TRUE(parse_toml("port = ", "w").error().message.starts_with("file w:1: "));
  EXPECT_FALSE(parse_toml("[server]\nport = 1", "w"));
}

TEST(Settings, a_misspelt_variable_is_refused_and_a_stranger_is_left_alone) {
  const auto misspelt = environment_layer({"WEIGHLOCK_STORAGE_ROOT=/a"});
  ASSERT_FALSE(misspelt);
  EXPECT_EQ(misspelt.error().message,
            "environment: WEIGHLOCK_STORAGE_ROOT is no setting; did you mean WEIGHLOCK_STORAGE_ROOTS?");
  const auto stranger =
      environment_layer({"WEIGHLOCK_URL=http://h:1", "WEIGHLOCK_BENCHMARK_FILES=1", "PATH=/bin", "odd"});
  ASSERT_TRUE(stranger);
  EXPECT_TRUE(stranger->layer.values.empty());
}

TEST(Settings, what_kubernetes_injects_is_ignored_with_a_warning) {
  const auto layer = environment_layer(
      {"WEIGHLOCK_PORT=tcp://10.0.0.1:7080", "WEIGHLOCK_SERVICE_HOST=10.0.0.1", "WEIGHLOCK_PORT_7080_TCP=x"});
  ASSERT_TRUE(layer);
  EXPECT_TRUE(layer->layer.values.empty());
  ASSERT_EQ(layer->warnings.size(), 1u);
  EXPECT_NE(layer->warnings[0].find("enableServiceLinks"), std::string::npos);
}

TEST(Settings, lists_come_comma_separated_from_the_environment) {
  const auto layer = environment_layer({"WEIGHLOCK_WORKER_HOSTS=10.0.0.0/8, gpu-1 ,,gpu-2"});
  ASSERT_TRUE(layer);
  const Result<Loaded> loaded = load({layer->layer}, kHome);
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->options.worker_hosts, (std::vector<std::string>{"10.0.0.0/8", "gpu-1", "gpu-2"}));
}

TEST(Settings, numbers_out_of_range_are_refused_with_key_and_value) {
  const auto refused = [](std::string_view key, std::string_view value) {
    const Result<Loaded> loaded = load({flags({{std::string(key), {std::string(value)}}})}, kHome);
    return loaded ? std::string("accepted") : loaded.error().text();
  };
  EXPECT_EQ(refused("port", "65536"), "flags: port: 65536 isn't in 0..65535");
  EXPECT_EQ(refused("port", "70a"), "flags: port: '70a' isn't a whole number");
  EXPECT_EQ(refused("init_timeout", "0"), "flags: init_timeout: 0 s isn't in 0..604800 s");
  EXPECT_EQ(refused("init_timeout", "nan"), "flags: init_timeout: 'nan' isn't a number of seconds");
  EXPECT_EQ(refused("compat_error_status", "302"),
            "flags: compat_error_status: 302 is neither 200 nor an error status (400..599)");
  EXPECT_EQ(refused("log_level", "loud"), "flags: log_level: 'loud' is none of debug, info, warning, error");
  EXPECT_EQ(refused("storage_roots", "w"), "flags: storage_roots: 'w' isn't an absolute path");
  EXPECT_EQ(refused("state_dir", "w"), "state_dir 'w' isn't an absolute path");
  EXPECT_EQ(refused("init_timeout", "300.0"), "accepted");
  EXPECT_EQ(refused("fence", "http://hook:1/fence"), "accepted");
  EXPECT_NE(refused("fence", "fence.sh"), "accepted");
}

TEST(Settings, a_key_flag_is_accepted_and_warned_about) {
  const Result<Loaded> loaded = load({flags({{"admin_api_key", {"sekret"}}})}, kHome);
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->options.admin_api_key, "sekret");
  ASSERT_EQ(loaded->warnings.size(), 1u);
  for (const Origin& origin : loaded->origins) EXPECT_EQ(origin.value.find("sekret"), std::string::npos);
}

TEST_F(KeyFile, a_key_file_beats_a_weaker_layer_and_loses_its_newline) {
  const std::string path = write("from-file\n");
  const auto environment = environment_layer({"WEIGHLOCK_ADMIN_API_KEY=from-environment"});
  const Result<Loaded> loaded = load({environment->layer, flags({{"admin_api_key_file", {path}}})}, kHome);
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->options.admin_api_key, "from-file");
  EXPECT_TRUE(loaded->warnings.empty());
}

TEST_F(KeyFile, keys_for_all_engines_come_from_file_or_environment_and_are_never_shown) {
  const std::string path = write("engine-secret\n");
  const auto environment = environment_layer({"WEIGHLOCK_ENGINE_API_KEY=api-secret"});
  ASSERT_TRUE(environment);
  const Result<Loaded> loaded =
      load({environment->layer, flags({{"engine_admin_key_file", {path}}, {"admin_api_key_file", {path}}})}, kHome);
  ASSERT_TRUE(loaded) << loaded.error().text();
  EXPECT_EQ(loaded->options.engine_admin_key, "engine-secret");
  EXPECT_EQ(loaded->options.engine_api_key, "api-secret");
  EXPECT_TRUE(loaded->warnings.empty());
  for (const Origin& origin : loaded->origins) EXPECT_EQ(origin.value.find("secret"), std::string::npos);
  const Result<Layer> file = parse_toml("engine_admin_key_file = \"" + path + "\"", "w.toml");
  ASSERT_TRUE(file);
  EXPECT_EQ(load({*file}, kHome)->options.engine_admin_key, "engine-secret");
  EXPECT_FALSE(load({flags({{"engine_api_key", {"k"}}, {"engine_api_key_file", {path}}})}, kHome));
  EXPECT_EQ(load({flags({{"engine_api_key", {"two words"}}})}, kHome).error().text(),
            "flags: engine_api_key: has characters that no header can carry");
  EXPECT_EQ(load({flags({{"engine_api_key", {"k"}}})}, kHome)->warnings.size(), 1u);
  EXPECT_EQ(load({}, kHome)->options.engine_admin_key, "");
}

TEST_F(KeyFile, an_empty_missing_or_second_key_is_refused) {
  EXPECT_FALSE(load({flags({{"admin_api_key_file", {write("\n")}}})}, kHome));
  EXPECT_FALSE(load({flags({{"admin_api_key_file", {directory_ + "/none"}}})}, kHome));
  EXPECT_FALSE(load({flags({{"admin_api_key_file", {write("a\nb\n")}}})}, kHome));
  EXPECT_FALSE(load({flags({{"admin_api_key", {"k"}}, {"admin_api_key_file", {write("k")}}})}, kHome));
}

TEST_F(KeyFile, a_settings_file_is_read_from_disk) {
  const Result<Layer> layer = read_toml_file(write("compat = true\n"));
  ASSERT_TRUE(layer);
  EXPECT_EQ(layer->values.size(), 1u);
  EXPECT_FALSE(read_toml_file(directory_ + "/none"));
}

TEST(Settings, the_public_key_is_refused_off_loopback_unless_allowed) {
  const std::vector<std::string> routable = {"127.0.0.1", "10.0.0.7"};
  ServeOptions options;
  EXPECT_FALSE(admissible(options, kHome, routable));
  EXPECT_TRUE(admissible(options, environment_of({{"AREAL_ALLOW_DEFAULT_ADMIN_KEY", "1"}}), routable));
  EXPECT_FALSE(admissible(options, environment_of({{"AREAL_ALLOW_DEFAULT_ADMIN_KEY", "0"}}), routable));
  for (const char* host : {"127.0.0.1", "127.1.2.3", "::1", "localhost"}) {
    options.host = host;
    EXPECT_TRUE(admissible(options, kHome, routable)) << host;
  }
  options.host = "10.0.0.7";
  EXPECT_FALSE(admissible(options, kHome, {"127.0.0.1"}));
  options.admin_api_key = "a-key-of-our-own-0123";
  EXPECT_TRUE(admissible(options, kHome, routable));
}

TEST(Settings, a_wildcard_host_stands_for_the_addresses_of_this_host) {
  ServeOptions options;
  for (const char* host : {"0.0.0.0", "::", "0:0::0"}) {
    options.host = host;
    const Status refused = admissible(options, kHome, {"127.0.0.1", "::1", "10.0.0.7"});
    ASSERT_FALSE(refused) << host;
    EXPECT_NE(refused.error().text().find(std::string("host ") + host + " (here: 10.0.0.7)"), std::string::npos)
        << refused.error().text();
    EXPECT_FALSE(admissible(options, kHome, {"fe80::1"})) << host;
    EXPECT_FALSE(admissible(options, kHome, {})) << host;
    EXPECT_TRUE(admissible(options, kHome, {"127.0.0.1", "::1"})) << host;
  }
}

TEST(Settings, an_open_door_is_a_concern_off_loopback_only) {
  ServeOptions options;
  options.admin_api_key = "a-key-of-our-own-0123";
  EXPECT_EQ(concerns(options).size(), 2u);
  options.storage_roots = {"/tmp"};
  options.worker_hosts = {"10.0.0.0/8"};
  EXPECT_TRUE(concerns(options).empty());
  options.host = "127.0.0.1";
  options.storage_roots.clear();
  EXPECT_TRUE(concerns(options).empty());
}

TEST(Settings, a_storage_root_that_is_not_there_is_a_concern) {
  ServeOptions options;
  options.admin_api_key = "a-key-of-our-own-0123";
  options.host = "127.0.0.1";
  options.storage_roots = {"/tmp", "/no/such/root", "/etc/passwd"};
  const std::vector<std::string> found = concerns(options);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_NE(found[0].find("'/no/such/root': No such file or directory"), std::string::npos) << found[0];
  EXPECT_NE(found[1].find("'/etc/passwd': Not a directory"), std::string::npos) << found[1];
}

TEST(Settings, each_compatible_start_has_a_state_directory_of_its_own) {
  const Environment xdg = environment_of({{"XDG_STATE_HOME", "/state"}});
  EXPECT_EQ(load({}, xdg)->options.state_dir, "/state/weighlock/7080");
  EXPECT_EQ(load({flags({{"compat", {"true"}}})}, xdg)->options.state_dir,
            "/state/weighlock/7080." + std::to_string(::getpid()));
}

TEST(Settings, names_of_flags_and_variables_follow_from_the_table) {
  EXPECT_EQ(flag_name("compat_error_status"), "--compat-error-status");
  EXPECT_EQ(environment_name("storage_roots"), "WEIGHLOCK_STORAGE_ROOTS");
}

}  // namespace
}  // namespace weighlock::config
