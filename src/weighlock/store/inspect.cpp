#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "weighlock/core/json.hpp"
#include "weighlock/core/limits.hpp"
#include "weighlock/store/adapter.hpp"
#include "weighlock/store/hash.hpp"
#include "weighlock/store/shard_index.hpp"
#include "weighlock/store/version_directory.hpp"
#include "weighlock/store/version_store.hpp"
#include "weighlock/tensor/quote.hpp"

namespace weighlock {
namespace {

constexpr std::string_view kConfigName = "config.json";
constexpr std::string_view kSafetensors = ".safetensors";
constexpr std::size_t kListedMax = 8;  // names in one message

Error invalid(std::string message) {
  return Error{ErrorCode::checkpoint_invalid, std::move(message)};
}

std::string listed(const std::vector<std::string>& names) {
  std::vector<std::string> shown;
  for (std::size_t i = 0; i < std::min(names.size(), kListedMax); ++i) shown.push_back(quote_name(names[i]));
  if (names.size() > kListedMax) shown.push_back(fmt::format("and {} more", names.size() - kListedMax));
  return fmt::format("{}", fmt::join(shown, ", "));
}

bool is_pickled_weights(std::string_view name) {
  return name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth");
}

// "model-00001-of-00002.safetensors": one of several.
bool is_named_as_part(std::string_view name) {
  return name.find("-of-") != std::string_view::npos;
}

// One look at a directory. Each step fills `found_` and returns the first thing that is wrong.
class Look {
 public:
  Look(VersionDirectory directory, const InspectOptions& options)
      : directory_(std::move(directory)), options_(options) {
    found_.reach = options.reach;
    found_.is_lora = options.is_lora;
  }

  Result<Inspection> take() {
    Status done = list_files();
    if (done) done = check_required();
    if (done) done = choose_weights();
    for (InspectedFile& file : found_.files) {
      if (done && file.holds_tensors) done = read_header(file);
    }
    if (done) done = check_placement();
    if (done) done = options_.is_lora ? check_lora() : check_config();
    if (done) done = check_reference();
    if (!done) return std::move(done).error();
    return std::move(found_);
  }

 private:
  std::string at(std::string_view name) const { return fmt::format("'{}/{}'", directory_.path(), name); }
  void warn(std::string text) { found_.warnings.push_back(std::move(text)); }

  Status list_files() {
    const Result<std::vector<std::string>> names = directory_.directory().list();
    if (!names) return names.error();
    for (const std::string& name : *names) {
      // Hidden: our temporary files, and those that network file systems keep for deleted ones. Loaders don't glob
      // them.
      if (name.starts_with('.') || name == kManifestName) continue;
      const Result<Entry> entry = directory_.directory().look(name);
      if (!entry) return entry.error();
      if (entry->kind == EntryKind::directory) {
        warn(fmt::format("{} is a directory and no part of the version", at(name)));
        continue;
      }
      if (entry->kind == EntryKind::other) return invalid(fmt::format("{} is not a regular file", at(name)));
      if (entry->kind == EntryKind::absent) continue;  // removed since it was listed
      const Result<File> file = directory_.open_file(name);
      if (!file) return file.error();
      const Result<std::uint64_t> size = file->size();
      if (!size) return size.error();
      found_.file_bytes += *size;
      InspectedFile inspected;
      inspected.name = name;
      inspected.size = *size;
      found_.files.push_back(std::move(inspected));
    }
    return {};
  }

  Status check_required() {
    std::vector<std::string> required = options_.required_files;
    required.emplace_back(options_.is_lora ? kAdapterConfigName : kConfigName);
    std::vector<std::string> missing;
    for (const std::string& name : required) {
      if (found_.find_file(name) == nullptr) missing.push_back(name);
    }
    if (missing.empty()) return {};
    return Error{ErrorCode::checkpoint_missing,
                 fmt::format("'{}' has no {}: an engine can't load it", directory_.path(), listed(missing))};
  }

  Status choose_weights() {
    std::vector<std::string> weights;
    std::vector<std::string> indexes;
    std::vector<std::string> pickled;
    for (const InspectedFile& file : found_.files) {
      if (file.name.ends_with(kSafetensors)) weights.push_back(file.name);
      if (file.name.ends_with(".safetensors.index.json")) indexes.push_back(file.name);
      if (is_pickled_weights(file.name)) pickled.push_back(file.name);
    }
    if (weights.empty() && indexes.empty() && !pickled.empty()) {
      return invalid(
          fmt::format("'{}' has only pickled weights ({}): nothing is ever unpickled here, save as safetensors",
                      directory_.path(), listed(pickled)));
    }
    if (!pickled.empty()) warn(fmt::format("pickled files beside the weights are never read: {}", listed(pickled)));
    if (options_.is_lora) return choose_single(weights, std::string(kAdapterWeightsName));
    if (indexes.empty()) return choose_unindexed(weights);
    if (indexes.size() > 1 || indexes.front() != kIndexName) {
      return invalid(fmt::format("'{}' has {}, and engines read {} only: one set of weights to a directory",
                                 directory_.path(), listed(indexes), kIndexName));
    }
    return choose_indexed(weights);
  }

