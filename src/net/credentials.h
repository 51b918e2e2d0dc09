#pragma once

#include <array>
#include <memory>
#include <string>

#include "base/file_stamp.h"
#include "base/result.h"
#include "net/identity.h"

struct ssl_ctx_st;

namespace heddle::net {

/// PEM files.
struct CredentialFiles {
  std::string authority{};    ///< Who vouches for the others of the cluster; ca.crt.
  std::string certificate{};  ///< Of this process, with what lies between it and the authority.
  std::string key{};
};

/// What a process shows to the others of its cluster and checks them against: TLS 1.3 with
/// certificates both ways. The files may be replaced: links that begin later use what is there
/// then. Loop thread.
class Credentials {
 public:
  /// kNotFound or kInvalidArgument, with the file and the reason, where they cannot be used;
  /// kFailedPrecondition where the certificate is not good now, or of another authority.
  static Result<std::shared_ptr<Credentials>> open(CredentialFiles files);

  [[nodiscard]] const Identity& identity() const { return identity_; }
  [[nodiscard]] const CredentialFiles& files() const { return files_; }

  /// OpenSSL's SSL_CTX for a new connection. Reads the files again where they have changed; what is
  /// wrong with them then is logged, and what there was before is used.
  std::shared_ptr<ssl_ctx_st> context();

 private:
  using Stamps = std::array<FileStamp, 3>;

  Credentials(CredentialFiles files,
              Stamps stamps,
              Identity identity,
              std::shared_ptr<ssl_ctx_st> context)
      : files_(std::move(files)),
        stamps_(stamps),
        identity_(std::move(identity)),
        context_(std::move(context)) {}

  CredentialFiles files_;
  Stamps stamps_;  ///< Of before they were read.
  Identity identity_;
  std::shared_ptr<ssl_ctx_st> context_;
};

}  // namespace heddle::net
