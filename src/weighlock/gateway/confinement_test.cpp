#include "weighlock/gateway/confinement.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "weighlock/core/url.hpp"
#include "weighlock/io/temporary_directory.hpp"

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

bool may_be_called(const std::vector<std::string>& hosts, const char* name, const char* address) {
  return Confinement::make(hosts, {})->may_be_called(name, *numeric_address(address, 80));
}

TEST(Confinement, a_name_may_not_lead_to_link_local_and_metadata_addresses) {
  for (const char* good : {"10.1.2.3", "127.0.0.1", "::1", "fd00::7", "64:ff9b::10.1.2.3"})
    EXPECT_TRUE(may_be_called({}, "gpu1", good)) << good;
  for (const char* bad : {"169.254.169.254", "::ffff:169.254.169.254", "fe80::1", "fd00:ec2::254", "100.100.100.200",
                          "0.0.0.0", "::", "::169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::7",
                          "::ffff:0:169.254.169.254", "224.0.0.1", "255.255.255.255", "ff02::1", "168.63.129.16"}) {
    EXPECT_FALSE(may_be_called({}, "gpu1", bad)) << bad;
    EXPECT_FALSE(may_be_called({"gpu1"}, "gpu1", bad)) << bad;
  }
}

TEST(Confinement, an_unlisted_name_is_judged_by_the_ranges_where_it_leads) {
  const std::vector<std::string> hosts{"gpu1", "10.0.0.0/8"};
  const auto proof_needed = [&](const char* url) {
    return Confinement::make(hosts, {})->proof_needed(*parse_url(url));
  };
  EXPECT_TRUE(allowed(hosts, "http://gpu2:1"));
  EXPECT_TRUE(proof_needed("http://gpu2:1"));
  EXPECT_FALSE(proof_needed("http://gpu1:1"));
  EXPECT_FALSE(proof_needed("http://10.1.2.3:1"));
  EXPECT_TRUE(may_be_called(hosts, "gpu2", "10.1.2.3"));
  EXPECT_TRUE(may_be_called(hosts, "gpu2", "::ffff:10.1.2.3"));
  EXPECT_FALSE(may_be_called(hosts, "gpu2", "11.1.2.3"));
  EXPECT_TRUE(may_be_called(hosts, "gpu1", "11.1.2.3"));
  EXPECT_FALSE(allowed({"gpu1"}, "http://gpu2:1"));  // no range that could hold for it
}

TEST(Confinement, lists_allow_names_suffixes_addresses_and_ranges) {
  const std::vector<std::string> hosts{"10.0.0.0/8", "192.168.1.5", "fd00::/8"};
  const std::vector<std::string> names{"gpu1", "*.cluster.local"};
  EXPECT_TRUE(allowed(names, "http://GPU1:1"));
  EXPECT_TRUE(allowed(names, "http://a.b.cluster.local:1"));
  EXPECT_TRUE(allowed(hosts, "http://10.255.0.1:1"));
  EXPECT_TRUE(allowed(hosts, "http://192.168.1.5:1"));
  EXPECT_TRUE(allowed(hosts, "http://[fd12::1]:1"));
  EXPECT_FALSE(allowed(names, "http://gpu2:1"));
  EXPECT_FALSE(allowed(names, "http://cluster.local:1"));
  EXPECT_FALSE(allowed(names, "http://evilcluster.local:1"));
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

TEST(Confinement, a_refusal_says_what_to_list) {
  const Confinement confinement = *Confinement::make({"10.0.0.0/8"}, {"/shared/w"});
  const std::string host = confinement.check_host(*parse_url("http://11.0.0.1:30000")).error().text();
  EXPECT_NE(host.find("--worker-hosts ...,11.0.0.1"), std::string::npos) << host;
  const std::string directory = confinement.check_directory("/shared/out", "path").error().text();
  EXPECT_NE(directory.find("--storage-roots"), std::string::npos) << directory;
  EXPECT_NE(directory.find("/shared/w"), std::string::npos) << directory;
}

// The words of the commands in README's code blocks; a line that ends in a backslash goes on.
std::vector<std::vector<std::string>> commands_of_readme() {
  std::vector<std::vector<std::string>> out(1);
  std::istringstream lines(read_file(WEIGHLOCK_README));
  bool code = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("```") != std::string::npos) code = !code;
    if (!code) continue;
    std::istringstream words(line.substr(0, line.find(" #")));
    bool goes_on = false;
    for (std::string word; words >> word; goes_on = word == "\\")
      if (word != "\\") out.back().push_back(word);
    if (!goes_on) out.emplace_back();
  }
  return out;
}

std::vector<std::string> listed_after(const std::vector<std::string>& words, const std::string& flag) {
  std::vector<std::string> out;
  const auto at = std::find(words.begin(), words.end(), flag);
  if (at == words.end() || at + 1 == words.end()) return out;
  std::istringstream items(*(at + 1));
  for (std::string item; std::getline(items, item, ',');) out.push_back(item);
  return out;
}

TEST(Confinement, what_the_readme_starts_takes_what_the_readme_sends) {
  const auto commands = commands_of_readme();
  std::vector<std::string> hosts;
  std::vector<std::string> roots;
  for (const auto& words : commands) {
    for (std::string& host : listed_after(words, "--worker-hosts")) hosts.push_back(std::move(host));
    for (std::string& root : listed_after(words, "--storage-roots")) roots.push_back(std::move(root));
  }
  ASSERT_FALSE(hosts.empty());
  ASSERT_FALSE(roots.empty());
  int urls = 0;
  int directories = 0;
  for (const auto& words : commands) {
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (words[i].starts_with("http://")) {
        ++urls;
        EXPECT_TRUE(allowed(hosts, words[i].c_str())) << words[i];
      }
      if (i == 0 || (words[i - 1] != "--save-path" && words[i - 1] != "--from")) continue;
      ++directories;
      EXPECT_TRUE(taken(roots, words[i].c_str())) << words[i];
    }
  }
  EXPECT_GE(urls, 6);
  EXPECT_GE(directories, 3);
}

}  // namespace
}  // namespace weighlock