  Status choose_single(const std::vector<std::string>& weights, const std::string& wanted) {
    std::vector<std::string> others;
    std::copy_if(weights.begin(), weights.end(), std::back_inserter(others),
                 [&](const std::string& n) { return n != wanted; });
    if (!others.empty()) {
      return invalid(fmt::format("'{}' has weights beside {}: {}", directory_.path(), wanted, listed(others)));
    }
    if (weights.empty()) {
      return Error{ErrorCode::checkpoint_missing, fmt::format("'{}' has no {}", directory_.path(), wanted)};
    }
    return mark_weights({wanted});
  }

  Status choose_unindexed(const std::vector<std::string>& weights) {
    if (weights.empty()) {
      return Error{ErrorCode::checkpoint_missing, fmt::format("'{}' has no .safetensors file", directory_.path())};
    }
    if (weights.size() > 1) {
      return invalid(fmt::format("'{}' has {} weights files and no {}: engines would load all of them or some ({})",
                                 directory_.path(), weights.size(), kIndexName, listed(weights)));
    }
    if (is_named_as_part(weights.front())) {
      return Error{ErrorCode::checkpoint_missing,
                   fmt::format("{} is named as one of several, and {} isn't there", at(weights.front()), kIndexName)};
    }
    return mark_weights({weights.front()});
  }

  Status choose_indexed(const std::vector<std::string>& weights) {
    const Result<std::string> text = read_small(std::string(kIndexName), limits::kIndexBytesMax);
    if (!text) return text.error();
    Result<ShardIndex> index = parse_shard_index(*text, at(kIndexName));
    if (!index) return std::move(index).error();
    index_ = std::move(index).value();
    std::vector<std::string> missing;
    for (const std::string& shard : index_->shards) {
      if (!std::binary_search(weights.begin(), weights.end(), shard)) missing.push_back(shard);
    }
    if (!missing.empty()) {
      return Error{
          ErrorCode::checkpoint_missing,
          fmt::format("{} names {} shard{} that {} there: {}", at(kIndexName), missing.size(),
                      missing.size() == 1 ? "" : "s", missing.size() == 1 ? "isn't" : "aren't", listed(missing))};
    }
    std::vector<std::string> stray;
    for (const std::string& name : weights) {
      if (!index_->shards.contains(name)) stray.push_back(name);
    }
    if (!stray.empty()) {
      return invalid(fmt::format("'{}' has weights that {} doesn't name, and some engines would load them: {}",
                                 directory_.path(), kIndexName, listed(stray)));
    }
    return mark_weights({index_->shards.begin(), index_->shards.end()});
  }

  Status mark_weights(const std::vector<std::string>& names) {
    for (InspectedFile& file : found_.files) {
      file.holds_tensors = std::find(names.begin(), names.end(), file.name) != names.end();
    }
    return {};
  }

  Result<std::string> read_small(const std::string& name, std::size_t bytes_max) const {
    const Result<File> file = directory_.open_file(name);
    if (!file) return file.error();
    Result<std::string> text = file->read_text(bytes_max);
    if (!text && text.error().code == ErrorCode::too_large) {
      return wrap(ErrorCode::checkpoint_invalid, "file beyond its limit", std::move(text).error());
    }
    return text;
  }

  Status read_header(InspectedFile& inspected) {
    const Result<File> file = directory_.open_file(inspected.name, inspected.size);
    if (!file) return file.error();
    std::string bytes(std::min<std::uint64_t>(kSafetensorsPrefixBytes, inspected.size), '\0');
    if (Status read = file->read_exactly(0, std::as_writable_bytes(std::span(bytes))); !read) return read;
    const Result<std::uint64_t> length = parse_safetensors_prefix(bytes, inspected.size);
    if (!length) return wrap(at(inspected.name), length.error());
    bytes.resize(kSafetensorsPrefixBytes + *length);
    const std::span<std::byte> rest = std::as_writable_bytes(std::span(bytes)).subspan(kSafetensorsPrefixBytes);
    if (Status read = file->read_exactly(kSafetensorsPrefixBytes, rest); !read) return read;
    Result<SafetensorsHeader> header =
        parse_safetensors_header(std::string_view(bytes).substr(kSafetensorsPrefixBytes), inspected.size);
    if (!header) return wrap(at(inspected.name), std::move(header).error());
    inspected.header_digest = hex(digest_bytes(bytes));
    inspected.data_offset = header->data_offset;
    inspected.tensors = std::move(header->tensors);
    check_metadata(inspected.name, header->metadata);
    return {};
  }

  void check_metadata(const std::string& name, const SafetensorsMetadata& metadata) {
    const auto format = metadata.find("format");
    const bool known = format != metadata.end() && (format->second == "pt" || format->second == "tf" ||
                                                    format->second == "flax" || format->second == "mlx");
    if (!metadata.empty() && !known) {
      warn(fmt::format("{}: __metadata__ has no 'format' that transformers knows (pt, tf, flax, mlx)", at(name)));
    }
  }

