#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/file_stamp.h"
#include "base/result.h"
#include "config/config.h"

struct ssl_ctx_st;

namespace heddle::gateway {

/// OpenSSL's SSL_CTX: a certificate, its key, and how TLS is spoken with them.
using TlsContext = std::shared_ptr<ssl_ctx_st>;

/// A certificate and its key as files, which are replaced now and then. Loop thread.
class TlsFiles {
 public:
  /// Reads both. kInvalidArgument, with the key of the configuration, the file and the reason, when
  /// they do not make a certificate that clients of TLS 1.2 and later would take.
  static Result<TlsFiles> open(config::TlsConfig files);

  /// For new connections.
  [[nodiscard]] const TlsContext& context() const { return context_; }
  /// What of the pair is unwise, a line each: a key that everybody may read, an expired
  /// certificate.
  [[nodiscard]] std::vector<std::string> warnings() const;

  /// Reads `files` anew. A pair that is wrong is logged, and the one before is kept.
  void reload(config::TlsConfig files);
  /// The same for the files that it has, where they are not as they were when last read.
  void reload_if_changed();

 private:
  using Stamps = std::pair<FileStamp, FileStamp>;

  static Stamps stamps_of(const config::TlsConfig& files);
  TlsFiles(config::TlsConfig files, Stamps stamps, TlsContext context)
      : files_(std::move(files)), stamps_(stamps), context_(std::move(context)) {}

  config::TlsConfig files_;
  Stamps stamps_;  ///< Of before they were read.
  TlsContext context_;
};

}  // namespace heddle::gateway
