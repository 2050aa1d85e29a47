#include "weighlock/awex/scanner.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <string_view>

#include "weighlock/core/json.hpp"

namespace weighlock::awex {
namespace {

bool scanned(std::string_view text) {
  Scanner scan(text, 64);
  std::string_view raw;
  return scan.skip_value(raw) && scan.at_end();
}

// Duplicate keys are the one thing in which they differ.
bool parsed(std::string_view text) {
  const Result<json::value> value = parse_json(text, "text");
  return value || value.error().message.find("appears twice") != std::string::npos;
}

constexpr std::string_view kTexts[] = {R"({})",
                                       R"([])",
                                       R"(null)",
                                       R"(true)",
                                       R"(tru)",
                                       R"(-0)",
                                       R"(01)",
                                       R"(1.)",
                                       R"(.5)",
                                       R"(1e5)",
                                       R"(1E+)",
                                       R"(-)",
                                       R"([1,])",
                                       R"([,1])",
                                       R"({"a":1,})",
                                       R"({"a" 1})",
                                       R"({a:1})",
                                       R"("\x")",
                                       R"("\u12")",
                                       R"("\ud800")",
                                       R"("\ud83d\ude00")",
                                       R"("\ude00\ud83d")",
                                       "\"\x01\"",
                                       "\"\x7f\"",
                                       "\"\xc3\xa9\"",
                                       "\"\xc0\x80\"",
                                       "\"\xed\xa0\x80\"",
                                       "\"\xf4\x90\x80\x80\"",
                                       "\"\xf0\x9f\x98\x80\"",
                                       "\"\xe2\x82\"",
                                       " [ 1 , { \"a\" : [ ] } ] ",
                                       "NaN",
                                       "Infinity",
                                       "",
                                       " ",
                                       R"({"a":{"b":[1,2,{"c":"d"}]},"e":-1.5e-3})",
                                       R"(["abcdefghijklmnopqrstuvwxyz",true,false,null])",
                                       "[1 2]",
                                       "{}{}"};

TEST(Scanner, accepts_and_refuses_what_the_strict_parser_does) {
  for (const std::string_view text : kTexts) EXPECT_EQ(scanned(text), parsed(text)) << text;
}

TEST(Scanner, agrees_with_the_strict_parser_on_texts_with_changed_bytes) {
  std::mt19937_64 dice(7);
  constexpr std::string_view kBytes = "\"\\{}[]:,0123456789.eE+-truefalsn \n\x01\x80\xc3\xa9\xff/ubd8";
  for (int round = 0; round < 40'000; ++round) {
    std::string text(kTexts[dice() % std::size(kTexts)]);
    for (std::uint64_t changes = dice() % 4; changes > 0 && !text.empty(); --changes) {
      const std::size_t at = dice() % text.size();
      const char byte = kBytes[dice() % kBytes.size()];
      switch (dice() % 3) {
        case 0:
          text[at] = byte;
          break;
        case 1:
          text.insert(at, 1, byte);
          break;
        default:
          text.erase(at, 1);
      }
    }
    ASSERT_EQ(scanned(text), parsed(text)) << "round " << round << ": " << text;
  }
}

TEST(Scanner, strings_are_decoded) {
  Scanner scan(R"("a\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00")", 4);
  std::string_view out;
  std::string room;
  ASSERT_TRUE(scan.read_string(out, room)) << scan.reason();
  EXPECT_EQ(out, "a\"\\/\b\f\n\r\t\xc3\xa9\xf0\x9f\x98\x80");
  std::string again;
  append_escaped(again, out);
  Scanner back("\"" + again + "\"", 4);
  EXPECT_EQ(again.find('\n'), std::string::npos);
}

TEST(Scanner, whole_numbers_are_read_with_their_sign_and_nothing_else_is) {
  const auto read = [](std::string_view text) -> std::string {
    Scanner scan(text, 4);
    std::int64_t value = 0;
    return scan.read_integer(value) && scan.at_end() ? std::to_string(value) : "refused";
  };
  EXPECT_EQ(read("0"), "0");
  EXPECT_EQ(read("-17"), "-17");
  EXPECT_EQ(read("999999999999999999"), "999999999999999999");
  for (const std::string_view bad :
       {"1.0", "1e3", "00", "-", "--1", "- 1", "+1", "true", "\"1\"", "", "1234567890123456789"})
    EXPECT_EQ(read(bad), "refused") << bad;
}

}  // namespace
}  // namespace weighlock::awex
