#include "weighlock/awex/report.hpp"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "weighlock/awex/report_parts.hpp"
#include "weighlock/awex/scanner.hpp"
#include "weighlock/core/words.hpp"

namespace weighlock::awex {
namespace {

constexpr std::size_t kTextShown = 200;                         // of a worker's own words and names, in an error
constexpr std::uint64_t kElementsMax = std::uint64_t{1} << 50;  // of a tensor: bytes and sums of them fit in 64 bits

constexpr std::int64_t kRanksMax = 1'000'000;

struct Place {
  std::size_t tensor = 0;
  std::string_view name;    // once it is known
  std::string_view member;  // that is being read
  std::optional<std::size_t> shard;
  bool in_replicas = false;
};

// One pass over a report. All members return false after scan_ has failed.
class ReportParser {
 public:
  ReportParser(const Origin& origin, std::string_view body, const ReportLimits& limits)
      : scan_(body, limits.depth_max), limits_(limits), frames_(limits) {
    report_.origin = origin;
  }

  Result<Report> run();

 private:
  struct SeenShard {
    std::string_view raw;
    ReportedShard shard;
  };

  bool read_status();
  bool read_list();
  bool read_tensor();
  bool read_tensor_member(std::string_view key, ReportedTensor& tensor, std::uint32_t& seen);
  bool finish_tensor(ReportedTensor& tensor, std::uint32_t seen);
  bool read_shards(std::vector<SeenShard>& into, bool in_replicas);
  bool read_replicas(ReportedTensor& tensor);
  bool read_shard(ReportedShard& shard);
  bool read_shard_member(std::string_view key, ReportedShard& shard, std::uint32_t& seen);
  bool finish_shard(ReportedShard& shard, std::uint32_t seen);
  bool read_extents(Extents& into);
  bool read_dtype(std::string_view& into);
  bool keep(std::string_view key, std::string& members);
  template <typename Data>
  bool read_wrapped(std::string& outer, Data&& read_data);
  bool mark(std::uint32_t& seen, std::uint32_t bit);
  Error error() const;

  Scanner scan_;
  const ReportLimits& limits_;
  StringPool strings_;
  FramePools frames_;
  Report report_;
  Place place_;
  ErrorCode code_ = ErrorCode::bad_answer;
  std::string status_, own_error_;
  bool has_list_ = false;

