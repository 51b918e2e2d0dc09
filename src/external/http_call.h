#pragma once

#include <cstdint>
#include <string>

#include <boost/asio/awaitable.hpp>

#include "base/result.h"
#include "base/time.h"
#include "core/serving.h"

namespace heddle::external {

/// One exchange with an engine about itself: its health, its sleep, a probe. Requests of clients go
/// another way.
struct HttpCall {
  std::string method = "GET";
  std::string target = "/";  ///< Below the address's base path; with its query.
  std::string body{};        ///< JSON; empty: none.
};

struct HttpAnswer {
  int status = 0;
  std::string body{};  ///< At most 4 MiB.
};

/// Over a connection of its own. kUnavailable where nobody listens or the exchange breaks,
/// kDeadlineExceeded where it is not over within `patience`.
[[nodiscard]] boost::asio::awaitable<Result<HttpAnswer>> http_call(core::EngineAddress address,
                                                                   HttpCall call,
                                                                   Duration patience);

/// Whether somebody listens there.
[[nodiscard]] boost::asio::awaitable<bool> port_open(core::EngineAddress address,
                                                     Duration patience);

}  // namespace heddle::external
