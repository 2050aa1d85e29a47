#include "weighlock/store/inspection.hpp"

#include <algorithm>

namespace weighlock {

const InspectedFile* Inspection::find_file(std::string_view name) const {
  const auto found =
      std::find_if(files.begin(), files.end(), [&](const InspectedFile& file) { return file.name == name; });
  return found == files.end() ? nullptr : &*found;
}

Inspection::Place Inspection::find_tensor(std::string_view name) const {
  for (const InspectedFile& file : files) {
    for (const TensorEntry& tensor : file.tensors) {
      if (tensor.name == name) return {&file, &tensor};
    }
  }
  return {};
}

}  // namespace weighlock
