// The HTTP request parser: whatever the bytes are, and however they arrive, it sees the same requests within its
// limits.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "check.hpp"
#include "weighlock/net/message_reader.hpp"

namespace weighlock::fuzz {
namespace {

constexpr ReaderLimits kLimits{.header_bytes = 1024, .body_bytes = 2048, .target_bytes = 256, .headers = 16};

// What a connection would see: one line a request, and the refusal that ends it.
std::string requests_in(std::string_view bytes, std::size_t piece) {
  std::string seen;
  std::string buffer;
  auto reader = std::make_unique<RequestReader>(kLimits);
  while (!bytes.empty()) {
    buffer += bytes.substr(0, piece);
    bytes.remove_prefix(std::min(piece, bytes.size()));
    while (true) {
      const std::size_t before = buffer.size();
      const ReadState state = reader->feed(buffer);
      WEIGHLOCK_CHECK(buffer.size() <= before, "a reader only takes bytes away");
      WEIGHLOCK_CHECK(reader->body_bytes() <= kLimits.body_bytes, "a body stays within its limit");
      if (state == ReadState::failed) {
        WEIGHLOCK_CHECK(reader->refusal_status() >= 400 && reader->refusal_status() < 500, "a refusal has a status");
        WEIGHLOCK_CHECK(!reader->refusal().empty(), "a refusal says why");
        return seen + std::to_string(reader->refusal_status());
      }
      if (state == ReadState::more) {
        WEIGHLOCK_CHECK(buffer.size() <= kLimits.header_bytes,
                        "what waits in the buffer stays within the header's limit");
        break;
      }
      const HttpRequest request = reader->take();
      WEIGHLOCK_CHECK(request.target.starts_with('/') || request.target == "*", "a target is in origin form");
      WEIGHLOCK_CHECK(request.headers.size() <= kLimits.headers, "headers stay within their limit");
      seen += request.method + " " + request.target + " " + request.body + " " +
              std::to_string(request.headers.size()) + "\n";
      reader = std::make_unique<RequestReader>(kLimits);
      if (buffer.empty()) break;
    }
  }
  return seen;
}

// Too much is too much at another byte when it comes in other pieces: only the kind of the refusal is compared.
std::string without_size_refusal(std::string seen) {
  for (const char* status : {"413", "414", "431"}) {
    if (seen.ends_with(status)) return seen.substr(0, seen.size() - 3) + "4xx";
  }
  return seen.ends_with("400") ? seen.substr(0, seen.size() - 3) + "4xx" : seen;
}

// A refusal may come as soon as its reason was read, or with the rest of the header; where the bytes end before that,
// one has refused what the other still waits for.
bool same(const std::string& a, const std::string& b) {
  const std::string& longer = a.size() < b.size() ? b : a;
  const std::string& shorter = a.size() < b.size() ? a : b;
  return longer == shorter || (longer.size() == shorter.size() + 3 && longer.starts_with(shorter) &&
                               longer.find_last_of('\n') + 4 == longer.size());
}

}  // namespace
}  // namespace weighlock::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weighlock::fuzz;
  if (size == 0) return 0;
  const std::string_view bytes = text_of(data + 1, size - 1);
  const std::string whole = without_size_refusal(requests_in(bytes, bytes.size() + 1));
  const std::string pieces = without_size_refusal(requests_in(bytes, data[0] % 64 + 1));
  WEIGHLOCK_CHECK(same(whole, pieces), "requests are the same however their bytes arrive");
  return 0;
}
