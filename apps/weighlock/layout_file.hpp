// One side of a transfer as a JSON file: what `weighlock plan` reads (docs/awex.md describes the format).
#pragma once

#include <string>

#include "weighlock/core/result.hpp"
#include "weighlock/reshard/layout.hpp"

namespace weighlock::cli {

// `side` is "train" or "infer", for errors. Errors: invalid_argument, naming the file and the member; as Side's else.
Result<reshard::Side> parse_layout(std::string_view text, const std::string& path, const std::string& side);
Result<reshard::Side> read_layout_file(const std::string& path, const std::string& side);

}  // namespace weighlock::cli
