// Compares what an engine tells of its tensors with what a sealed version should look like. Pure.
#pragma once

#include <cstddef>
#include <string>

#include "weighlock/core/json.hpp"
#include "weighlock/core/operation.hpp"

namespace weighlock {

// What one or more comparisons showed.
struct Findings {
  std::size_t compared = 0;   // tensors that could be compared and are equal
  std::size_t differing = 0;  // of these, the ones that differ from the version before: only they prove anything
  std::string mismatch;       // "" or the first tensor that isn't what it should be, with both values
};

// `answer` is what SGLang gives for one tensor: a list of numbers for one dimension, a list of rows for two and more,
// the first ones of rank 0's part. Rows of a part that is cut along a later dimension are shorter than the file's: a
// row is compared as far as both go. Not comparable, and without effect on `findings`: dtypes that an engine may store
// otherwise (all but BF16, F16 and F32), an answer of another depth, an empty one. Values may differ by what rounding
// to bfloat16 explains, nothing more: an optimizer's step often moves a value by one unit in the last place.
void compare_leading(const TensorExpectation& expected, const json::value& answer, Findings& findings);

// How many entries of the first dimension are asked for, so that the expected leading values are covered.
std::size_t rows_needed(const TensorExpectation& expected);

// `checksums` is vLLM's object of "dp0:pp0:pcp0:tp0:NAME" -> sha256 of the raw bytes. Not comparable: names that aren't
// there (fused tensors), the digest of nothing (layers packed away), dtypes but BF16, F16 and F32, embeddings and heads
// whose rows are padded (not a multiple of 64), and with several tensor-parallel ranks what is cut among them.
void compare_checksums(const Expectations& expected, const json::object& checksums, Findings& findings);

}  // namespace weighlock
