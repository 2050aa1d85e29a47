// What an inspection found in a version's directory. Values only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weighlock/core/time.hpp"
#include "weighlock/io/file_system.hpp"
#include "weighlock/tensor/layout.hpp"
#include "weighlock/tensor/safetensors.hpp"

namespace weighlock {

// How far a path in a version may lead. `root` is the directory that links mustn't leave ("" = the version's own
// directory); it must be the version's directory or above it. Follow::anywhere is for `ckpt verify --follow` and for a
// start model in a cache.
struct Reach {
  std::string root;
  Follow follow = Follow::beneath;
};

struct InspectOptions {
  Reach reach;
  std::optional<Layout> reference;   // names, shapes and dtypes that the version must have
  bool allow_layout_change = false;  // differences from `reference` become warnings
  bool is_lora = false;              // an adapter: adapter_config.json + adapter_model.safetensors
  std::optional<Layout> lora_base;   // the model that the adapter's names must belong to
  std::optional<std::int64_t> lora_rank_max;
  std::vector<std::string> required_files;  // beside config.json, for example "tokenizer.json"
  Milliseconds wait_visible{2000};          // how long to look again: what another host saved may show late
};

struct InspectedFile {
  std::string name;
  std::uint64_t size = 0;
  bool holds_tensors = false;
  std::string header_digest;         // of a weights file: hex, of the prefix and the JSON
  std::uint64_t data_offset = 0;     // of a weights file
  std::vector<TensorEntry> tensors;  // of a weights file, in the order of their bytes
};

struct Inspection {
  Reach reach;                       // as it was inspected; later reads go by it
  std::vector<InspectedFile> files;  // in the order of names; without subdirectories, hidden files and our own
  Layout layout;
  std::uint64_t tensor_bytes = 0;
  std::uint64_t file_bytes = 0;
  TiedHead tied = TiedHead::unknown;
  bool is_lora = false;
  std::vector<std::string> warnings;  // for people: nothing that stops an update

  const InspectedFile* find_file(std::string_view name) const;
  // The file and the entry that hold the tensor, or nulls.
  struct Place {
    const InspectedFile* file = nullptr;
    const TensorEntry* tensor = nullptr;
  };
  Place find_tensor(std::string_view name) const;
};

}  // namespace weighlock
