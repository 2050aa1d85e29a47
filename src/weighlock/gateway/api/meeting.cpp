#include "weighlock/gateway/api/meeting.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "weighlock/core/url.hpp"
#include "weighlock/core/words.hpp"

namespace weighlock {
namespace {

// A host as parse_url normalises it.
bool leads_to_itself(std::string_view host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.") || host.starts_with("::ffff:127.");
}

std::string host_of(const std::string& url) {
  const Result<Url> parsed = parse_url(url);
  return parsed ? parsed->host : url;
}

}  // namespace

std::optional<FieldError> check_meeting(const protocol::PairSpec& spec, const std::vector<std::string>& workers) {
  if (!spec.awex || spec.awex->colocate || !spec.awex->master_addr.empty() || workers.empty()) return std::nullopt;
  const std::string meeting = host_of(workers.front());
  if (!leads_to_itself(meeting)) return std::nullopt;
  for (const auto* urls : {&workers, &spec.trainer_urls}) {
    const auto other =
        std::find_if(urls->begin(), urls->end(), [](const std::string& url) { return !leads_to_itself(host_of(url)); });
    if (other == urls->end()) continue;
    return FieldError{
        "inference_worker_urls",
        Error{ErrorCode::invalid_argument,
              fmt::format("inference_worker_urls: all ranks meet at the first of them, and {} is another host for {} "
                          "than for itself; give the address by which every worker reaches it, in its URL or as "
                          "nccl_master_addr",
                          printable(meeting), printable(*other))}};
  }
  return std::nullopt;
}

}  // namespace weighlock
