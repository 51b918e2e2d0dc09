#pragma once

#include <functional>
#include <optional>

#include "base/http_address.h"
#include "base/result.h"
#include "base/time.h"
#include "http/client.h"

namespace heddle::http {

/// Another request, which is sent again and again while one runs.
struct Poll {
  Request request{};
  Duration interval{};  ///< Before the first, and from an answer to the next.
  std::function<void(const Result<Reply>&)> on_reply{};
};

/// Asks one server, one request at a time, each over a connection of its own, and waits for the
/// answer. It is Client on a loop of its own: what it calls, it calls on the caller's thread.
class BlockingClient {
 public:
  explicit BlockingClient(HttpAddress address, ClientOptions options = {});

  /// From here on SIGINT during a request ends that request, with kCancelled.
  void let_interrupt() { interruptible_ = true; }

  /// From here on this is done while requests run, and ends with each.
  void poll_meanwhile(Poll poll) { poll_ = std::move(poll); }

  /// As Client::exchange().
  [[nodiscard]] Result<Reply> exchange(Request request);

 private:
  HttpAddress address_;
  ClientOptions options_;
  bool interruptible_ = false;
  std::optional<Poll> poll_{};
};

}  // namespace heddle::http
