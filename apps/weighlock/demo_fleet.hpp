// The programs of the demo: a trainer of two ranks, three engines, a gateway; all on loopback, any free ports, one
// temporary directory. Thread rule: one thread. Destroying it ends the programs and removes the directory.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "process.hpp"
#include "rollouts.hpp"
#include "weighlock/core/http.hpp"
#include "weighlock/core/result.hpp"

namespace weighlock::cli {

class DemoFleet {
 public:
  // `programs` is the directory of weighlock, tinyengine and tinytrainer; `say` is told what starts.
  static Result<DemoFleet> start(const std::string& programs, const std::function<void(const std::string&)>& say);

  Url gateway;
  std::string admin_key;
  std::string save_path;
  std::vector<Url> trainers;
  std::vector<DemoEngine> engines;

  // Ends the gateway first; an unclean end is an error.
  Status stop();
  // The last lines that each program wrote.
  std::string logs() const;

 private:
  struct Directory;
  std::shared_ptr<Directory> directory_;  // before the processes: it goes after them
  Process trainer_process_;
  Process engine_process_;
  Process gateway_process_;
};

}  // namespace weighlock::cli
