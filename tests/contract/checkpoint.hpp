// What a good checkpoint directory should look like from inside an engine: read plainly, for files that the tests made.
#pragma once

#include <memory>
#include <string>

#include "weighlock/core/operation.hpp"

namespace weighlock::contract {

// Every tensor of every *.safetensors file of the directory, in the order of the files, each with its leading values
// and its digest. BF16 only. Aborts the test program on a file that can't be read: the tests are of no use without.
std::shared_ptr<const Expectations> expectations_of(const std::string& directory);

}  // namespace weighlock::contract
