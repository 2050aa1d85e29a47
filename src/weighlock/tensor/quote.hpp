// Names from strangers, fit for a message or a log line.
#pragma once

#include <string>
#include <string_view>

namespace weighlock {

// 'name' in single quotes; control characters and bytes above 0x7e as \xNN; at most 128 bytes of it, then "...".
std::string quote_name(std::string_view name);

}  // namespace weighlock
