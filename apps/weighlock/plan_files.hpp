// The files that `weighlock plan` reads: a layout for each side, or a directory of AWEX reports for each side.
#pragma once

#include <string>
#include <vector>

#include "weighlock/awex/repair.hpp"
#include "weighlock/core/result.hpp"

namespace weighlock::cli {

// A regular file of at most 4 GiB. Errors: not_found and such, too_large; they name the path.
Result<std::string> read_whole_file(const std::string& path);

bool is_directory(const std::string& path);

// What AWEX workers told: one file for each worker's answer to POST /awex/report_weight_meta.
struct AwexReports {
  std::vector<awex::Report> train;
  std::vector<awex::Report> infer;
  awex::Topology topology;
};

// All files of both directories whose names end in ".json", in the order of the numbers in their names (rank 2 before
// rank 10): one for each training rank, one for each engine. An engine's ranks are counted from what the first one
// tells. Errors: invalid_argument for a directory without such files; bad_answer naming file and member.
Result<AwexReports> read_awex_reports(const std::string& train, const std::string& infer);

}  // namespace weighlock::cli
