#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "base/metrics.h"
#include "base/result.h"
#include "config/config.h"

namespace heddle::gateway {

/// What a process that serves no clients tells over HTTP: GET /metrics, /healthz, and /readyz,
/// which is 503 with what is wrong while something is. Nobody is asked for a key. Loop thread.
class StatusServer {
 public:
  /// Errors as HttpServer::listen.
  /// @param metrics   Outlives it.
  /// @param troubles  What is wrong now, for people, a sentence each.
  static Result<std::unique_ptr<StatusServer>> listen(
      boost::asio::io_context& loop,
      const config::ListenAddress& address,
      Metrics& metrics,
      std::function<std::vector<std::string>()> troubles);
  ~StatusServer();
  StatusServer(const StatusServer&) = delete;
  StatusServer& operator=(const StatusServer&) = delete;

  /// The address that was bound.
  [[nodiscard]] const config::ListenAddress& address() const;

 private:
  class Impl;
  explicit StatusServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::gateway
