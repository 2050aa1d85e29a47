#include "weighlock/gateway/confinement.hpp"

#include <gtest/gtest.h>

#include "weighlock/core/url.hpp"

namespace weighlock {
namespace {

bool allowed(const std::vector<std::string>& hosts, const char* url) {
  return Confinement::make(hosts, {})->check_host(*parse_url(url)).has_value();
}
bool taken(const std::vector<std::string>& roots, const char* path) {
  return Confinement::make({}, roots)->check_directory(path, "save_path").has_value();
}

TEST(Confinement, without_lists_any_host_but_link_local_and_metadata_is_allowed) {
  EXPECT_TRUE(allowed({}, "http://10.1.2.3:1"));
  EXPECT_TRUE(allowed({}, "http://gpu1:1"));
  EXPECT_TRUE(allowed({}, "http://[::1]:1"));
  EXPECT_FALSE(allowed({}, "http://169.254.169.254"));
  EXPECT_FALSE(allowed({}, "http://169.254.1.1:80"));
  EXPECT_FALSE(allowed({}, "http://0xa9fea9fe"));  // the same address, spelled otherwise
  EXPECT_FALSE(allowed({}, "http://[::ffff:169.254.169.254]"));
  EXPECT_FALSE(allowed({}, "http://[fe80::1]:1"));
  EXPECT_FALSE(allowed({}, "http://metadata.google.internal"));
}

TEST(Confinement, lists_allow_names_suffixes_addresses_and_ranges) {
  const std::vector<std::string> hosts{"gpu1", "*.cluster.local", "10.0.0.0/8", "192.168.1.5", "fd00::/8"};
  EXPECT_TRUE(allowed(hosts, "http://GPU1:1"));
  EXPECT_TRUE(allowed(hosts, "http://a.b.cluster.local:1"));
  EXPECT_TRUE(allowed(hosts, "http://10.255.0.1:1"));
  EXPECT_TRUE(allowed(hosts, "http://192.168.1.5:1"));
  EXPECT_TRUE(allowed(hosts, "http://[fd12::1]:1"));
  EXPECT_FALSE(allowed(hosts, "http://gpu2:1"));
  EXPECT_FALSE(allowed(hosts, "http://cluster.local:1"));
  EXPECT_FALSE(allowed(hosts, "http://evilcluster.local:1"));
  EXPECT_FALSE(allowed(hosts, "http://11.0.0.1:1"));
  EXPECT_FALSE(allowed(hosts, "http://192.168.1.6:1"));
  EXPECT_FALSE(allowed({"169.254.0.0/16"}, "http://169.254.169.254"));
}

TEST(Confinement, bad_entries_are_named) {
  for (const char* bad : {"10.0.0.0/33", "gpu/8", "10.0.0.0/x", ""}) EXPECT_FALSE(Confinement::make({bad}, {})) << bad;
  EXPECT_FALSE(Confinement::make({}, {"relative"}));
}

TEST(Confinement, directories_stay_beneath_the_roots) {
  EXPECT_TRUE(taken({}, "/anything"));
  EXPECT_FALSE(taken({}, "relative"));
  EXPECT_FALSE(taken({}, "/a/../b"));
  EXPECT_TRUE(taken({"/shared"}, "/shared"));
  EXPECT_TRUE(taken({"/shared/"}, "/shared/w"));
  EXPECT_TRUE(taken({"/"}, "/x"));
  EXPECT_FALSE(taken({"/shared"}, "/sharedx"));
  EXPECT_FALSE(taken({"/shared"}, "/other"));
}

}  // namespace
}  // namespace weighlock