  // Every tensor in one file, in that of the index, and none that the index doesn't name.
  Status check_placement() {
    std::map<std::string_view, std::string_view> file_of;
    for (const InspectedFile& file : found_.files) {
      for (const TensorEntry& tensor : file.tensors) {
        const std::string name = quote_name(tensor.name);
        const auto [other, is_new] = file_of.emplace(tensor.name, file.name);
        if (!is_new)
          return invalid(fmt::format("tensor {} lies in {} and in {}", name, at(other->second), at(file.name)));
        if (index_) {
          const auto mapped = index_->shard_of.find(tensor.name);
          if (mapped == index_->shard_of.end()) {
            return invalid(fmt::format("tensor {} in {} isn't in {}", name, at(file.name), kIndexName));
          }
          if (mapped->second != file.name) {
            return invalid(fmt::format("tensor {} lies in {}, and {} says in {}", name, at(file.name), kIndexName,
                                       quote_name(mapped->second)));
          }
        }
        const std::uint64_t bytes = tensor.end - tensor.begin;
        found_.layout.emplace(tensor.name, TensorLayout{tensor.dtype, tensor.shape, bytes});
        found_.tensor_bytes += bytes;
      }
    }
    return check_against_index(file_of);
  }

  Status check_against_index(const std::map<std::string_view, std::string_view>& file_of) {
    if (index_) {
      std::vector<std::string> missing;
      for (const auto& [tensor, shard] : index_->shard_of) {
        if (!file_of.contains(tensor)) missing.push_back(tensor);
      }
      if (!missing.empty()) {
        return Error{ErrorCode::checkpoint_missing,
                     fmt::format("{} names {} tensor{} that no shard holds: {}", at(kIndexName), missing.size(),
                                 missing.size() == 1 ? "" : "s", listed(missing))};
      }
      if (index_->total_size && *index_->total_size != found_.tensor_bytes) {
        warn(fmt::format("{} says {} bytes in total, the tensors have {}", at(kIndexName), *index_->total_size,
                         found_.tensor_bytes));
      }
    }
    if (found_.layout.empty())
      return invalid(fmt::format("'{}' holds no tensors: that is no version", directory_.path()));
    return {};
  }

  Status check_config() {
    const Result<std::string> text = read_small(std::string(kConfigName), limits::kConfigBytesMax);
    if (!text) return text.error();
    const Result<json::value> config = parse_config(*text, at(kConfigName));
    if (!config) return config.error();
    const json::value* nested = find(*config, "text_config");  // of models that see or hear too
    std::optional<bool> tied = find_bool(*config, "tie_word_embeddings");
    if (!tied && nested != nullptr) tied = find_bool(*nested, "tie_word_embeddings");
    if (tied) found_.tied = *tied ? TiedHead::yes : TiedHead::no;
    return {};
  }

  Status check_lora() {
    const Result<std::string> text = read_small(std::string(kAdapterConfigName), limits::kConfigBytesMax);
    if (!text) return text.error();
    const Result<json::value> config = parse_config(*text, at(kAdapterConfigName));
    if (!config) return config.error();
    Status checked = check_adapter(*config, found_.layout, options_);
    if (!checked) return wrap(fmt::format("'{}'", directory_.path()), std::move(checked).error());
    return checked;
  }

  Status check_reference() {
    if (!options_.reference) return {};
    const LayoutDifferences differences = compare_layouts(*options_.reference, found_.layout, found_.tied);
    if (differences.empty()) return {};
    if (options_.allow_layout_change) {
      warn("the layout changed: " + differences.text());
      return {};
    }
    return Error{
        ErrorCode::checkpoint_layout_changed,
        fmt::format("'{}' differs from the layout that the engines serve, {} (allow_layout_change lets it pass)",
                    directory_.path(), differences.text())};
  }

  VersionDirectory directory_;
  const InspectOptions& options_;
  std::optional<ShardIndex> index_;
  Inspection found_;
};

Result<Inspection> look_once(FileSystem& files, const std::string& path, const InspectOptions& options) {
  Result<VersionDirectory> directory = VersionDirectory::open(files, path, options.reach);
  if (!directory) return std::move(directory).error();
  return Look(std::move(directory).value(), options).take();
}

}  // namespace

Result<Inspection> VersionStore::inspect(const std::string& directory, const InspectOptions& options) const {
  const Instant end = patience_.now() + options.wait_visible;
  Milliseconds pause{10};
  for (;;) {
    Result<Inspection> looked = look_once(*files_, directory, options);
    if (looked || looked.error().code == ErrorCode::checkpoint_layout_changed) return looked;
    const Milliseconds left = end - patience_.now();
    if (left <= Milliseconds{0}) return looked;
    patience_.sleep(std::min(pause, left));
    pause = std::min(2 * pause, Milliseconds{250});
  }
}

}  // namespace weighlock
