#include "weighlock/net/tls.hpp"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <cerrno>
#include <climits>
#include <cstring>

#include "weighlock/core/check.hpp"
#include "weighlock/net/socket.hpp"

namespace weighlock {

namespace {

struct FreeContext {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
struct FreeSession {
  void operator()(SSL* session) const { SSL_free(session); }
};
using ContextPointer = std::unique_ptr<SSL_CTX, FreeContext>;
using SessionPointer = std::unique_ptr<SSL, FreeSession>;

std::string openssl_text() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return reason == nullptr ? "unknown TLS error" : reason;
}

class TlsWire final : public Wire {
 public:
  TlsWire(SessionPointer session, bool verify) : session_(std::move(session)), verify_(verify) {}

  WireResult handshake() override { return result(SSL_connect(session_.get()), 0); }

  WireResult read(char* into, std::size_t size) override {
    std::size_t n = 0;
    const int done = SSL_read_ex(session_.get(), into, size, &n);
    return result(done, n);
  }

  WireResult write(const char* from, std::size_t size) override {
    std::size_t n = 0;
    const int done = SSL_write_ex(session_.get(), from, size, &n);
    return result(done, n);
  }

  void farewell() override {
    SSL_shutdown(session_.get());
    ERR_clear_error();
  }

 private:
  WireResult result(int done, std::size_t bytes) {
    const int saved = errno;
    if (done > 0) return {.bytes = bytes};
    switch (SSL_get_error(session_.get(), done)) {
      case SSL_ERROR_WANT_READ:
        return {.kind = WireResult::Kind::want_read};
      case SSL_ERROR_WANT_WRITE:
        return {.kind = WireResult::Kind::want_write};
      case SSL_ERROR_ZERO_RETURN:
        return {.kind = WireResult::Kind::end};
      case SSL_ERROR_SYSCALL:
        ERR_clear_error();
        return {.kind = WireResult::Kind::failed, .reset = true, .text = std::strerror(saved)};
      default:
        break;
    }
    if (ERR_GET_REASON(ERR_peek_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
      ERR_clear_error();
      // No goodbye: what came may have been cut short by anybody on the way.
      return {.kind = WireResult::Kind::failed, .reset = true, .text = "closed without a TLS goodbye"};
    }
    const long verdict = SSL_get_verify_result(session_.get());
    if (verify_ && verdict != X509_V_OK) {
      ERR_clear_error();
      return {.kind = WireResult::Kind::failed, .text = X509_verify_cert_error_string(verdict)};
    }
    return {.kind = WireResult::Kind::failed, .text = openssl_text()};
  }

  SessionPointer session_;
  bool verify_;
};

}  // namespace

struct TlsContext::Implementation {
  ContextPointer context;
  bool verify_peer;
};

TlsContext::TlsContext(std::unique_ptr<Implementation> implementation) : implementation_(std::move(implementation)) {}
TlsContext::~TlsContext() = default;

Result<std::shared_ptr<TlsContext>> TlsContext::make(const std::string& ca_file, bool verify_peer) {
  ContextPointer context(SSL_CTX_new(TLS_client_method()));
  WEIGHLOCK_CHECK(context != nullptr, "OpenSSL makes a client context");
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  // Writes may be short, and the buffer may move between tries of one write.
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  if (verify_peer) {
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
    const int loaded = ca_file.empty() ? SSL_CTX_set_default_verify_paths(context.get())
                                       : SSL_CTX_load_verify_locations(context.get(), ca_file.c_str(), nullptr);
    if (loaded != 1) {
      return Error{ErrorCode::invalid_argument, fmt::format("cannot read CA file '{}': {}", ca_file, openssl_text())};
    }
  }
  auto implementation = std::make_unique<Implementation>(Implementation{std::move(context), verify_peer});
  return std::shared_ptr<TlsContext>(new TlsContext(std::move(implementation)));
}

std::unique_ptr<Wire> TlsContext::connect(int socket, const std::string& host) const {
  SessionPointer session(SSL_new(implementation_->context.get()));
  WEIGHLOCK_CHECK(session != nullptr, "OpenSSL makes a session");
  SSL_set_fd(session.get(), socket);
  if (numeric_address(host, 0)) {
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session.get()), host.c_str());
  } else {
    SSL_set_tlsext_host_name(session.get(), host.c_str());
    SSL_set1_host(session.get(), host.c_str());
  }
  return std::make_unique<TlsWire>(std::move(session), implementation_->verify_peer);
}

}  // namespace weighlock
