#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/time.h"
#include "gateway/http_exchange.h"

namespace heddle::gateway {

/// What the quota of a key says to one request.
struct QuotaVerdict {
  bool admitted = true;
  std::int64_t retry_after = 0;  ///< Seconds until one like it is admitted; 0 for one that is.
  std::string reason{};          ///< Which bound it met, for people.
  HttpFields headers{};          ///< OpenAI's `x-ratelimit-*`, for those bounds that are set.
};

/// How many requests and tokens keys have used of what they may in a minute. Each bound is a bucket
/// that fills evenly and holds a minute's worth. A request takes one of its own when it comes, and
/// is let in while there are tokens; what it used is taken when it ends, so that a bucket may go
/// below nothing and has to fill again. Loop thread.
class Quotas {
 public:
  /// Admits a request of this key, or not. Keys without bounds are always admitted.
  QuotaVerdict admit(const Principal& principal, Instant now);
  /// Takes what a request has used.
  void charge(const std::string& tenant, std::int64_t tokens, Instant now);

 private:
  struct Bucket {
    double per_minute = 0;
    double left = 0;
    Instant at{};  ///< When that was left.
    void fill(double most, Instant now);
    [[nodiscard]] Duration time_to(double wanted) const;
  };
  struct Account {
    Bucket requests{};
    Bucket tokens{};
  };

  std::map<std::string, Account> accounts_{};  ///< By tenant, of keys with bounds alone.
};

}  // namespace heddle::gateway
