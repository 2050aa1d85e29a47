// For tests: whole commands against a gateway in this process, which answers as the test says.
#pragma once

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "run.hpp"
#include "weighlock/client/scripted_gateway.hpp"

namespace weighlock::cli {

inline std::string update_body(const std::string& state, const std::string& phase, const std::string& error = "null") {
  return R"({"id":"b-1","pair":"actor","version":3,"attempt":1,"state":")" + state + R"(","phase":")" + phase +
         R"(","phases":[{"name":"preparing","duration_ms":3100},{"name":"loading","duration_ms":400}],)" +
         R"("pause_ms":420,"bytes":1200,"error":)" + error +
         R"(,"workers":[{"id":"g0:1","url":"http://g0:1","verdict":"verified","evidence":"spot","duration_ms":40,"cause":null},
                        {"id":"g1:1","url":"http://g1:1","verdict":"torn","evidence":"none","duration_ms":null,
                         "cause":{"code":"load_failed","message":"400 \"size\nmismatch\"","since":"2026-01-01T00:00:00Z"}}]})";
}

inline const char* const kPair =
    R"({"name":"actor","mode":"disk","lineage":1,"committed":2,"state":"idle","rollback":"available",
                              "workers":{"total":2,"ready":1,"quarantined":1},"settings":{},
                              "transfer":{"colocate":true,"group":"g-7"},
                              "last_update":{"version":3,"rollback":false,"state":"rejected","phase":null,
                                "ended_at":"2026-01-01T00:00:09Z","error":"a save still runs on http://t:1"}})";
inline const char* const kWorkers =
    R"({"items":[{"id":"g0:1","url":"http://g0:1","dialect":"sglang","state":"ready","version":2,"incarnation":"i","cause":null},
    {"id":"g1:1","url":"http://g1:1","dialect":"vllm","state":"quarantined","version":null,"incarnation":"i",
     "cause":{"code":"needs_restart","message":"wrong shape","since":"2026-01-01T00:00:00Z"}}],"next":null})";

class Commands : public ::testing::Test {
 protected:
  int run(std::vector<std::string> arguments, bool live = false) {
    arguments.insert(arguments.end(), {"--gateway", gateway_.url_text()});
    out_.str("");
    err_.str("");
    Surroundings surroundings{[](std::string_view) { return std::nullopt; }, {}};
    Terminal terminal{out_, err_, live};
    return cli::run(arguments, surroundings, terminal, [](const config::ServeOptions&) { return 0; });
  }
  client::ScriptedGateway gateway_;
  std::ostringstream out_, err_;
};

}  // namespace weighlock::cli
