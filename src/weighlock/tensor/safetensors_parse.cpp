#include <fmt/format.h>
#include <boost/json/basic_parser_impl.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "weighlock/core/json.hpp"
#include "weighlock/core/limits.hpp"
#include "weighlock/tensor/quote.hpp"
#include "weighlock/tensor/safetensors.hpp"

namespace weighlock {
namespace {

Error invalid(std::string message) {
  return Error{ErrorCode::checkpoint_invalid, std::move(message)};
}

// Receives the JSON as it is read, so that duplicates are seen and nothing is built that the format doesn't have.
// `message` is set when the text is JSON but not a header.
class HeaderHandler {
 public:
  static constexpr std::size_t max_object_size = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t max_array_size = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t max_key_size = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t max_string_size = std::numeric_limits<std::size_t>::max();

  std::vector<TensorEntry> tensors;
  SafetensorsMetadata metadata;
  std::string message;

  bool on_document_begin(json::error_code&) { return true; }
  bool on_document_end(json::error_code&) { return true; }

  bool on_object_begin(json::error_code& failure) {
    switch (place_) {
      case Place::document:
        place_ = Place::top;
        return true;
      case Place::top:
        if (key_ == "__metadata__") {
          place_ = Place::metadata;
        } else {
          place_ = Place::entry;
          entry_ = TensorEntry{key_, Dtype::u8, {}, 0, 0};
          seen_ = {};
        }
        return true;
      default:
        return wrong_value("an object", failure);
    }
  }

  bool on_object_end(std::size_t, json::error_code& failure) {
    if (place_ == Place::entry) {
      for (std::size_t i = 0; i < kFields.size(); ++i) {
        if (!seen_[i])
          return refuse(fmt::format("tensor {} has no '{}'", quote_name(entry_.name), kFields[i]), failure);
      }
      tensors.push_back(std::move(entry_));
    }
    place_ = Place::top;
    return true;
  }

  bool on_array_begin(json::error_code& failure) {
    if (place_ != Place::entry || field_ == kDtypeField) return wrong_value("an array", failure);
    place_ = field_ == kShapeField ? Place::shape : Place::offsets;
    offsets_read_ = 0;
    return true;
  }

  bool on_array_end(std::size_t, json::error_code& failure) {
    if (place_ == Place::offsets && offsets_read_ != 2) {
      return refuse(
          fmt::format("tensor {}: data_offsets holds {} numbers, not 2", quote_name(entry_.name), offsets_read_),
          failure);
    }
    place_ = Place::entry;
    return true;
  }

  bool on_key_part(json::string_view part, std::size_t, json::error_code&) {
    partial_.append(part.data(), part.size());
    return true;
  }

  bool on_key(json::string_view last, std::size_t, json::error_code& failure) {
    partial_.append(last.data(), last.size());
    std::string key = std::exchange(partial_, {});
    switch (place_) {
      case Place::metadata:
        metadata_key_ = std::move(key);
        if (metadata.contains(metadata_key_)) {
          return refuse(fmt::format("__metadata__ names {} twice", quote_name(metadata_key_)), failure);
        }
        return true;
      case Place::entry:
        return on_field(key, failure);
      default:
        key_ = std::move(key);
        if (names_.insert(key_).second) return true;
        return refuse(fmt::format("the name {} appears twice", quote_name(key_)), failure);
    }
  }

  bool on_string_part(json::string_view part, std::size_t, json::error_code&) {
    partial_.append(part.data(), part.size());
    return true;
  }

  bool on_string(json::string_view last, std::size_t, json::error_code& failure) {
    partial_.append(last.data(), last.size());
    std::string text = std::exchange(partial_, {});
    if (place_ == Place::metadata) {
      metadata.emplace(metadata_key_, std::move(text));
      return true;
    }
    if (place_ != Place::entry || field_ != kDtypeField) return wrong_value("a string", failure);
    const std::optional<Dtype> dtype = dtype_from(text);
    if (!dtype) {
      return refuse(fmt::format("tensor {}: unknown dtype {}", quote_name(entry_.name), quote_name(text)), failure);
    }
    entry_.dtype = *dtype;
    return true;
  }

