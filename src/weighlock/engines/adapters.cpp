#include "weighlock/engines/adapters.hpp"

namespace weighlock {
namespace {

const json::array* entries_of(const json::value& models) {
  const json::value* data = find(models, "data");
  return data ? data->if_array() : nullptr;
}

bool is_adapter(const json::value& entry) {
  const json::value* parent = find(entry, "parent");
  return parent && !parent->is_null();
}

}  // namespace

std::optional<std::vector<LoadedAdapter>> adapters_of(const json::value& models) {
  const json::array* list = entries_of(models);
  if (!list) return std::nullopt;
  std::vector<LoadedAdapter> adapters;
  for (const json::value& entry : *list) {
    const auto id = find_string(entry, "id");
    if (id && is_adapter(entry))
      adapters.push_back({std::string(*id), std::string(find_string(entry, "root").value_or(""))});
  }
  return adapters;
}

const json::value* base_model_of(const json::value& models) {
  const json::array* list = entries_of(models);
  if (!list) return nullptr;
  for (const json::value& entry : *list) {
    if (find_string(entry, "id") && !is_adapter(entry)) return &entry;
  }
  return nullptr;
}

}  // namespace weighlock
