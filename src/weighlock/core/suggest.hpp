// "did you mean": the known word that is nearest to what somebody typed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weighlock {

// The nearest of `known` by edit distance (insert, delete, replace, swap of neighbours), or "" if none is near: at most
// a third of the word's length, and at least one edit, may differ. '-' and '_' count as the same letter.
std::string_view nearest(std::string_view word, const std::vector<std::string_view>& known);

// "; did you mean 'save_path'?" or "".
std::string suggestion(std::string_view word, const std::vector<std::string_view>& known);

}  // namespace weighlock
