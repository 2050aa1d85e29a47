// URLs: what is taken has one text, which is taken as itself, and no spelling leads to an address that is never called.
#include "weighlock/core/url.hpp"

#include <netdb.h>

#include "check.hpp"
#include "weighlock/core/words.hpp"
#include "weighlock/gateway/confinement.hpp"
#include "weighlock/net/socket.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weighlock;
  const Result<Url> url = parse_url(fuzz::text_of(data, size));
  if (!url) {
    WEIGHLOCK_CHECK(!url.error().message.empty(), "a refusal says why");
    return 0;
  }
  const Result<Url> again = parse_url(url->text);
  WEIGHLOCK_CHECK(again && again->text == url->text && again->host == url->host, "one worker has one text");
  WEIGHLOCK_CHECK(is_utf8(url->text) && url->text.size() < 4096, "it can be shown");
  static const Confinement any = *Confinement::make({}, {});
  if (!any.check_host(*url)) return 0;
  // The system's own reader of numbers must not see an address that ours took for a name.
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (getaddrinfo(url->host.c_str(), nullptr, &hints, &found) != 0) return 0;
  SocketAddress address;
  address.size = found->ai_addrlen;
  __builtin_memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
  WEIGHLOCK_CHECK(numeric_address(url->host, 0).has_value(), "an address is seen as one");
  WEIGHLOCK_CHECK(any.may_be_called(url->host, address), "what is let through may be called");
  return 0;
}
