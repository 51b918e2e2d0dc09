#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "core/quota_use.h"
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
/// is let in while there are tokens. What it may use, as far as that is known when it begins, is
/// set aside until it ends; what it used is taken then, so that a bucket may go below nothing where
/// that was more, and has to fill again. Loop thread.
class Quotas {
 public:
  /// Admits a request of this key, or not. Keys without bounds are always admitted.
  QuotaVerdict admit(const Principal& principal, Instant now);
  struct Account;
  /// Tokens that are set aside for a request, until this is destroyed.
  class Reserved {
   public:
    Reserved(std::shared_ptr<Account> account, double tokens);
    ~Reserved();
    Reserved(const Reserved&) = delete;
    Reserved& operator=(const Reserved&) = delete;

   private:
    std::shared_ptr<Account> account_;
    double tokens_;
  };

  /// Sets aside what a request of the key may use: of more than a minute's worth, that. Without a
  /// verdict there is room: null where the key has no such bound. Else the verdict says no.
  struct Reservation {
    std::shared_ptr<const Reserved> reserved{};
    std::optional<QuotaVerdict> refusal{};
  };
  [[nodiscard]] Reservation reserve(const std::string& tenant, std::int64_t tokens, Instant now);

  /// Takes what a request has used.
  void charge(const std::string& tenant, std::int64_t tokens, Instant now);

  /// What keys have used here since this was last asked, for the other gateways of a cluster: of
  /// each key a minute's worth at most, so that nobody pays for long when they were apart.
  [[nodiscard]] std::vector<core::QuotaUse> take_used();
  /// Takes what keys have used at another gateway. It may leave less than nothing.
  void used_elsewhere(const std::vector<core::QuotaUse>& used, Instant now);

 private:
  struct Bucket {
    double per_minute = 0;
    double left = 0;
    Instant at{};  ///< When that was left.
    void fill(double most, Instant now);
    [[nodiscard]] Duration time_to(double wanted) const;
  };

  using Accounts = std::map<std::string, std::shared_ptr<Account>>;

  Accounts accounts_{};  ///< By tenant, of keys with bounds alone.
  Accounts shared_{};    ///< The same and those of keys that were used elsewhere, by key digest.
};

}  // namespace heddle::gateway
