#include "weighlock/net/message_reader.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

namespace weighlock {

namespace {

constexpr ReaderLimits kLimits{4096, 65536};

const std::string kRequests =
    "POST /one HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nfirst"
    "POST /two HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3;x=\"y\"\r\nsec\r\n3\r\nond\r\n0\r\nTrailer: "
    "t\r\n\r\n"
    "GET /three HTTP/1.1\r\nHost: h\r\n\r\n";

// Reads all that `pieces` hold, as a connection would; one line a message, up to the first that is refused.
std::string read_requests(const std::vector<std::string>& pieces) {
  std::string buffer;
  std::string seen;
  auto reader = std::make_unique<RequestReader>(kLimits);
  for (const std::string& piece : pieces) {
    buffer += piece;
    while (true) {
      const ReadState state = reader->feed(buffer);
      if (state == ReadState::failed) return seen;
      if (state == ReadState::more) break;
      const HttpRequest request = reader->take();
      seen += request.target + " " + request.body + " " + std::to_string(request.headers.size()) + "\n";
      reader = std::make_unique<RequestReader>(kLimits);
      if (buffer.empty()) break;
    }
  }
  return seen;
}

}  // namespace

TEST(RequestReader, reads_the_same_however_the_bytes_are_cut) {
  const std::string whole = read_requests({kRequests});
  EXPECT_EQ("/one first 2\n/two second 2\n/three  1\n", whole);
  for (std::size_t cut = 0; cut <= kRequests.size(); ++cut) {
    EXPECT_EQ(whole, read_requests({kRequests.substr(0, cut), kRequests.substr(cut)})) << "cut at " << cut;
  }
  std::vector<std::string> bytes;
  for (const char byte : kRequests) bytes.emplace_back(1, byte);
  EXPECT_EQ(whole, read_requests(bytes));
}

TEST(RequestReader, damaged_bytes_give_the_same_requests_however_they_are_cut) {
  std::mt19937 random(20240607);
  for (int round = 0; round < 20'000; ++round) {
    std::string damaged = kRequests;
    for (int i = 0; i < 3; ++i) {
      const std::size_t at = random() % damaged.size();
      switch (random() % 3) {
        case 0:
          damaged[at] = static_cast<char>(random());
          break;
        case 1:
          damaged.erase(at, 1 + random() % 4);
          break;
        default:
          damaged.insert(at, damaged, random() % damaged.size(), random() % 40);
      }
    }
    const std::size_t cut = random() % damaged.size();
    ASSERT_EQ(read_requests({damaged}), read_requests({damaged.substr(0, cut), damaged.substr(cut)})) << damaged;
  }
}

TEST(AnswerReader, announced_length_is_not_reserved) {
  // 64 MiB for every peer that announces so much would be ours to hold.
  AnswerReader reader({4096, std::size_t{1} << 40}, false);
  std::string bytes = "HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\nx";
  EXPECT_EQ(ReadState::more, reader.feed(bytes));
}

TEST(AnswerReader, answer_to_head_ends_with_its_header) {
  AnswerReader reader(kLimits, true);
  std::string bytes = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nnext";
  EXPECT_EQ(ReadState::done, reader.feed(bytes));
  EXPECT_EQ("next", bytes);
  EXPECT_TRUE(reader.keep_alive());
}

TEST(AnswerReader, end_before_any_byte_is_no_answer) {
  AnswerReader reader(kLimits, false);
  EXPECT_EQ(ReadState::failed, reader.end());
  EXPECT_EQ(TransportError::Kind::reset, reader.failure());
}

}  // namespace weighlock
