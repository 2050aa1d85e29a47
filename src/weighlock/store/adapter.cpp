#include "weighlock/store/adapter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "weighlock/tensor/quote.hpp"

namespace weighlock {
namespace {

Error invalid(std::string message) {
  return Error{ErrorCode::checkpoint_invalid, std::move(message)};
}

// The two halves of one module's update.
struct Halves {
  const TensorLayout* a = nullptr;
  const TensorLayout* b = nullptr;
};

struct Part {
  std::string_view suffix;
  bool is_a;
};

constexpr std::array<Part, 4> kParts = {
    {{".lora_A.weight", true}, {".lora_B.weight", false}, {".lora_embedding_A", true}, {".lora_embedding_B", false}}};

const Part* part_of(std::string_view name) {
  for (const Part& part : kParts) {
    if (name.ends_with(part.suffix)) return &part;
  }
  return nullptr;
}

bool has_entries(const json::value& config, std::string_view key) {
  const json::value* value = find(config, key);
  if (value == nullptr) return false;
  if (value->is_array()) return !value->get_array().empty();
  return value->is_object() && !value->get_object().empty();
}

Status check_config(const json::value& config, std::int64_t rank, const InspectOptions& options) {
  if (rank <= 0) return invalid(fmt::format("adapter_config.json: 'r' is {}, not positive", rank));
  if (options.lora_rank_max && rank > *options.lora_rank_max) {
    return invalid(
        fmt::format("adapter_config.json: 'r' is {}, and the engines' limit is {}", rank, *options.lora_rank_max));
  }
  if (has_entries(config, "modules_to_save")) {
    return invalid(
        "adapter_config.json: 'modules_to_save' isn't empty, and engines don't load such modules: send full weights");
  }
  if (find_bool(config, "use_dora").value_or(false))
    return invalid("adapter_config.json: engines refuse DoRA ('use_dora')");
  const std::string_view bias = find_string(config, "bias").value_or("none");
  if (bias != "none")
    return invalid(fmt::format("adapter_config.json: 'bias' is {}, and engines take 'none'", quote_name(bias)));
  return {};
}

// `rank` is none where the config gives modules ranks of their own.
Status check_halves(const std::string& module, const Halves& halves, std::optional<std::int64_t> rank) {
  const std::string shown = quote_name(module);
  if (halves.a == nullptr || halves.b == nullptr) {
    return invalid(fmt::format("adapter module {} has no lora_{}", shown, halves.a == nullptr ? "A" : "B"));
  }
  if (halves.a->shape.empty() || halves.b->shape.size() < 2) {
    return invalid(fmt::format("adapter module {}: lora_A is {}, lora_B is {}", shown, shape_text(halves.a->shape),
                               shape_text(halves.b->shape)));
  }
  const std::uint64_t rank_a = halves.a->shape[0];
  const std::uint64_t rank_b = halves.b->shape[1];
  if (rank_a != rank_b)
    return invalid(fmt::format("adapter module {}: lora_A has rank {}, lora_B {}", shown, rank_a, rank_b));
  if (rank && rank_a != static_cast<std::uint64_t>(*rank)) {
    return invalid(
        fmt::format("adapter module {}: its tensors have rank {}, adapter_config.json says {}", shown, rank_a, *rank));
  }
  return {};
}

Status check_names(const std::map<std::string, Halves>& modules, const Layout& base) {
  std::size_t unknown = 0;
  std::string first;
  for (const auto& [module, halves] : modules) {
    std::string_view name = module;
    constexpr std::string_view kPrefix = "base_model.model.";
    if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
    if (base.contains(std::string(name) + ".weight")) continue;
    if (unknown++ == 0) first = module;
  }
  if (unknown == 0) return {};
  return invalid(fmt::format(
      "{} of the adapter's {} modules aren't in the base model, so an engine would leave them out: {} and so on",
      unknown, modules.size(), quote_name(first)));
}

}  // namespace

Status check_adapter(const json::value& config, const Layout& layout, const InspectOptions& options) {
  const std::optional<std::int64_t> rank = find_int(config, "r");
  if (!rank) return invalid("adapter_config.json: 'r' is missing or not a whole number");
  if (Status checked = check_config(config, *rank, options); !checked) return checked;
  std::map<std::string, Halves> modules;
  for (const auto& [name, tensor] : layout) {
    const Part* part = part_of(name);
    if (part == nullptr)
      return invalid(fmt::format("tensor {} is no lora_A or lora_B, and engines would leave it out", quote_name(name)));
    Halves& halves = modules[name.substr(0, name.size() - part->suffix.size())];
    (part->is_a ? halves.a : halves.b) = &tensor;
  }
  if (modules.empty()) return invalid("the adapter has no tensors");
  const bool ranks_of_their_own = has_entries(config, "rank_pattern");
  for (const auto& [module, halves] : modules) {
    if (Status checked = check_halves(module, halves, ranks_of_their_own ? std::nullopt : rank); !checked)
      return checked;
  }
  return options.lora_base ? check_names(modules, *options.lora_base) : Status{};
}

std::int64_t adapter_rank(const Layout& layout) {
  std::uint64_t rank = 0;
  for (const auto& [name, tensor] : layout) {
    const Part* part = part_of(name);
    if (part != nullptr && part->is_a && !tensor.shape.empty()) rank = std::max(rank, tensor.shape[0]);
  }
  return static_cast<std::int64_t>(rank);
}

}  // namespace weighlock