  bool on_number_part(json::string_view, json::error_code&) { return true; }
  bool on_int64(std::int64_t number, json::string_view text, json::error_code& failure) {
    // "-0" is refused too: it isn't how a size is written, and other readers refuse it.
    if (number < 0 || text.starts_with('-')) return wrong_value(fmt::format("the number {}", text), failure);
    return on_uint64(static_cast<std::uint64_t>(number), text, failure);
  }
  bool on_uint64(std::uint64_t number, json::string_view text, json::error_code& failure) {
    if (place_ == Place::shape) {
      if (entry_.shape.size() == limits::kTensorRankMax) {
        return refuse(
            fmt::format("tensor {}: more than {} dimensions", quote_name(entry_.name), limits::kTensorRankMax),
            failure);
      }
      entry_.shape.push_back(number);
      return true;
    }
    if (place_ != Place::offsets) return wrong_value(fmt::format("the number {}", text), failure);
    if (offsets_read_ == 0) entry_.begin = number;
    if (offsets_read_ == 1) entry_.end = number;
    ++offsets_read_;
    return true;
  }
  bool on_double(double, json::string_view text, json::error_code& failure) {
    return wrong_value(fmt::format("the number {}", text), failure);
  }
  bool on_bool(bool, json::error_code& failure) { return wrong_value("a boolean", failure); }
  bool on_null(json::error_code& failure) { return wrong_value("null", failure); }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }

 private:
  enum class Place { document, top, metadata, entry, shape, offsets };
  static constexpr std::array<std::string_view, 3> kFields = {"dtype", "shape", "data_offsets"};
  static constexpr std::size_t kDtypeField = 0;
  static constexpr std::size_t kShapeField = 1;

  bool on_field(std::string_view key, json::error_code& failure) {
    const auto* found = std::find(kFields.begin(), kFields.end(), key);
    if (found == kFields.end()) {
      return refuse(fmt::format("tensor {}: unknown field {}", quote_name(entry_.name), quote_name(key)), failure);
    }
    field_ = static_cast<std::size_t>(found - kFields.begin());
    if (std::exchange(seen_[field_], true)) {
      return refuse(fmt::format("tensor {}: the field '{}' appears twice", quote_name(entry_.name), key), failure);
    }
    return true;
  }

  bool wrong_value(std::string_view got, json::error_code& failure) {
    switch (place_) {
      case Place::document:
        return refuse(fmt::format("the header is {}, not an object", got), failure);
      case Place::top:
        return refuse(fmt::format("the value of {} is {}, not an object", quote_name(key_), got), failure);
      case Place::metadata:
        return refuse(
            fmt::format("the value of {} in __metadata__ is {}, not a string", quote_name(metadata_key_), got),
            failure);
      case Place::entry:
        return refuse(fmt::format("tensor {}: '{}' is {}", quote_name(entry_.name), kFields[field_], got), failure);
      case Place::shape:
      case Place::offsets:
        break;
    }
    return refuse(fmt::format("tensor {}: '{}' holds {}, not a whole number from 0 to 2^64-1", quote_name(entry_.name),
                              kFields[field_], got),
                  failure);
  }

  bool refuse(std::string text, json::error_code& failure) {
    message = std::move(text);
    failure = json::error::syntax;
    return false;
  }

