#include "layout_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "plan_files.hpp"
#include "weighlock/core/json.hpp"
#include "weighlock/core/suggest.hpp"
#include "weighlock/core/words.hpp"

namespace weighlock::cli {
namespace {

using reshard::Side;

// The operator's own file, not a stranger's: 1.5 GB of memory at most.
constexpr JsonLimits kLimits{.depth_max = 16, .values_max = 50'000'000};
constexpr std::int64_t kRanksMax = 1'000'000;
constexpr std::size_t kShown = 100;  // of a key, in an error

Error bad(std::string message) {
  return Error{ErrorCode::invalid_argument, std::move(message)};
}

Result<std::uint64_t> whole_number(const json::value& value, const std::string& where) {
  if (value.is_int64() && value.get_int64() >= 0) return static_cast<std::uint64_t>(value.get_int64());
  if (value.is_uint64()) return value.get_uint64();
  return bad(where + " must be a whole number from 0 on");
}

Result<std::uint32_t> number_of(const json::value& object, std::string_view key, const std::string& where,
                                std::optional<std::uint32_t> fallback = std::nullopt) {
  const json::value* found = find(object, key);
  if (!found && fallback) return *fallback;
  if (!found) return bad(fmt::format("{}: '{}' is missing", where, key));
  Result<std::uint64_t> number = whole_number(*found, fmt::format("{}: '{}'", where, key));
  if (!number) return std::move(number).error();
  if (*number >= reshard::kNone) return bad(fmt::format("{}: '{}' is {}, too large", where, key, *number));
  return static_cast<std::uint32_t>(*number);
}

// An absent member is an empty list, unless it is wanted.
Result<std::vector<std::uint64_t>> numbers_of(const json::value& object, std::string_view key, const std::string& where,
                                              bool wanted) {
  const json::value* found = find(object, key);
  std::vector<std::uint64_t> out;
  if (!found && !wanted) return out;
  if (!found || !found->is_array()) return bad(fmt::format("{}: '{}' must be a list of whole numbers", where, key));
  for (const json::value& item : found->get_array()) {
    Result<std::uint64_t> number = whole_number(item, fmt::format("{}: each of '{}'", where, key));
    if (!number) return std::move(number).error();
    out.push_back(*number);
  }
  return out;
}

// A misspelt member would be left out, and another layout be planned than the one that was meant.
Status only(const json::value& object, const std::vector<std::string_view>& known, const std::string& where) {
  if (!object.is_object()) return bad(where + " must be a JSON object");
  for (const auto& member : object.get_object()) {
    const std::string_view key(member.key());
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    return bad(fmt::format("{}: unknown member '{}'{}", where, printable(key, kShown), suggestion(key, known)));
  }
  return {};
}

class LayoutReader {
 public:
  LayoutReader(const json::value& root, std::string path, std::string side)
      : root_(root), path_(std::move(path)), side_(std::move(side), 0) {}

  Result<Side> read() {
    if (Status ok = only(root_, {"ranks", "hosts", "buffers", "tensors"}, path_); !ok) return std::move(ok).error();
    Result<std::uint32_t> ranks = number_of(root_, "ranks", path_);
    if (!ranks) return std::move(ranks).error();
    if (*ranks < 1 || *ranks > kRanksMax)
      return bad(fmt::format("{}: 'ranks' is {}, and must be from 1 to {}", path_, *ranks, kRanksMax));
    side_ = Side(side_.name(), *ranks);
    Result<std::vector<std::uint64_t>> hosts = numbers_of(root_, "hosts", path_, false);
    if (!hosts) return std::move(hosts).error();
    if (!hosts->empty()) {
      if (Status ok = side_.set_hosts(std::vector<std::uint32_t>(hosts->begin(), hosts->end())); !ok)
        return wrap(path_, std::move(ok).error());
    }
    if (Status ok = read_buffers(); !ok) return std::move(ok).error();
    const json::value* tensors = find(root_, "tensors");
    if (!tensors || !tensors->is_array()) return bad(path_ + ": 'tensors' must be a list");
    for (const json::value& tensor : tensors->get_array()) {
      if (Status ok = read_tensor(tensor); !ok) return std::move(ok).error();
    }
    return std::move(side_);
  }

