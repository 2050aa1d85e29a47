#include "weighlock/core/url.hpp"

#include <gtest/gtest.h>

namespace weighlock {
namespace {

std::string text_of(std::string_view url) {
  const Result<Url> parsed = parse_url(url);
  return parsed ? parsed->text : "refused: " + parsed.error().message;
}

TEST(Url, spellings_of_one_worker_give_one_text) {
  EXPECT_EQ(text_of("http://Host.Example:80/"), "http://host.example:80");
  EXPECT_EQ(text_of("HTTP://host.example"), "http://host.example:80");
  EXPECT_EQ(text_of("https://host"), "https://host:443");
  EXPECT_EQ(text_of("http://127.1:5"), "http://127.0.0.1:5");
  EXPECT_EQ(text_of("http://[::ffff:127.0.0.1]:5"), "http://127.0.0.1:5");
  EXPECT_EQ(text_of("http://[0:0::1]:5/"), "http://[::1]:5");
  EXPECT_EQ(text_of("http://h:1/prefix/"), "http://h:1/prefix");
  EXPECT_EQ(text_of("http://h.:1"), "http://h:1");
  EXPECT_EQ(text_of("http://127.0.0.1.:1"), "http://127.0.0.1:1");
}

TEST(Url, wildcard_hosts_are_refused_in_every_spelling) {
  for (const char* url : {"http://0.0.0.0:1", "http://0:1", "http://0x0:1", "http://[::]:1",
                          "http://[0:0:0:0:0:0:0:0]:1", "http://[::ffff:0.0.0.0]:1", "http://0.1.2.3",
                          "http://[::ffff:0.1.2.3]:1", "http://0.0.0.0.:1", "http://:1", "http://"})
    EXPECT_EQ(text_of(url).rfind("refused", 0), 0u) << url;
}

TEST(Url, what_is_no_worker_address_is_refused) {
  for (const char* url : {"",
                          "host:1",
                          "ftp://h",
                          "file:///etc",
                          "http://u:p@h",
                          "http://h?x",
                          "http://h#x",
                          "http://h:0",
                          "http://h:65536",
                          "http://h:abc",
                          "http://h :1",
                          "http://h\n",
                          "http://[::1",
                          "http://[::1]x",
                          "http://h\xc3\xa4",
                          "http://h/\xc3\xa4",
                          "http://a..b",
                          "http://.",
                          "http://1.2.3.4.5",
                          "http://256.0.0.1",
                          "http://4294967296",
                          "http://0x7g",
                          "http://a.0x1",
                          "http://[::1%25lo]",
                          "http://[::1%lo]",
                          "http://[h]"})
    EXPECT_EQ(text_of(url).rfind("refused", 0), 0u) << url;
}

TEST(Url, what_may_be_secret_in_a_refused_one_is_not_repeated) {
  for (const char* url :
       {"http://u:SECRET@h:1", "http://SECRET@h", "u:SECRET@h", "http://u:SEC/RET@h:1", "http://h/?t=SECRET",
        "http://u:SECRET@h/?t=SECRET", "http://u:SEC RET@h", "http://u:a?SECRET@h"}) {
    const Result<Url> refused = parse_url(url);
    ASSERT_FALSE(refused) << url;
    EXPECT_EQ(refused.error().message.find("RET"), std::string::npos) << refused.error().message;
    EXPECT_NE(refused.error().message.find("***"), std::string::npos) << refused.error().message;
  }
}

}  // namespace
}  // namespace weighlock
