#include "run.hpp"

#include <ostream>

namespace weighlock::cli {
namespace {

struct Runner {
  Terminal& terminal;
  const Serve& serve;
  const Finish& finish;

  static void warn(std::ostream& err, const config::Loaded& loaded) {
    for (const std::string& warning : loaded.warnings) err << "weighlock: warning: " << warning << "\n";
  }
  int operator()(const ServeArguments& arguments) const {
    warn(terminal.err, arguments.loaded);
    for (const std::string& concern : config::concerns(arguments.loaded.options))
      terminal.err << "weighlock: warning: " << concern << "\n";
    terminal.err << std::flush;
    return serve(arguments.loaded.options);
  }
  int operator()(const FinishArguments& arguments) const {
    warn(terminal.err, arguments.loaded);
    return finish(arguments, terminal);
  }
  int operator()(const ConfigArguments& arguments) const { return run_config(arguments, terminal); }
  int operator()(const ConnectArguments& arguments) const { return run_connect(arguments, terminal); }
  int operator()(const DisconnectArguments& arguments) const { return run_disconnect(arguments, terminal); }
  int operator()(const CancelArguments& arguments) const { return run_cancel(arguments, terminal); }
  int operator()(const UpdateArguments& arguments) const { return run_update(arguments, terminal); }
  int operator()(const RollbackArguments& arguments) const { return run_rollback(arguments, terminal); }
  int operator()(const WorkersArguments& arguments) const { return run_workers(arguments, terminal); }
  int operator()(const VersionsArguments& arguments) const { return run_versions(arguments, terminal); }
  int operator()(const JournalArguments& arguments) const { return run_journal(arguments, terminal); }
  int operator()(const StatusArguments& arguments) const { return run_status(arguments, terminal); }
  int operator()(const HistoryArguments& arguments) const { return run_history(arguments, terminal); }
  int operator()(const WatchArguments& arguments) const { return run_watch(arguments, terminal); }
  int operator()(const CheckpointArguments& arguments) const { return run_checkpoint(arguments, terminal); }
  int operator()(const PlanArguments& arguments) const { return run_plan(arguments, terminal); }
  int operator()(const DemoArguments& arguments) const { return run_demo(arguments, terminal); }
};

}  // namespace

int run(const std::vector<std::string>& arguments, const Surroundings& surroundings, Terminal& terminal,
        const Serve& serve, const Finish& finish) {
  const std::variant<Command, Ended> parsed = parse(arguments, surroundings);
  if (const Ended* ended = std::get_if<Ended>(&parsed)) {
    if (ended->json) {
      print_json(terminal,
                 json::object{{"error", json::object{{"code", "invalid_argument"}, {"message", ended->text}}}});
    } else {
      (ended->exit_code == 0 ? terminal.out : terminal.err) << ended->text << std::flush;
    }
    return ended->exit_code;
  }
  return std::visit(Runner{terminal, serve, finish}, std::get<Command>(parsed));
}

}  // namespace weighlock::cli
