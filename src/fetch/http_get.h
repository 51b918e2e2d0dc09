#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace heddle::fetch {

struct GetRequest {
  std::string url{};
  std::vector<std::string> headers{};  ///< "Name: value".
  /// Likewise, but only for the host of `url`: a redirect to another one leaves them out.
  std::vector<std::string> secrets{};
};

/// The head of an answer that is no redirect.
struct GetReply {
  int status = 0;
  std::string etag{};
  std::string last_modified{};
  std::string content_range{};
  std::string error_code{};  ///< What hubs and buckets say beside the status, as far as known.
  std::string link{};        ///< Where a list goes on.
  std::string region{};      ///< Where a bucket is.
  std::optional<std::uint64_t> content_bytes{};  ///< Of this answer's body.
  std::optional<Duration> retry_after{};
  std::string url{};      ///< That answered; see shown().
  std::string problem{};  ///< The beginning of a body that is not 2xx.
};

enum class Next : std::uint8_t {
  kMore,
  kEnough,  ///< The rest of the body is not wanted.
};
/// Takes the next part of a 2xx body; once, with nothing, where that is empty.
using Body = std::function<Result<Next>(const GetReply& head, std::span<const std::byte> part)>;

struct HttpOptions {
  Duration connect_timeout = std::chrono::seconds(20);
  /// Given up, as one that may pass, when so long fewer than `stall_bytes` a second have come.
  Duration stall_timeout = std::chrono::seconds(30);
  std::uint64_t stall_bytes = 256;
  std::string authorities{};  ///< A PEM file; empty: those of the system.
  /// At which each connection is read, where that is known [bytes/s]; 0: as fast as it comes. The
  /// system then buffers no more of an answer than that rate needs: more would come at the full
  /// rate of the link, and whatever else the host is sent would wait behind it.
  std::uint64_t reading_rate = 0;
};

/// Reads by HTTP and HTTPS, with libcurl: proxies by http_proxy, https_proxy and no_proxy, logins
/// by
/// ~/.netrc. Connections are kept and used again. Any thread may call it, at the same time.
///
/// Redirects are followed to http and https alone, never from https to http, and to this machine or
/// its link only where the URL that was asked for is there itself.
class HttpGet {
 public:
  explicit HttpGet(const HttpOptions& options);
  ~HttpGet();
  HttpGet(const HttpGet&) = delete;
  HttpGet& operator=(const HttpGet&) = delete;

  /// Asks once and waits for the end of the answer, whatever its status. kUnavailable where that
  /// may be otherwise the next time; kFailedPrecondition where not: certificates, redirects that
  /// are refused; kCancelled after a stop; what `body` returns. No message has credentials.
  [[nodiscard]] Result<GetReply> get(const GetRequest& request,
                                     const Body& body,
                                     const std::stop_token& stop);

  /// The same for a small body, which is returned: kCorrupt where it has more than `bytes_max`.
  struct Text {
    GetReply reply{};
    std::string body{};
  };
  [[nodiscard]] Result<Text> get_text(const GetRequest& request,
                                      std::uint64_t bytes_max,
                                      const std::stop_token& stop);

 private:
  struct Handles;
  std::unique_ptr<Handles> handles_;
};

}  // namespace heddle::fetch
