// The program `weighlock`: the process around run.hpp.
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include "finish.hpp"
#include "run.hpp"
#include "serve.hpp"

extern char** environ;

namespace {

using namespace weighlock;

// The server binds addresses; a name is looked up once, here. Unknown names are left to its error text.
std::string address_of(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return host;
  char text[NI_MAXHOST] = "";
  const int failed = getnameinfo(found->ai_addr, found->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  freeaddrinfo(found);
  return failed == 0 ? text : host;
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> out;
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return out;
  for (const ifaddrs* at = first; at != nullptr; at = at->ifa_next) {
    if (!at->ifa_addr || (at->ifa_flags & IFF_UP) == 0) continue;
    const int family = at->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    char text[NI_MAXHOST] = "";
    if (getnameinfo(at->ifa_addr, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0) out.emplace_back(text);
  }
  freeifaddrs(first);
  return out;
}

int serve(const config::ServeOptions& given) {
  config::ServeOptions options = given;
  options.host = address_of(options.host);
  return run_serve(options);
}

}  // namespace

int main(int argc, char** argv) {
  cli::Surroundings surroundings;
  surroundings.environment = [](std::string_view name) -> std::optional<std::string> {
    const char* value = std::getenv(std::string(name).c_str());
    return value ? std::optional<std::string>(value) : std::nullopt;
  };
  for (char** variable = environ; *variable; ++variable) surroundings.variables.emplace_back(*variable);
  surroundings.own_addresses = own_addresses();
  cli::Terminal terminal{std::cout, std::cerr, isatty(STDERR_FILENO) == 1};
  const int exit_code =
      cli::run(std::vector<std::string>(argv + 1, argv + argc), surroundings, terminal, serve, run_finish);
  std::cout.flush();
  return std::cout.good() ? exit_code : 1;
}
