// The small checkpoint that rank 0 writes, and its values as an engine shows them.
#pragma once

#include <string>
#include <string_view>

namespace weighlock::bench {

// Writes config.json and model.safetensors (five BF16 tensors, about 1 KiB) into `directory`, which is made if it isn't
// there. Every value follows from the version in the directory's name. Ends the program when it can't.
void write_checkpoint(const std::string& directory);

// The body of /get_weights_by_name for a worker that holds `directory`; "" for a name that isn't in it.
std::string leading_values(std::string_view directory, std::string_view name);

}  // namespace weighlock::bench
