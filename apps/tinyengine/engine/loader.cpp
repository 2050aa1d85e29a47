#include "tinyengine/engine/loader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace weighlock::tiny {
namespace {

using Kind = CheckpointFailure::Kind;

const ModelTensor* spec_of(const std::vector<ModelTensor>& specs, const std::string& name) {
  const auto found =
      std::find_if(specs.begin(), specs.end(), [&](const ModelTensor& spec) { return spec.name == name; });
  return found == specs.end() ? nullptr : &*found;
}

void cut_to_half(CheckpointContent& content) {
  content.tensors.resize(content.tensors.size() / 2);
}

std::shared_ptr<const Llama> rebuilt(const Llama& served, ServedTensors tensors) {
  auto model = Llama::make(served.shape(), std::move(tensors));
  WEIGHLOCK_CHECK(model.has_value(), "tensors were replaced by tensors of the same shape");
  return *std::move(model);
}

// SGLang's loader copies what fits into the parameter's place and says nothing: rows and columns beyond either shape
// stay.
std::shared_ptr<const ServedTensor> overlaid(const ServedTensor& old, const ServedTensor& strange) {
  auto result = std::make_shared<ServedTensor>(old);
  result->source = strange.source + " (another shape)";
  const auto columns = [](const ServedTensor& t) { return t.tensor.shape.empty() ? 1 : t.tensor.shape.back(); };
  const std::uint64_t old_columns = columns(old), new_columns = columns(strange);
  if (old_columns == 0 || new_columns == 0) return result;
  const std::uint64_t rows = std::min(old.values.size() / old_columns, strange.values.size() / new_columns);
  for (std::uint64_t row = 0; row < rows; ++row) {
    const auto from = strange.values.begin() + static_cast<std::ptrdiff_t>(row * new_columns);
    std::copy_n(from, std::min(old_columns, new_columns),
                result->values.begin() + static_cast<std::ptrdiff_t>(row * old_columns));
  }
  result->tensor.bytes = encode_values(old.tensor.dtype, result->values).value_or(old.tensor.bytes);
  return result;
}

std::string sglang_failure(const CheckpointFailure& failure, const std::string& directory) {
  if (failure.kind == Kind::missing_directory) {
    return fmt::format(
        "Failed to get weights iterator: Repo id must use alphanumeric chars, '-', '_' or '.'. The name cannot start "
        "or end "
        "with '-' or '.' and the maximum length is 96: '{}'..",
        directory);
  }
  if (failure.kind == Kind::missing_shard) {
    return fmt::format(
        "Failed to get weights iterator: model.safetensors.index.json references {} shard file(s) missing from {}: "
        "['{}'].",
        failure.missing, directory, failure.file);
  }
  return fmt::format("Failed to get weights iterator: Cannot find any model weights with `{}`.", directory);
}

std::string vllm_failure(const CheckpointFailure& failure) {
  switch (failure.kind) {
    case Kind::missing_directory:
      return "Repo id must be in the form 'repo_name' or 'namespace/repo_name': '<path>'. Use `repo_type` argument if "
             "needed.";
    case Kind::no_weights:
      return "Cannot find any model weights with `<path>`";
    case Kind::missing_shard:
      return "Weight files referenced in index but missing: {'<path>'}";
    case Kind::bad_file:
      break;
  }
  return "Error while deserializing header: incomplete metadata, file not fully covered";
}

std::string size_text(const std::vector<std::uint64_t>& shape) {
  return fmt::format("torch.Size([{}])", fmt::join(shape, ", "));
}

// vLLM stops at the first tensor that it can't place; those before it stay applied.
std::string apply_as_vllm(const Llama& served, std::vector<Tensor> tensors, const std::string& source,
                          ServedTensors& result, Dirt& dirt) {
  const auto specs = tensor_specs(served.shape());
  std::set<std::string> seen;
  for (Tensor& tensor : tensors) {
    const std::string name = tensor.name;
    const ModelTensor* spec = spec_of(specs, name);
    if (!spec && served.shape().tied && name == "lm_head.weight") continue;
    if (!spec) {
      dirt.loaders_lost = true;
      dirt.copies_readable = false;
      const std::string inner = name.starts_with("model.") ? name.substr(6) : name;
      return fmt::format("There is no module or parameter named '{}' in LlamaModel", inner.substr(0, inner.rfind('.')));
    }
    if (!seen.insert(name).second) {
      return fmt::format("Attempted to load weight ({}) into parameter (torch.Size([0]))", size_text(tensor.shape));
    }
    if (tensor.shape != spec->shape) {
      dirt.shape_lost = true;
      const std::uint64_t wanted = spec->shape[0], given = tensor.shape.empty() ? 1 : tensor.shape[0];
      return fmt::format("start (0) + length ({}) exceeds dimension size ({}).", wanted, given);
    }
    auto placed = serve_tensor(std::move(tensor), served.shape().dtype, source);
    if (!placed) return placed.error().text();
    result[name] = *std::move(placed);
  }
  return "";
}

}  // namespace

