// The header of a safetensors file: read as data from a stranger, written as the reference implementation writes it.
//
//   u64 little-endian N | N bytes of UTF-8 JSON, first byte '{', padded at the end with 0x20 | data
//   {"name":{"dtype":"BF16","shape":[..],"data_offsets":[begin,end]}, "__metadata__":{string:string}}
//
// Refused, where some reader in the field takes it and another doesn't: N above 100,000,000 or beyond the file;
// duplicate names or fields; unknown fields; anything but whole numbers from 0 to 2^64-1; sizes that pass 64 bits;
// shape and offsets that disagree; a hole, an overlap or a trailing byte in the data; metadata that isn't strings;
// nesting; invalid UTF-8. Legal: no tensors at all, `[]` shapes, shapes with a 0 (begin = end), data not aligned to its
// dtype.
//
// Pure functions over values; every failure is `checkpoint_invalid` and names the tensor, the expected and the real
// number. The file's name is the caller's to add.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "weighlock/core/result.hpp"
#include "weighlock/tensor/dtype.hpp"

namespace weighlock {

inline constexpr std::size_t kSafetensorsPrefixBytes = 8;

using SafetensorsMetadata = std::map<std::string, std::string, std::less<>>;

struct TensorEntry {
  std::string name;
  Dtype dtype = Dtype::u8;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0;  // bytes, relative to the data section
  std::uint64_t end = 0;
  friend bool operator==(const TensorEntry&, const TensorEntry&) = default;
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // in the order of their bytes
  SafetensorsMetadata metadata;
  std::uint64_t data_offset = 0;  // of the data section in the file: 8 + N
};

// N, from the first bytes of a file of `file_size` bytes. Checks the cap and that the header lies inside the file, so
// that the caller may allocate N bytes.
Result<std::uint64_t> parse_safetensors_prefix(std::string_view first_bytes, std::uint64_t file_size);

// `header_json` is the N bytes after the prefix; `file_size` is the whole file's.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view header_json, std::uint64_t file_size);

struct TensorSpec {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<std::uint64_t> shape;
};

struct WrittenHeader {
  std::string bytes;                 // the prefix and the padded JSON: the first bytes of the file
  std::vector<TensorEntry> tensors;  // in the order in which their bytes must follow
  std::uint64_t data_bytes = 0;
};

// `metadata` is written with `"format":"pt"` (transformers wants it) unless it holds a format itself. Fails on what the
// parser would refuse: duplicate names, names that aren't UTF-8, sizes beyond 64 bits, a header above the cap.
Result<WrittenHeader> write_safetensors_header(std::vector<TensorSpec> tensors, SafetensorsMetadata metadata = {});

}  // namespace weighlock
