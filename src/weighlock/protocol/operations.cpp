// What an update asks of a worker in its pipeline.
#include "weighlock/protocol/phases.hpp"

namespace weighlock::protocol {

Operation label_operation(std::string label) {
  Operation operation;
  operation.kind = OperationKind::set_label;
  operation.label = std::move(label);
  return operation;
}

Operation load_operation(const Update& update) {
  Operation operation;
  operation.kind = OperationKind::load;
  operation.directory = update.version.directory;
  operation.label = update.version.label;
  operation.pause_mode = update.policy.pause_mode;
  if (trusts_answers(update)) operation.evidence = Evidence::acknowledged;
  if (update.transfer) {
    operation.transfer = update.version.version;
    operation.label.clear();  // a collective writes none
  }
  return operation;
}

Operation flush_operation(const Update& update) {
  Operation operation;
  operation.kind = OperationKind::flush;
  operation.pause_mode = update.policy.pause_mode;
  return operation;
}

}  // namespace weighlock::protocol