LoadReport load_as_sglang(const Llama& served, const LoadRequest& request) {
  LoadReport report;
  report.model = rebuilt(served, served.tensors());
  CheckpointContent content = read_checkpoint(request.directory);
  if (content.failure && content.failure->kind == Kind::bad_file) {
    // The "rollback" reads the same file again and raises again, uncaught.
    report.fatal = true;
    report.text = content.failure->text;
    return report;
  }
  if (content.failure) {
    report.text = sglang_failure(*content.failure, request.directory);
    return report;
  }
  if (request.partial) cut_to_half(content);
  ServedTensors tensors = served.tensors();
  const auto specs = tensor_specs(served.shape());
  for (Tensor& tensor : content.tensors) {
    const std::string name = tensor.name;
    const ModelTensor* spec = spec_of(specs, name);
    if (!spec) continue;  // a warning in its log, nothing else
    const bool fits = tensor.shape == spec->shape;
    auto placed = serve_tensor(std::move(tensor), served.shape().dtype, request.source);
    if (!placed) {
      report.fatal = true;
      report.text = placed.error().text();
      return report;
    }
    tensors[name] = fits ? *placed : overlaid(*tensors.at(name), **placed);
  }
  report.model = rebuilt(served, std::move(tensors));
  report.ok = true;
  return report;
}

LoadReport load_as_vllm(const Llama& served, const Dirt& dirt, const LoadRequest& request) {
  LoadReport report;
  report.dirt = dirt;
  CheckpointContent content = read_checkpoint(request.directory);
  if (request.partial) cut_to_half(content);
  const bool nothing_read = content.failure && content.failure->kind != Kind::bad_file;
  ServedTensors tensors = served.tensors();
  if (nothing_read) {
    report.text = vllm_failure(*content.failure);
    report.dirt.copies_readable = false;
  } else if (dirt.shape_lost) {
    report.text = "start (0) + length (128) exceeds dimension size (64).";
  } else if (dirt.loaders_lost && !content.tensors.empty()) {
    report.text = "'Parameter' object has no attribute 'weight_loader'";
  } else {
    report.text = apply_as_vllm(served, std::move(content.tensors), request.source, tensors, report.dirt);
    if (report.text.empty() && content.failure) {
      report.text = vllm_failure(*content.failure);
      report.dirt.copies_readable = false;
    }
  }
  report.model = rebuilt(served, std::move(tensors));
  report.ok = report.text.empty();
  if (report.ok) report.dirt = Dirt{};
  report.dirt.torn = !report.ok;
  return report;
}

Result<std::shared_ptr<const Llama>> load_at_start(const std::string& directory, const std::string& source) {
  auto shape = read_shape(directory);
  if (!shape) return std::move(shape).error();
  CheckpointContent content = read_checkpoint(directory);
  if (content.failure) {
    return Error{ErrorCode::checkpoint_invalid,
                 fmt::format("model directory '{}': {} {}", directory, content.failure->file, content.failure->text)};
  }
  ServedTensors tensors;
  for (Tensor& tensor : content.tensors) {
    const std::string name = tensor.name;
    auto placed = serve_tensor(std::move(tensor), shape->dtype, source);
    if (!placed) return wrap("model directory '" + directory + "'", std::move(placed).error());
    tensors[name] = *std::move(placed);
  }
  auto model = Llama::make(*shape, std::move(tensors));
  if (!model) return wrap("model directory '" + directory + "'", std::move(model).error());
  return model;
}

}  // namespace weighlock::tiny
