// How one engine is set up. Values.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "weighlock/core/operation.hpp"
#include "weighlock/core/time.hpp"

namespace weighlock::tiny {

// How long the real engines take, as measured (contracts); tests scale them down.
struct EngineTimings {
  Milliseconds pause_poll{1000};      // SGLang looks once a second whether the aborted requests have ended
  Milliseconds health_poll{1000};     // SGLang's /health takes at least so long
  Milliseconds health_limit{20'000};  // ... and gives up after so long
  Milliseconds sglang_death{5700};    // from the fatal load to the closed connection
  Milliseconds sglang_killed{6500};   // from the end of the scheduler by a signal to the closed connections
  Milliseconds vllm_death{100};       // 503 for so long, then refused
  Milliseconds hub_lookup{2000};      // vLLM asks a hub about a directory that isn't there
  Milliseconds server_info{2800};     // vLLM collects its environment
  Milliseconds load{0};               // added to each load
  Milliseconds step_least{0};         // a generation step takes at least so long

  EngineTimings scaled(double factor) const {
    const auto by = [factor](Milliseconds m) {
      return Milliseconds{static_cast<std::int64_t>(static_cast<double>(m.count()) * factor)};
    };
    EngineTimings t = *this;
    for (Milliseconds* m : {&t.pause_poll, &t.health_poll, &t.health_limit, &t.sglang_death, &t.sglang_killed,
                            &t.vllm_death, &t.hub_lookup, &t.server_info}) {
      *m = by(*m);
    }
    return t;
  }
};

// What an engine's options say of LoRA adapters.
struct AdapterSettings {
  std::size_t rank_max = 0;                                   // 0: LoRA is off
  std::size_t loaded_max = 0;                                 // SGLang --max-loaded-loras; 0: no limit
  std::size_t cached_max = 0;                                 // vLLM --max-cpu-loras; 0: no limit
  std::vector<std::pair<std::string, std::string>> at_start;  // name and directory
};

struct EngineSettings {
  DialectKind dialect = DialectKind::sglang;
  std::string model_directory;
  std::string host = "127.0.0.1";
  int port = 0;
  std::string served_model_name;  // "": the model directory
  std::string api_key;            // "": none asked for
  std::string admin_api_key;      // SGLang only
  int world_size = 1;             // vLLM: how many nulls a reload answers
  AdapterSettings adapters;
  EngineTimings timings;
};

}  // namespace weighlock::tiny
