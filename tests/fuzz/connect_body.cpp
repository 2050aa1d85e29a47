// The bodies of the compatible API: any bytes become a spec within its limits, or a 4xx in JSON.
#include "weighlock/gateway/api/connect_body.hpp"

#include "check.hpp"
#include "weighlock/core/json.hpp"
#include "weighlock/core/limits.hpp"
#include "weighlock/core/url.hpp"
#include "weighlock/gateway/api/lax_body.hpp"

namespace weighlock::fuzz {
namespace {

constexpr const char* kKey = "key";

const Confinement& confinement() {
  static const Confinement made = *Confinement::make({"gpu1", "10.0.0.0/8", "127.0.0.0/8", "fd00::/8"}, {"/shared"});
  return made;
}

void check_refusal(const HttpResponse& refusal) {
  WEIGHLOCK_CHECK(refusal.status >= 400 && refusal.status < 500, "a bad body is the client's fault");
  WEIGHLOCK_CHECK(parse_json(refusal.body, "answer").has_value(), "a refusal is JSON");
}

void check_spec(const protocol::PairSpec& spec) {
  WEIGHLOCK_CHECK(!spec.name.empty() && spec.name.size() <= limits::kNameBytesMax, "a pair's name is short");
  WEIGHLOCK_CHECK(confinement().check_directory(spec.save_path, "save_path"), "the path is within the roots");
  WEIGHLOCK_CHECK(!spec.workers.empty() && !spec.trainer_urls.empty(), "nobody is missing");
  for (const protocol::WorkerSpec& worker : spec.workers) {
    const Result<Url> url = parse_url(worker.url);
    WEIGHLOCK_CHECK(url && url->text == worker.url, "URLs are in their canonical form");
    WEIGHLOCK_CHECK(confinement().check_host(*url), "workers are within worker_hosts");
  }
}

}  // namespace
}  // namespace weighlock::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weighlock;
  HttpRequest request;
  request.method = "POST";
  request.headers = {{"Authorization", std::string("Bearer ") + fuzz::kKey}};
  if (size > 0 && data[0] == '!') {  // as a text of another type
    request.headers.push_back({"Content-Type", "text/plain"});
    ++data, --size;
  }
  request.body = fuzz::text_of(data, size);
  protocol::PairSpec spec;
  const auto refusal = read_connect_request(request, fuzz::kKey, fuzz::confinement(), protocol::Policy{}, spec);
  if (refusal)
    fuzz::check_refusal(*refusal);
  else
    fuzz::check_spec(spec);
  LaxBody update(request);
  update.text("pair_name");
  update.whole("version", 0);
  if (const auto failure = update.refusal()) fuzz::check_refusal(*failure);
  return 0;
}
