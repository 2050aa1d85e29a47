#include "weighlock/core/words.hpp"

#include <gtest/gtest.h>

namespace weighlock {
namespace {

TEST(Words, of_a_json_answer_are_its_message_in_every_shape_that_engines_use) {
  EXPECT_EQ(words_of(R"({"success":false,"message":"no such file"})"), "no such file");
  EXPECT_EQ(words_of(R"({"error":{"message":"EngineCore encountered an issue","code":500}})"),
            "EngineCore encountered an issue");
  EXPECT_EQ(words_of(R"({"error":"Unauthorized"})"), "Unauthorized");
  EXPECT_EQ(words_of(R"({"detail":"Not Found"})"), "Not Found");
  EXPECT_EQ(words_of(R"({"detail":[{"loc":["body"],"msg":"Field required"}]})"),
            R"([{"loc":["body"],"msg":"Field required"}])");
  EXPECT_EQ(words_of(R"({"status":"ok"})"), R"({"status":"ok"})");
}

TEST(Words, of_an_html_page_are_its_text_without_tags_scripts_and_styles) {
  EXPECT_EQ(words_of("<!doctype html>\n<html lang=en><style>p{color:red}</style><script>if(a<b){}</script>"
                     "<title>500 Internal Server Error</title>\n<h1>Internal Server Error</h1>"),
            "500 Internal Server Error Internal Server Error");
  EXPECT_EQ(words_of("<html><script>never closed"), "");
  EXPECT_EQ(words_of("a < b"), "a < b");
}

TEST(Words, are_one_line_of_valid_utf8) {
  EXPECT_EQ(words_of("a\r\n\t b\x01\x7f"), "a b");
  EXPECT_EQ(words_of("caf\xc3\xa9 \xff\xc3"), "caf\xc3\xa9 ??");
  EXPECT_EQ(words_of("\xed\xa0\x80"), "???") << "a surrogate is not a character";
  EXPECT_EQ(words_of(" \n "), "");
}

TEST(Words, never_exceed_their_bound_and_are_cut_at_a_character) {
  for (std::size_t bound = 0; bound < 16; ++bound) {
    const std::string cut = printable("\xc3\xa9\xc3\xa9\xc3\xa9\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac", bound);
    EXPECT_LE(cut.size(), bound);
    EXPECT_EQ(printable(cut, 100), cut) << "bound " << bound << " left a part of a character";
  }
  EXPECT_EQ(printable("abcdefghij", 10), "abcdefghij");
  EXPECT_EQ(printable("abcdefghijk", 10), "abcdefg...");
}

}  // namespace
}  // namespace weighlock