  Place place_ = Place::document;
  std::unordered_set<std::string> names_;
  std::string partial_;  // of a key or a string that comes in parts
  std::string key_;
  std::string metadata_key_;
  TensorEntry entry_;
  std::size_t field_ = 0;
  std::array<bool, 3> seen_ = {};
  std::size_t offsets_read_ = 0;
};

Status check_entry(const TensorEntry& tensor) {
  const std::string name = quote_name(tensor.name);
  if (tensor.begin > tensor.end) {
    return invalid(fmt::format("tensor {}: data_offsets [{},{}] run backwards", name, tensor.begin, tensor.end));
  }
  const Result<std::uint64_t> bytes = tensor_bytes(tensor.dtype, tensor.shape);
  if (!bytes) return wrap(fmt::format("tensor {}", name), bytes.error());
  if (*bytes != tensor.end - tensor.begin) {
    return invalid(fmt::format("tensor {}: {} of {} is {} bytes, but data_offsets [{},{}] span {}", name,
                               shape_text(tensor.shape), weighlock::name(tensor.dtype), *bytes, tensor.begin,
                               tensor.end, tensor.end - tensor.begin));
  }
  return {};
}

// `tensors` sorted by their bytes must cover [0, data_bytes) exactly.
Status check_coverage(const std::vector<TensorEntry>& tensors, std::uint64_t data_bytes, std::uint64_t file_size) {
  std::uint64_t covered = 0;
  for (const TensorEntry& tensor : tensors) {
    if (Status checked = check_entry(tensor); !checked) return checked;
    if (tensor.begin != covered) {
      return invalid(fmt::format("tensor {} begins at {} in the data, but the tensors before it end at {} ({})",
                                 quote_name(tensor.name), tensor.begin, covered,
                                 tensor.begin > covered ? "a hole" : "an overlap"));
    }
    covered = tensor.end;
  }
  if (covered == data_bytes) return {};
  const std::uint64_t expected = file_size - data_bytes + covered;
  if (covered > data_bytes) {
    return invalid(
        fmt::format("the file is cut short: the header describes {} bytes, the file has {}", expected, file_size));
  }
  return invalid(fmt::format("trailing bytes: the header describes {} bytes, the file has {}", expected, file_size));
}

}  // namespace

Result<std::uint64_t> parse_safetensors_prefix(std::string_view first_bytes, std::uint64_t file_size) {
  if (file_size < kSafetensorsPrefixBytes || first_bytes.size() < kSafetensorsPrefixBytes) {
    return invalid(fmt::format("the file is cut short: it has {} bytes, and the length of the header takes {}",
                               file_size, kSafetensorsPrefixBytes));
  }
  std::uint64_t length = 0;
  for (std::size_t i = kSafetensorsPrefixBytes; i-- > 0;) {
    length = length << 8 | static_cast<unsigned char>(first_bytes[i]);
  }
  if (length > limits::kSafetensorsHeaderBytesMax) {
    return invalid(fmt::format("the header claims {} bytes, above the limit of {}: not a safetensors file, or damaged",
                               length, limits::kSafetensorsHeaderBytesMax));
  }
  if (length > file_size - kSafetensorsPrefixBytes) {
    return invalid(fmt::format("the file is cut short: the header ends at byte {}, the file has {}",
                               kSafetensorsPrefixBytes + length, file_size));
  }
  if (length < 2) return invalid(fmt::format("the header claims {} bytes, and the shortest is 2", length));
  return length;
}

Result<SafetensorsHeader> parse_safetensors_header(std::string_view header_json, std::uint64_t file_size) {
  SafetensorsHeader header;
  header.data_offset = kSafetensorsPrefixBytes + header_json.size();
  if (header_json.size() > limits::kSafetensorsHeaderBytesMax || header.data_offset > file_size) {
    return invalid(fmt::format("the header of {} bytes passes the limit of {} or the file of {} bytes",
                               header_json.size(), limits::kSafetensorsHeaderBytesMax, file_size));
  }
  if (!header_json.starts_with('{')) return invalid("the header doesn't begin with '{'");
  const std::string_view text = header_json.substr(0, header_json.find_last_not_of(' ') + 1);
  json::parse_options options;
  options.max_depth = 4;  // the format nests three deep
  json::basic_parser<HeaderHandler> parser(options);
  json::error_code failure;
  const std::size_t used = parser.write_some(false, text.data(), text.size(), failure);
  HeaderHandler& read = parser.handler();
  if (!read.message.empty()) return invalid(read.message);
  if (failure) return invalid(fmt::format("the header isn't JSON at byte {}: {}", used, failure.message()));
  // The parser skips all white space after the value; the format allows spaces only, and these are cut off above.
  if (!parser.done() || used != text.size() || !text.ends_with('}')) {
    return invalid("the header has bytes other than spaces after its JSON");
  }
  header.tensors = std::move(read.tensors);
  header.metadata = std::move(read.metadata);
  std::sort(header.tensors.begin(), header.tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  if (Status covered = check_coverage(header.tensors, file_size - header.data_offset, file_size); !covered) {
    return std::move(covered).error();
  }
  return header;
}

}  // namespace weighlock
