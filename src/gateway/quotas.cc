#include "gateway/quotas.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/units.h"

namespace heddle::gateway {

namespace {

/// As OpenAI writes a time: "1s", "350ms", "1m0s".
std::string reset_text(Duration time) {
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(time).count();
  if (ms < 1000) {
    return std::to_string(std::max<std::int64_t>(ms, 0)) + "ms";
  }
  const std::int64_t seconds = (ms + 999) / 1000;
  const std::string minutes = seconds >= 60 ? std::to_string(seconds / 60) + "m" : "";
  return minutes + std::to_string(seconds % 60) + "s";
}

}  // namespace

struct Quotas::Account {
  Bucket requests{};
  Bucket tokens{};
  double reserved = 0;               ///< Of the latter, for requests that run.
  std::int64_t untold_requests = 0;  ///< Used, and not told to other gateways.
  std::int64_t untold_tokens = 0;
};

Quotas::Reserved::Reserved(std::shared_ptr<Account> account, double tokens)
    : account_(std::move(account)), tokens_(tokens) {
  account_->reserved += tokens_;
}

Quotas::Reserved::~Reserved() {
  account_->reserved -= tokens_;
}

Quotas::Reservation Quotas::reserve(const std::string& tenant, std::int64_t tokens, Instant now) {
  const auto found = accounts_.find(tenant);
  if (found == accounts_.end() || found->second->tokens.per_minute <= 0) {
    return {};
  }
  Account& account = *found->second;
  Bucket& bucket = account.tokens;
  bucket.fill(bucket.per_minute, now);
  const double wanted = std::min(static_cast<double>(tokens), bucket.per_minute);
  // A full bucket takes any request, and so does one that nothing is set aside from.
  const double lacking = wanted + account.reserved - bucket.left;
  if (account.reserved > 0 && lacking > 0) {
    const Duration wait = from_seconds(60 * lacking / bucket.per_minute);
    return {.refusal = QuotaVerdict{
                .admitted = false,
                .retry_after = std::max<std::int64_t>(
                    std::chrono::ceil<std::chrono::seconds>(wait).count(), 1),
                .reason = "this key may use " +
                          std::to_string(static_cast<std::int64_t>(bucket.per_minute)) +
                          " tokens a minute, of which its running requests may use " +
                          std::to_string(static_cast<std::int64_t>(account.reserved)) +
                          " and this one " + std::to_string(tokens)}};
  }
  return {.reserved = std::make_shared<const Reserved>(found->second, wanted)};
}

void Quotas::Bucket::fill(double most, Instant now) {
  const double minutes = std::chrono::duration<double, std::ratio<60>>(now - at).count();
  // A bound that is new, or has changed with the configuration, begins full.
  left = per_minute == most ? std::min(most, left + minutes * most) : most;
  per_minute = most;
  at = now;
}

Duration Quotas::Bucket::time_to(double wanted) const {
  return wanted <= left ? Duration{} : from_seconds(60 * (wanted - left) / per_minute);
}

QuotaVerdict Quotas::admit(const Principal& principal, Instant now) {
  QuotaVerdict verdict;
  if (principal.requests_per_minute <= 0 && principal.tokens_per_minute <= 0) {
    accounts_.erase(principal.tenant);
    shared_.erase(principal.key_digest);
    return verdict;
  }
  std::shared_ptr<Account>& known = accounts_[principal.tenant];
  if (known == nullptr) {
    std::shared_ptr<Account>& shared = shared_[principal.key_digest];
    if (shared == nullptr) {
      shared = std::make_shared<Account>();
    }
    known = shared;
  }
  Account& account = *known;
  Duration wait{};
  const auto look = [&](Bucket& bucket, std::int64_t most, const char* what) {
    if (most <= 0) {
      return;
    }
    bucket.fill(static_cast<double>(most), now);
    if (bucket.left < 1) {
      verdict.admitted = false;
      wait = std::max(wait, bucket.time_to(1));
      verdict.reason = "this key may use " + std::to_string(most) + " " + what + " a minute";
    }
  };
  look(account.requests, principal.requests_per_minute, "requests");
  look(account.tokens, principal.tokens_per_minute, "tokens");
  if (verdict.admitted && principal.requests_per_minute > 0) {
    account.requests.left -= 1;
    ++account.untold_requests;
  }
  verdict.retry_after =
      verdict.admitted
          ? 0
          : std::max<std::int64_t>(std::chrono::ceil<std::chrono::seconds>(wait).count(), 1);
  const auto tell = [&verdict](const Bucket& bucket, std::int64_t most, const std::string& what) {
    if (most > 0) {
      const auto left = static_cast<std::int64_t>(std::max(std::floor(bucket.left), 0.0));
      verdict.headers.emplace_back("x-ratelimit-limit-" + what, std::to_string(most));
      verdict.headers.emplace_back("x-ratelimit-remaining-" + what, std::to_string(left));
      verdict.headers.emplace_back("x-ratelimit-reset-" + what,
                                   reset_text(bucket.time_to(bucket.per_minute)));
    }
  };
  tell(account.requests, principal.requests_per_minute, "requests");
  tell(account.tokens, principal.tokens_per_minute, "tokens");
  return verdict;
}

void Quotas::charge(const std::string& tenant, std::int64_t tokens, Instant now) {
  const auto found = accounts_.find(tenant);
  if (found != accounts_.end() && found->second->tokens.per_minute > 0) {
    Bucket& bucket = found->second->tokens;
    bucket.fill(bucket.per_minute, now);
    bucket.left -= static_cast<double>(tokens);
    found->second->untold_tokens += tokens;
  }
}

std::vector<core::QuotaUse> Quotas::take_used() {
  std::vector<core::QuotaUse> used;
  for (const auto& [key, account] : shared_) {
    if (account->untold_requests == 0 && account->untold_tokens == 0) {
      continue;
    }
    if (used.size() == core::kQuotaUsesMost) {
      break;
    }
    core::QuotaUse use{
        .key = key,
        .requests_per_minute = static_cast<std::int64_t>(account->requests.per_minute),
        .tokens_per_minute = static_cast<std::int64_t>(account->tokens.per_minute)};
    use.requests = std::min(std::exchange(account->untold_requests, 0), use.requests_per_minute);
    use.tokens = std::min(std::exchange(account->untold_tokens, 0), use.tokens_per_minute);
    used.push_back(std::move(use));
  }
  return used;
}

void Quotas::used_elsewhere(const std::vector<core::QuotaUse>& used, Instant now) {
  // A key that has not been here yet has the bounds that it has there, until it comes.
  const auto take = [now](Bucket& bucket, std::int64_t most, std::int64_t amount) {
    if (most > 0) {
      bucket.fill(bucket.per_minute > 0 ? bucket.per_minute : static_cast<double>(most), now);
      bucket.left -= static_cast<double>(amount);
    }
  };
  for (const core::QuotaUse& use : used) {
    std::shared_ptr<Account>& account = shared_[use.key];
    if (account == nullptr) {
      account = std::make_shared<Account>();
    }
    take(account->requests, use.requests_per_minute, use.requests);
    take(account->tokens, use.tokens_per_minute, use.tokens);
  }
}

}  // namespace heddle::gateway