  // Of the tensor that is being read.
  std::vector<SeenShard> in_shards_, in_replicas_;
  std::string name_, dtype_, tensor_outer_, tensor_members_, replica_outer_, replica_members_;
  std::string outer_, members_, room_, name_room_, dtype_room_;
  std::string_view shard_name_, shard_dtype_;
  ShardNumbers numbers_;
  std::uint64_t numel_ = 0, global_numel_ = 0;
};

enum TensorBit : std::uint32_t {
  kName = 1,
  kNumel = 2,
  kShape = 4,
  kDtype = 8,
  kShards = 16,
  kReplicas = 32,
  kOffset = 64
};

bool ReportParser::mark(std::uint32_t& seen, std::uint32_t bit) {
  if (seen & bit) return scan_.fail("appears twice");
  seen |= bit;
  return true;
}

// A member that is handed on as it came.
bool ReportParser::keep(std::string_view key, std::string& members) {
  // What a key with escapes says would be found out by the workers, and might be one of ours.
  if (key.find('\\') != std::string_view::npos) return scan_.fail("an escape in a key");
  std::string_view raw;
  if (!scan_.skip_value(raw)) return false;
  append_member(members, key, raw);
  if (members.size() <= limits_.frame_bytes_max) return true;
  code_ = ErrorCode::too_large;
  return scan_.fail(fmt::format("members that aren't known here have more than {} bytes", limits_.frame_bytes_max));
}

// {"type":"dataclass","class_path":"...","data":{...}}; `read_data` reads the object after "data":.
template <typename Data>
bool ReportParser::read_wrapped(std::string& outer, Data&& read_data) {
  outer.clear();
  bool typed = false, named = false, has_data = false;
  std::string_view key;
  if (!scan_.begin_object()) return false;
  while (scan_.next_member(key)) {
    place_.member = key;
    if (key == "data") {
      if (has_data) return scan_.fail("appears twice");
      has_data = true;
      if (!read_data()) return false;
      continue;
    }
    if ((key == "type" && typed) || (key == "class_path" && named)) return scan_.fail("appears twice");
    const std::size_t begin = outer.size();
    if (!keep(key, outer)) return false;
    const std::string_view kept = std::string_view(outer).substr(begin);
    if (key == "type") typed = kept.ends_with(":\"dataclass\"");
    if (key == "class_path") named = kept.ends_with('"');
  }
  if (scan_.failed()) return false;
  place_.member = "type, class_path, data";
  return (typed && named && has_data) || scan_.fail("not a dataclass with a class path and data");
}

bool ReportParser::read_extents(Extents& into) {
  into = Extents();
  if (!scan_.begin_array()) return false;
  while (scan_.next_element()) {
    std::uint64_t value = 0;
    if (!scan_.read_unsigned(value)) return false;
    if (into.full()) return scan_.fail(fmt::format("more than {} dimensions", Extents::kDimensionsMax));
    if (value > kElementsMax) return scan_.fail(fmt::format("{} is more than 2^50", value));
    into.push_back(value);
  }
  return !scan_.failed();
}

// {"type":"torch_dtype","value":"torch.bfloat16"}
bool ReportParser::read_dtype(std::string_view& into) {
  constexpr std::string_view kUsual = R"({"type":"torch_dtype","value":"torch.bfloat16"})";
  if (scan_.pass_if(kUsual)) return into = "torch.bfloat16", true;
  bool typed = false, valued = false;
  std::string_view key, word;
  if (!scan_.begin_object()) return false;
  while (scan_.next_member(key)) {
    if (key != "type" && key != "value") return scan_.fail("a member of a dtype that isn't known");
    bool& had = key == "type" ? typed : valued;
    if (had) return scan_.fail("appears twice");
    had = true;
    if (!scan_.read_string(key == "type" ? word : into, key == "type" ? room_ : dtype_room_)) return false;
    if (key == "type" && word != "torch_dtype") return scan_.fail("not a torch_dtype");
  }
  if (scan_.failed()) return false;
  return (typed && valued) || scan_.fail("not a dtype");
}

bool ReportParser::read_shard_member(std::string_view key, ReportedShard& shard, std::uint32_t& seen) {
  if (key == "name") return mark(seen, kName) && scan_.read_string(shard_name_, name_room_);
  if (key == "shape") return mark(seen, kShape) && read_extents(shard.box.shape);
  if (key == "global_offset") return mark(seen, kOffset) && read_extents(shard.box.offset);
  if (key == "numel") return mark(seen, kNumel) && scan_.read_unsigned(numel_);
  if (key == "dtype") return mark(seen, kDtype) && read_dtype(shard_dtype_);
  const auto number = ShardNumbers::from(key);
  if (!number) return keep(key, members_);
  if (!mark(numbers_.seen, 1u << *number)) return false;
  const std::size_t begin = scan_.value_begins();
  if (!scan_.read_integer(numbers_.values[*number])) return false;
  append_member(members_, key, scan_.from(begin));
  return true;
}

bool ReportParser::finish_shard(ReportedShard& shard, std::uint32_t seen) {
  place_.member = "shape";
  if (!(seen & kShape)) return scan_.fail("is missing");
  std::uint64_t product = 0;
  if (!elements_fit(shard.box.shape, kElementsMax, product)) return scan_.fail("has more than 2^50 elements");
  place_.member = "numel";
  if ((seen & kNumel) && numel_ != product)
    return scan_.fail(fmt::format("is {}, and the shape {} has {}", numel_, text(shard.box.shape), product));
  place_.member = "global_offset";
  if (!(seen & kOffset)) return scan_.fail("is missing");
  if (shard.box.offset.size() != shard.box.shape.size())
    return scan_.fail(
        fmt::format("{} and the shape {} have different dimensions", text(shard.box.offset), text(shard.box.shape)));
  place_.member = "global_rank";
  if (!numbers_.has(ShardNumbers::global_rank)) return scan_.fail("is missing");
  const std::int64_t rank = numbers_[ShardNumbers::global_rank];
  return (rank >= 0 && rank < kRanksMax) || scan_.fail(fmt::format("is {}; 0 to {} are right", rank, kRanksMax - 1));
}

bool ReportParser::read_shard(ReportedShard& shard) {
  members_.clear();
  numbers_ = ShardNumbers();
  std::uint32_t seen = 0;
  const auto data = [&] {
    std::string_view key;
    if (!scan_.begin_object()) return false;
    while (scan_.next_member(key)) {
      place_.member = key;
      if (!read_shard_member(key, shard, seen)) return false;
    }
    return !scan_.failed() && finish_shard(shard, seen);
  };
  if (!read_wrapped(outer_, data)) return false;
  place_.member = "name";
  if (!(seen & kName) || (!name_.empty() && shard_name_ != name_))
    return scan_.fail(fmt::format("is {}, not its tensor's", printable(shard_name_, kTextShown)));
  if (name_.empty()) name_ = shard_name_;
  place_.member = "dtype";
  if (!(seen & kDtype) || (!dtype_.empty() && shard_dtype_ != dtype_))
    return scan_.fail(fmt::format("is {}, not its tensor's {}", printable(shard_dtype_, kTextShown), dtype_));
  if (dtype_.empty()) dtype_ = shard_dtype_;
  const auto frame = frames_.shard(outer_, members_, numbers_);
  if (!frame) return code_ = ErrorCode::too_large, scan_.fail(frames_.too_many());
  shard.frame = *frame;
  return true;
}

bool ReportParser::read_shards(std::vector<SeenShard>& into, bool in_replicas) {
  place_.in_replicas = in_replicas;
  if (!scan_.begin_array()) return false;
  while (scan_.next_element()) {
    place_.shard = into.size();
    const std::size_t begin = scan_.value_begins();
    if (in_replicas && into.size() < in_shards_.size() && scan_.pass_if(in_shards_[into.size()].raw)) {
      into.push_back(in_shards_[into.size()]);  // written twice, as all of AReaL's are
      continue;
    }
    SeenShard seen;
    if (!read_shard(seen.shard)) return false;
    seen.raw = scan_.from(begin);
    into.push_back(seen);
    if (report_.shards.size() + into.size() <= limits_.shards_max) continue;
    code_ = ErrorCode::too_large;
    return scan_.fail(fmt::format("more than {} shards in one report", limits_.shards_max));
  }
  place_.shard.reset();
  return !scan_.failed();
}

bool ReportParser::read_replicas(ReportedTensor& tensor) {
  bool first = true;
  if (!scan_.begin_array()) return false;
  while (scan_.next_element()) {
    std::string outer;
    std::string members;
    bool has_shards = false;
    const auto data = [&] {
      std::string_view key;
      if (!scan_.begin_object()) return false;
      while (scan_.next_member(key)) {
        place_.member = key;
        if (key != "shards") {
          if (!keep(key, members)) return false;
          continue;
        }
        if (has_shards) return scan_.fail("appears twice");
        has_shards = true;
        if (!read_shards(in_replicas_, true)) return false;
      }
      return !scan_.failed();
    };
    if (!read_wrapped(outer, data)) return false;
    if (first) {
      const auto frame = frames_.replica(outer, members);
      if (!frame) return code_ = ErrorCode::too_large, scan_.fail(frames_.too_many());
      tensor.replica = *frame;
      first = false;
    }
  }
  return !scan_.failed() && (!first || scan_.fail("an empty list"));
}

bool ReportParser::read_tensor_member(std::string_view key, ReportedTensor& tensor, std::uint32_t& seen) {
  if (key == "name") {
    std::string_view name;
    if (!mark(seen, kName) || !scan_.read_string(name, room_)) return false;
    if (name.empty() || name.size() > limits_.name_bytes_max)
      return scan_.fail(fmt::format("a name of {} bytes; 1 to {} are right", name.size(), limits_.name_bytes_max));
    if (!name_.empty() && name_ != name) return scan_.fail("is not its shards'");
    name_ = name;
    place_.name = name_;
    return true;
  }
  if (key == "global_numel") return mark(seen, kNumel) && scan_.read_unsigned(global_numel_);
  if (key == "global_shape") return mark(seen, kShape) && read_extents(tensor.shape);
  if (key == "dtype") {
    std::string_view dtype;
    if (!mark(seen, kDtype) || !read_dtype(dtype)) return false;
    if (!dtype_.empty() && dtype_ != dtype) return scan_.fail("is not its shards'");
    dtype_ = dtype;
    return true;
  }
  if (key == "shards") return mark(seen, kShards) && read_shards(in_shards_, false);
  if (key == "replicas") return mark(seen, kReplicas) && read_replicas(tensor);
  return keep(key, tensor_members_);
}

bool ReportParser::finish_tensor(ReportedTensor& tensor, std::uint32_t seen) {
  constexpr std::pair<std::uint32_t, std::string_view> kNeeded[] = {
      {kName, "name"}, {kShape, "global_shape"}, {kDtype, "dtype"}, {kReplicas, "replicas"}};
  for (const auto& [bit, member] : kNeeded) {
    place_.member = member;
    if (!(seen & bit)) return scan_.fail("is missing");
  }
  std::uint64_t product = 0;
  place_.member = "global_shape";
  if (!elements_fit(tensor.shape, kElementsMax, product)) return scan_.fail("has more than 2^50 elements");
  place_.member = "global_numel";
  if ((seen & kNumel) && global_numel_ != product)
    return scan_.fail(fmt::format("is {}, and the shape {} has {}", global_numel_, text(tensor.shape), product));
  place_.member = "replicas";
  const std::vector<SeenShard>& shards = in_replicas_.empty() ? in_shards_ : in_replicas_;
  if (shards.empty()) return scan_.fail("has no shard, and shards has none");
  tensor.first_shard = static_cast<std::uint32_t>(report_.shards.size());
  tensor.shards = static_cast<std::uint32_t>(shards.size());
  for (const SeenShard& one : shards) {
    place_.member = "shape";
    if (one.shard.box.shape.size() != tensor.shape.size())
      return scan_.fail(fmt::format("{} and the global shape {} have different dimensions", text(one.shard.box.shape),
                                    text(tensor.shape)));
    report_.shards.push_back(one.shard);
  }
  tensor.name = strings_.put(name_);
  tensor.dtype = strings_.put(dtype_);
  const auto frame = frames_.tensor(tensor_outer_, tensor_members_);
  if (!frame) return code_ = ErrorCode::too_large, scan_.fail(frames_.too_many());
  tensor.frame = *frame;
  return true;
}

bool ReportParser::read_tensor() {
  place_ = Place{report_.tensors.size(), {}, {}, {}, false};
  if (report_.tensors.size() == limits_.tensors_max) {
    code_ = ErrorCode::too_large;
    return scan_.fail(fmt::format("more than {} tensors in one report", limits_.tensors_max));
  }
  in_shards_.clear();
  in_replicas_.clear();
  name_.clear();
  dtype_.clear();
  tensor_members_.clear();
  ReportedTensor tensor;
  std::uint32_t seen = 0;
  const auto data = [&] {
    std::string_view key;
    if (!scan_.begin_object()) return false;
    while (scan_.next_member(key)) {
      place_.member = key;
      if (!read_tensor_member(key, tensor, seen)) return false;
    }
    return !scan_.failed();
  };
  if (!read_wrapped(tensor_outer_, data) || !finish_tensor(tensor, seen)) return false;
  report_.tensors.push_back(tensor);
  return true;
}

bool ReportParser::read_list() {
  if (has_list_) return scan_.fail("a second list of tensors");
  has_list_ = true;
  if (!scan_.begin_array()) return false;
  while (scan_.next_element())
    if (!read_tensor()) return false;
  place_ = Place();
  return !scan_.failed();
}

Error ReportParser::error() const {
  std::string where = text(report_.origin) + ": report of weight metadata";
  if (has_list_) where += fmt::format(": tensor {}", place_.tensor);
  if (!place_.name.empty()) where += fmt::format(" ('{}')", printable(place_.name, kTextShown));
  if (place_.shard) where += fmt::format(": {}shards[{}]", place_.in_replicas ? "replicas." : "", *place_.shard);
  if (!place_.member.empty()) where += fmt::format(": '{}'", printable(place_.member, kTextShown));
  return Error{code_, fmt::format("{}: {} (byte {})", where, scan_.reason(), scan_.position())};
}

Result<Report> ReportParser::run() {
  std::string_view key, value, ignored;
  if (!scan_.begin_object()) return error();
  while (scan_.next_member(key)) {
    place_.member = key;
    bool good = true;
    if (key == "result" || key == "meta") {
      good = read_list();
    } else if (key == "status" || key == "error") {
      good = scan_.peek() == '"' ? scan_.read_string(value, room_) : scan_.skip_value(value);
      (key == "status" ? status_ : own_error_) = value;
    } else {
      good = scan_.skip_value(ignored);
    }
    if (!good) return error();
  }
  if (scan_.failed()) return error();
  place_.member = {};
  if (!scan_.at_end()) return scan_.fail("text after the JSON value"), error();
  if (!status_.empty() && status_ != "success" && status_ != "ok")
    return Error{ErrorCode::bad_answer,
                 fmt::format("{} reports no weight metadata: status '{}': {}", text(report_.origin),
                             printable(status_, kTextShown), printable(own_error_, kTextShown))};
  if (!has_list_) return scan_.fail("neither 'result' nor 'meta'"), error();
  report_.strings = strings_.take();
  frames_.take(report_);
  return std::move(report_);
}

}  // namespace

std::string text(const Origin& origin) {
  return fmt::format("{} worker {} ({})", origin.side == Side::train ? "train" : "inference", origin.index, origin.url);
}

Result<Report> parse_report(const Origin& origin, std::string_view body, const ReportLimits& limits) {
  return ReportParser(origin, body, limits).run();
}

}  // namespace weighlock::awex
