// The whole gateway: builds the parts, hands them to each other, answers requests, stops in order.
//
// Thread rule: loop thread only. `loop` outlives it. Destroying it closes every connection; what the machine had begun
// is left as the journal says.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weighlock/awex/repair.hpp"
#include "weighlock/core/limits.hpp"
#include "weighlock/core/result.hpp"
#include "weighlock/core/time.hpp"
#include "weighlock/engines/conversation.hpp"
#include "weighlock/gateway/leaving.hpp"
#include "weighlock/gateway/meta_store.hpp"
#include "weighlock/io/file_system.hpp"
#include "weighlock/journal/journal.hpp"
#include "weighlock/net/server.hpp"
#include "weighlock/runtime/loop.hpp"

namespace weighlock {

struct GatewaySettings {
  std::string host = "127.0.0.1";  // an address
  int port = 0;                    // 0: any free one
  int socket = -1;                 // HttpServer::bind's, if whoever started this process lends one
  int holder = 0;                  // the process that others are told to end; 0: this one
  std::string admin_api_key;       // never empty
  std::string state_dir;           // "" = nothing is kept over a restart
  std::vector<std::string> storage_roots;
  std::vector<std::string> worker_hosts;
  std::string fence;                     // fence.hpp
  Credentials engine_credentials;        // for workers that name no keys of their own
  Milliseconds update_timeout{120'000};  // raises the save and load deadlines of new pairs, never lowers them
  Milliseconds reply_by{280'000};
  std::string kv_store_url;            // how AWEX workers reach us; "" = the address by which we reached each
  Milliseconds init_timeout{300'000};  // of each step in which an AWEX pair's workers are brought together
  std::size_t report_bytes_max = limits::kReportBytesMax;    // of an AWEX worker's metadata; tests set smaller ones
  std::size_t reports_bytes_max = limits::kReportsBytesMax;  // ... of all that are being read
  std::size_t list_bytes_max = limits::kListBytesMax;        // of all AWEX groups' lists
  std::size_t proven_pairs_max = limits::kProvenPairsMax;  // of parts of an AWEX pair's tensors; tests set smaller ones
  std::function<decltype(awex::repair)> awex_put_right;    // for tests of a mistake; default: awex::repair
  Milliseconds transfer_failure_grace{limits::kTransferGrace};  // tests set a smaller one
  Milliseconds watch_period{limits::kWatchPeriod};              // tests set smaller ones
  Milliseconds idle_watch_period{limits::kIdleWatchPeriod};     // likewise
  Milliseconds watch_read_timeout{limits::kWatchReadTimeout};
  int compat_error_status = 200;
  ServerLimits limits;  // tests set smaller ones
  // For tests; default: log and _exit(70).
  std::function<void(const Error&)> journal_failed;
  // For tests: file calls and groups of records that fail. Default: the real ones. Borrowed; any thread.
  FileSystem* files = nullptr;
  std::function<std::unique_ptr<Journal>(std::unique_ptr<Journal>)> around_journal;
  // For tests: a mount that hangs. Default: credentials.hpp's.
  std::function<std::optional<std::string>(const std::string& path)> read_key_file;
};

class Gateway {
 public:
  // Opens the journal, reads it back and makes the parts; nothing listens yet. Errors: invalid_argument, conflict,
  // journal_failed, journal_corrupt.
  static Result<std::unique_ptr<Gateway>> make(Loop& loop, GatewaySettings settings);
  ~Gateway();
  Gateway(const Gateway&) = delete;
  Gateway& operator=(const Gateway&) = delete;

  // Takes over what the process before left undone, and answers requests from here on. Pairs that are taken over queue
  // their updates meanwhile.
  Status listen();
  int port() const;

  // Takes no new update, undoes or finishes running ones, answers who waits, closes; then `stopped` runs once. Not
  // clean: that was not done within limits::kStopBudget. What is left is in the journal and was told in the log; the
  // process leaves without destroying the gateway, since a disk may hold one of its threads.
  void stop(std::function<void(bool clean)> stopped);

  // Instead of listening: ends what the process before left undone, within the deadlines of its updates, and takes no
  // new ones. `done` runs once, with each worker that was in hand or is held paused.
  void finish(std::function<void(const std::vector<FinishedWorker>&)> done);

 private:
  struct Implementation;
  explicit Gateway(std::unique_ptr<Implementation> implementation);
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace weighlock
