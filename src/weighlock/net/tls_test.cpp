#include "weighlock/net/tls.hpp"

#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <filesystem>

#include "weighlock/net/loop_fixture.hpp"

namespace weighlock::testing {

namespace {

using Kind = TransportError::Kind;
using namespace std::chrono_literals;

// A certificate for 127.0.0.1 that vouches for itself, and a server that answers requests over it.
class TlsPeer {
 public:
  TlsPeer() : key_(EVP_EC_gen("P-256")), certificate_(X509_new()), context_(SSL_CTX_new(TLS_server_method())) {
    X509_set_version(certificate_, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate_), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate_), -60);
    X509_gmtime_adj(X509_getm_notAfter(certificate_), 3600);
    X509_set_pubkey(certificate_, key_);
    X509_NAME* name = X509_get_subject_name(certificate_);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("test"), -1, -1, 0);
    X509_set_issuer_name(certificate_, name);
    X509_EXTENSION* names = X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "IP:127.0.0.1");
    X509_add_ext(certificate_, names, -1);
    X509_EXTENSION_free(names);
    X509_sign(certificate_, key_, EVP_sha256());
    SSL_CTX_use_certificate(context_, certificate_);
    SSL_CTX_use_PrivateKey(context_, key_);
    std::FILE* file = std::fopen(ca_file().c_str(), "w");
    PEM_write_X509(file, certificate_);
    std::fclose(file);
  }
  ~TlsPeer() {
    SSL_CTX_free(context_);
    X509_free(certificate_);
    EVP_PKEY_free(key_);
    std::filesystem::remove(ca_file());
  }

  std::string ca_file() const {
    return ::testing::TempDir() + "weighlock_tls_test_" + std::to_string(::getpid()) + ".pem";
  }
  int port() const { return listener_.port(); }

  // Accepts one connection and answers each request on it, until the client closes; tells how many. Without `goodbye`
  // the last answer, which has no length, ends with the bare connection.
  int serve(const std::string& answer, bool goodbye = true) {
    const RawSocket socket = listener_.accept();
    SSL* session = SSL_new(context_);
    SSL_set_fd(session, socket.descriptor());
    int served = 0;
    if (SSL_accept(session) == 1) {
      char request[4096];
      while (SSL_read(session, request, sizeof request) > 0) {
        SSL_write(session, answer.data(), static_cast<int>(answer.size()));
        ++served;
        if (!goodbye) break;
      }
    }
    if (goodbye) SSL_shutdown(session);
    SSL_free(session);
    return served;
  }

 private:
  RawListener listener_;
  EVP_PKEY* key_;
  X509* certificate_;
  SSL_CTX* context_;
};

const std::string kOk = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nsafe";

class TlsTest : public LoopFixture {
 protected:
  TlsTest() { peer_url_.scheme = "https"; }
  HttpResult get() { return call(peer_url_, {"GET", "/", {}, ""}, {.deadline = 5s}); }

  TlsPeer peer_;
  Url peer_url_ = url_of(peer_.port());
};

}  // namespace

TEST_F(TlsTest, verified_peer_is_asked_twice_over_one_connection) {
  use_client({.ca_file = peer_.ca_file()});
  int served = 0;
  std::thread serving([&] { served = peer_.serve(kOk); });
  for (int i = 0; i < 2; ++i) {
    const HttpResult result = get();
    ASSERT_TRUE(std::holds_alternative<HttpResponse>(result)) << std::get<TransportError>(result).text;
    EXPECT_EQ("safe", std::get<HttpResponse>(result).body);
  }
  on_loop([&] { client_.reset(); });
  serving.join();
  EXPECT_EQ(2, served);
}

TEST_F(TlsTest, unknown_issuer_is_refused_before_a_byte_is_sent) {
  use_client({});
  int served = 0;
  std::thread serving([&] { served = peer_.serve(kOk); });
  const auto error = std::get<TransportError>(get());
  serving.join();
  EXPECT_EQ(Kind::tls, error.kind);
  EXPECT_TRUE(error.nothing_sent);
  EXPECT_NE(std::string::npos, error.text.find("self-signed certificate")) << error.text;
  EXPECT_EQ(0, served);
}

TEST_F(TlsTest, certificate_for_another_name_is_refused) {
  use_client({.ca_file = peer_.ca_file()});
  peer_url_.host = "localhost";
  std::thread serving([&] { peer_.serve(kOk); });
  const auto error = std::get<TransportError>(get());
  serving.join();
  EXPECT_EQ(Kind::tls, error.kind);
  EXPECT_NE(std::string::npos, error.text.find("hostname mismatch")) << error.text;
}

TEST_F(TlsTest, unverified_peer_is_accepted_only_when_asked_for) {
  use_client({.verify_peer = false});
  std::thread serving([&] { peer_.serve(kOk); });
  EXPECT_TRUE(std::holds_alternative<HttpResponse>(get()));
  on_loop([&] { client_.reset(); });
  serving.join();
}

TEST_F(TlsTest, answer_that_ends_without_a_goodbye_may_be_cut_short) {
  use_client({.ca_file = peer_.ca_file()});
  std::thread serving([&] { peer_.serve("HTTP/1.0 200 OK\r\n\r\nhalf or whole?", false); });
  const HttpResult result = get();
  serving.join();
  ASSERT_TRUE(std::holds_alternative<TransportError>(result));
  EXPECT_EQ(Kind::reset, std::get<TransportError>(result).kind);
}

TEST_F(TlsTest, plain_http_peer_is_a_tls_error) {
  use_client({.ca_file = peer_.ca_file()});
  peer_url_.port = serve([](const HttpRequest&, const Responder& responder) { responder.respond({}); });
  const auto error = std::get<TransportError>(get());
  EXPECT_EQ(Kind::tls, error.kind);
  EXPECT_TRUE(error.nothing_sent);
}

TEST_F(TlsTest, unreadable_ca_file_is_named) {
  use_client({.ca_file = "/nonexistent/ca.pem"});
  const auto error = std::get<TransportError>(get());
  EXPECT_EQ(Kind::tls, error.kind);
  EXPECT_NE(std::string::npos, error.text.find("/nonexistent/ca.pem")) << error.text;
}

}  // namespace weighlock::testing
