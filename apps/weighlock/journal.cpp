// `weighlock journal inspect`: reads the files itself; no gateway is asked.
#include <fmt/format.h>

#include <ostream>

#include "table.hpp"
#include "terminal.hpp"
#include "weighlock/journal/inspection.hpp"

namespace weighlock::cli {
namespace {

constexpr int kDamaged = 1;

// What a record is about, each part only where there is one.
std::string about(const protocol::Record& record) {
  std::string text;
  const auto add = [&](std::string_view word, const std::string& value) {
    if (!value.empty()) text += fmt::format(" {}={}", word, one_line(value));
  };
  add("pair", record.pair);
  add("update", record.update);
  add("worker", record.worker);
  return text;
}

class Printer {
 public:
  Printer(const JournalArguments& arguments, Terminal& terminal) : arguments_(arguments), terminal_(terminal) {}

  void row(const InspectedRow& row) {
    if (!arguments_.json) {
      for (const JournalFault& fault : row.faults) terminal_.out << "DAMAGE  " << one_line(fault.text) << "\n";
    }
    if (row.body.empty() && !row.entry) return;  // a place that can't be read
    const bool other = !arguments_.pair.empty() && (!row.entry || row.entry->record.pair != arguments_.pair);
    if (row.number < arguments_.from || other) return;
    arguments_.json ? as_json(row) : as_text(row);
  }

  int end(const JournalInspection& seen) {
    const bool sound = seen.faults.empty();
    if (arguments_.json) {
      json::array faults;
      for (const JournalFault& fault : seen.faults)
        faults.push_back(json::object{{"number", fault.number}, {"damage", name(fault.damage)}, {"text", fault.text}});
      print_json(terminal_, json::object{{"journal", seen.path},
                                         {"sound", sound},
                                         {"readable", seen.readable},
                                         {"good_before", seen.good_before},
                                         {"faults", std::move(faults)},
                                         {"records", std::move(records_)}});
    } else {
      const std::string ground =
          sound ? fmt::format("sound: {} records", seen.readable)
                : fmt::format("damaged in {} places: records 1 to {} are whole, {} can be read in all",
                              seen.faults.size(), seen.good_before, seen.readable);
      terminal_.out << fmt::format("{}: {}\n", seen.path, ground);
    }
    return sound ? 0 : kDamaged;
  }

 private:
  void as_text(const InspectedRow& row) {
    if (!row.entry) {
      terminal_.out << fmt::format("{:>8}  (not to be trusted)  {}\n", row.number, one_line(row.body));
      return;
    }
    const JournalEntry& entry = *row.entry;
    terminal_.out << fmt::format("{:>8}  {}  {}{}  {}\n", row.number, time_text(entry.wall_ms), name(entry.record.kind),
                                 about(entry.record), one_line(json::serialize(entry.record.body)));
  }

  void as_json(const InspectedRow& row) {
    if (!row.entry) {
      records_.push_back(json::object{{"number", row.number}, {"trusted", false}, {"stored", row.body}});
      return;
    }
    const JournalEntry& entry = *row.entry;
    records_.push_back(json::object{{"number", row.number},
                                    {"trusted", true},
                                    {"time", time_text(entry.wall_ms)},
                                    {"kind", name(entry.record.kind)},
                                    {"pair", entry.record.pair},
                                    {"update", entry.record.update},
                                    {"worker", entry.record.worker},
                                    {"body", entry.record.body}});
  }

  const JournalArguments& arguments_;
  Terminal& terminal_;
  json::array records_;
};

}  // namespace

int run_journal(const JournalArguments& arguments, Terminal& terminal) {
  Printer printer(arguments, terminal);
  const Result<JournalInspection> seen =
      inspect_journal(arguments.place, [&](const InspectedRow& row) { printer.row(row); });
  if (!seen) return report(terminal, seen.error(), arguments.json);
  return printer.end(*seen);
}

}  // namespace weighlock::cli
