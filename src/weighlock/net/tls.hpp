// TLS for the client side, by OpenSSL: at least TLS 1.2, the peer's name checked against its certificate.
#pragma once

#include <memory>
#include <string>

#include "weighlock/core/result.hpp"
#include "weighlock/net/wire.hpp"

namespace weighlock {

class TlsContext {
 public:
  // `ca_file`: PEM, "" for the system's. An unreadable one is an error.
  static Result<std::shared_ptr<TlsContext>> make(const std::string& ca_file, bool verify_peer);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  // `host`: a name (then it is sent, too) or an address.
  std::unique_ptr<Wire> connect(int socket, const std::string& host) const;

 private:
  struct Implementation;
  explicit TlsContext(std::unique_ptr<Implementation> implementation);
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace weighlock
