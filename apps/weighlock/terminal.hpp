// Where a command writes: the result on `out`, progress and log on `err`. Streams, so that tests can read them.
#pragma once

#include <iosfwd>
#include <string>

#include "arguments.hpp"
#include "weighlock/client/client.hpp"
#include "weighlock/core/json.hpp"

namespace weighlock::cli {

struct Terminal {
  std::ostream& out;
  std::ostream& err;
  bool live = false;  // `err` is a terminal: a line may be written over
};

// Tells the error (JSON goes to `out`, text to `err`) and gives the exit code that belongs to it.
int report(Terminal& terminal, const Error& error, bool json);
void print_json(Terminal& terminal, const json::value& value);

client::Settings client_settings(const GatewayArguments& arguments);

// Each command: 0, or an exit code of the error table.
int run_config(const ConfigArguments& arguments, Terminal& terminal);
int run_connect(const ConnectArguments& arguments, Terminal& terminal);
int run_disconnect(const DisconnectArguments& arguments, Terminal& terminal);
int run_cancel(const CancelArguments& arguments, Terminal& terminal);
int run_update(const UpdateArguments& arguments, Terminal& terminal);
int run_rollback(const RollbackArguments& arguments, Terminal& terminal);
int run_workers(const WorkersArguments& arguments, Terminal& terminal);
int run_versions(const VersionsArguments& arguments, Terminal& terminal);
int run_journal(const JournalArguments& arguments, Terminal& terminal);
int run_status(const StatusArguments& arguments, Terminal& terminal);
int run_history(const HistoryArguments& arguments, Terminal& terminal);
int run_watch(const WatchArguments& arguments, Terminal& terminal);
int run_checkpoint(const CheckpointArguments& arguments, Terminal& terminal);
int run_plan(const PlanArguments& arguments, Terminal& terminal);
int run_demo(const DemoArguments& arguments, Terminal& terminal);

}  // namespace weighlock::cli
