#include "weighlock/core/suggest.hpp"

#include <gtest/gtest.h>

namespace weighlock {
namespace {

const std::vector<std::string_view> kKnown = {"host", "port", "save_path", "storage_roots"};

TEST(Suggest, a_typo_finds_its_word) {
  EXPECT_EQ(nearest("prot", kKnown), "port");
  EXPECT_EQ(nearest("storage_root", kKnown), "storage_roots");
  EXPECT_EQ(suggestion("save_pth", kKnown), "; did you mean 'save_path'?");
}

TEST(Suggest, dash_and_underscore_are_one_letter) {
  EXPECT_EQ(nearest("save-path", kKnown), "save_path");
}

TEST(Suggest, a_strange_word_suggests_nothing) {
  EXPECT_EQ(nearest("temperature", kKnown), "");
  EXPECT_EQ(suggestion("", kKnown), "");
  EXPECT_EQ(nearest(std::string(10'000, 'x'), kKnown), "");
}

}  // namespace
}  // namespace weighlock
