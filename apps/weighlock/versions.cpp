// `weighlock versions`: what is stored of a pair.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ostream>

#include "explain.hpp"
#include "table.hpp"
#include "terminal.hpp"

namespace weighlock::cli {
namespace {

using Act = VersionsArguments::Act;

constexpr std::size_t kLeasesShown = 3;  // a version may be held by a thousand workers; --json names them all
constexpr std::size_t kDigestShown = 12;

std::string leases_text(const std::vector<std::string>& leases) {
  if (leases.size() <= kLeasesShown) return fmt::format("{}", fmt::join(leases, ", "));
  const auto shown = leases.begin() + static_cast<std::ptrdiff_t>(kLeasesShown);
  return fmt::format("{}, {} more", fmt::join(leases.begin(), shown, ", "), leases.size() - kLeasesShown);
}

int list(client::Client& gateway, const VersionsArguments& arguments, Terminal& terminal) {
  const Result<client::Versions> versions = gateway.versions(arguments.pair);
  if (!versions) return report(terminal, versions.error(), arguments.gateway.json);
  if (arguments.gateway.json) {
    print_json(terminal, versions->raw);
    return 0;
  }
  std::vector<std::vector<std::string>> rows;
  for (const client::StoredVersion& one : versions->items) {
    rows.push_back({fmt::format("v{}", one.version), fmt::format("{}", one.lineage), one.state,
                    one.bytes ? bytes_text(*one.bytes) : "-",
                    one.digest.empty() ? "-" : one.digest.substr(0, kDigestShown),
                    one.removable        ? "nobody"
                    : one.leases.empty() ? "-"
                                         : leases_text(one.leases),
                    one_line(one.directory) + (one.handed_over ? " (handed over)" : "")});
  }
  terminal.out << fmt::format("pair {}: committed {}, workers are healed with {}, the next version is above {}\n",
                              arguments.pair, version_text(versions->committed), version_text(versions->last_good),
                              version_text(versions->highest))
               << table({"VERSION", "LINEAGE", "STATE", "SIZE", "DIGEST", "NEEDED BY", "DIRECTORY"}, rows);
  return 0;
}

int verify(client::Client& gateway, const VersionsArguments& arguments, Terminal& terminal) {
  const Result<json::value> answer = gateway.verify_version(arguments.pair, arguments.version);
  if (!answer) return report(terminal, answer.error(), arguments.gateway.json);
  if (arguments.gateway.json) {
    print_json(terminal, *answer);
    return 0;
  }
  const auto digest = find_string(*answer, "digest");
  terminal.out << fmt::format("v{} of pair {}: {}\n", arguments.version, arguments.pair,
                              digest
                                  ? fmt::format("every byte is as it was sealed, digest {}", *digest)
                                  : std::string("sound; it has no digest, so names, sizes and headers were compared"));
  return 0;
}

int collect(client::Client& gateway, const VersionsArguments& arguments, Terminal& terminal) {
  const Result<std::vector<std::string>> gone = gateway.collect_versions(arguments.pair, arguments.dry_run);
  if (!gone) return report(terminal, gone.error(), arguments.gateway.json);
  if (arguments.gateway.json) {
    json::array directories;
    for (const std::string& one : *gone) directories.push_back(json::string(one));
    print_json(terminal, json::object{{"dry_run", arguments.dry_run}, {"directories", std::move(directories)}});
    return 0;
  }
  for (const std::string& one : *gone)
    terminal.out << (arguments.dry_run ? "would be deleted: " : "deleted: ") << one_line(one) << "\n";
  if (gone->empty()) terminal.out << "nothing: everything that is stored is needed, or among the versions to keep\n";
  return 0;
}

}  // namespace

int run_versions(const VersionsArguments& arguments, Terminal& terminal) {
  client::Client gateway(client_settings(arguments.gateway));
  switch (arguments.act) {
    case Act::verify:
      return verify(gateway, arguments, terminal);
    case Act::collect:
      return collect(gateway, arguments, terminal);
    case Act::list:
      break;
  }
  return list(gateway, arguments, terminal);
}

}  // namespace weighlock::cli