 private:
  Status read_buffers() {
    const json::value* buffers = find(root_, "buffers");
    if (!buffers) return {};
    if (!buffers->is_array()) return bad(path_ + ": 'buffers' must be a list");
    for (const json::value& buffer : buffers->get_array()) {
      const std::string where = fmt::format("{}: buffer {}", path_, side_.buffers().size());
      if (Status ok = only(buffer, {"rank", "name", "elements"}, where); !ok) return ok;
      Result<std::uint32_t> rank = number_of(buffer, "rank", where);
      if (!rank) return std::move(rank).error();
      const json::value* given = find(buffer, "elements");
      if (!given) return bad(where + ": 'elements' is missing");
      Result<std::uint64_t> elements = whole_number(*given, where + ": 'elements'");
      if (!elements) return std::move(elements).error();
      side_.add_buffer(*rank, *elements, std::string(find_string(buffer, "name").value_or("unnamed")));
    }
    return {};
  }

  Status read_tensor(const json::value& value) {
    const std::optional<std::string_view> name = find_string(value, "name");
    if (!name) return bad(fmt::format("{}: tensor {}: 'name' is missing", path_, side_.tensors().size()));
    const std::string where = fmt::format("{}: tensor '{}'", path_, *name);
    if (Status ok = only(value, {"name", "dtype", "shape", "padded", "source", "shards"}, where); !ok) return ok;
    const std::optional<Dtype> dtype = dtype_from(find_string(value, "dtype").value_or(""));
    if (!dtype) return bad(where + ": 'dtype' must be one of safetensors' names, such as BF16");
    Result<std::vector<std::uint64_t>> shape = numbers_of(value, "shape", where, true);
    if (!shape) return std::move(shape).error();
    Result<std::vector<std::uint64_t>> padded = numbers_of(value, "padded", where, false);
    if (!padded) return std::move(padded).error();
    Result<reshard::TensorId> id = side_.add_tensor({std::string(*name), *dtype, std::move(*shape), std::move(*padded),
                                                     std::string(find_string(value, "source").value_or(""))});
    if (!id) return wrap(path_, std::move(id).error());
    const json::value* shards = find(value, "shards");
    if (!shards || !shards->is_array()) return bad(where + ": 'shards' must be a list");
    for (const json::value& shard : shards->get_array()) {
      if (Status ok = read_shard(*id, shard, where); !ok) return ok;
    }
    return {};
  }

  Status read_shard(reshard::TensorId tensor, const json::value& value, const std::string& where) {
    if (Status ok = only(value, {"rank", "offset", "shape", "owner", "placement"}, where + ": a shard"); !ok) return ok;
    Result<std::uint32_t> rank = number_of(value, "rank", where);
    if (!rank) return std::move(rank).error();
    Result<std::uint32_t> owner = number_of(value, "owner", where, 0);
    if (!owner) return std::move(owner).error();
    Result<std::vector<std::uint64_t>> offset = numbers_of(value, "offset", where, true);
    if (!offset) return std::move(offset).error();
    Result<std::vector<std::uint64_t>> shape = numbers_of(value, "shape", where, true);
    if (!shape) return std::move(shape).error();
    std::optional<reshard::Placement> placement;
    std::vector<std::int64_t> strides;
    if (const json::value* placed = find(value, "placement")) {
      if (Status ok = only(*placed, {"buffer", "offset", "strides"}, where + ": a placement"); !ok) return ok;
      Result<std::uint32_t> buffer = number_of(*placed, "buffer", where);
      if (!buffer) return std::move(buffer).error();
      const json::value* at = find(*placed, "offset");
      Result<std::uint64_t> start = at ? whole_number(*at, where + ": 'offset' of a placement") : 0;
      if (!start) return std::move(start).error();
      const json::value* given = find(*placed, "strides");
      if (!given || !given->is_array()) return bad(where + ": 'strides' of a placement must be a list");
      for (const json::value& stride : given->get_array()) {
        if (!stride.is_int64()) return bad(where + ": each of 'strides' must be a whole number");
        strides.push_back(stride.get_int64());
      }
      placement = reshard::Placement{*buffer, *start, strides};
    }
    if (Status ok = side_.add_shard(tensor, *rank, *offset, *shape, *owner, placement); !ok)
      return wrap(path_, std::move(ok).error());
    return {};
  }

  const json::value& root_;
  std::string path_;
  Side side_;
};

}  // namespace

Result<Side> parse_layout(std::string_view text, const std::string& path, const std::string& side) {
  Result<json::value> root = parse_json(text, path, kLimits);
  if (!root) return std::move(root).error();
  if (!root->is_object()) return bad(path + ": it must be a JSON object with 'ranks' and 'tensors' (docs/awex.md)");
  return LayoutReader(*root, path, side).read();
}

Result<Side> read_layout_file(const std::string& path, const std::string& side) {
  const Result<std::string> text = read_whole_file(path);
  if (!text) return text.error();
  return parse_layout(*text, path, side);
}

}  // namespace weighlock::cli
