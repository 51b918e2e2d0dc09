#pragma once

#include <cstdint>
#include <span>
#include <vector>

/// How external engines on one device share what is left of it for their KV (Prism lends pages
/// between models; the rule here is max-min fairness by weight).
namespace heddle::policy {

/// An engine whose KV grows and shrinks.
struct KvUser {
  std::int64_t least = 0;  ///< KV that it always has [pages]; >= 0.
  std::int64_t used = 0;   ///< KV that it has now [pages]; >= 0.
  bool busy = false;       ///< It answers requests; else what it has are prefixes.
  double weight = 1;       ///< Of its share where there is not enough for all; > 0.
};

struct KvShare {
  std::int64_t pages = 0;  ///< Its KV may have so many.
  std::int64_t lacks = 0;  ///< So many more it would want; 0 while it has room to grow in.
};

/// What an engine that answers requests wants beyond what it uses, so that it has room to grow in
/// until it is looked at again: a quarter of all, or of what it uses if that is more [pages].
[[nodiscard]] std::int64_t kv_headroom(std::int64_t used, std::int64_t capacity);

/// Divides `capacity` pages among `users`, by their order. Where all fits, a busy one has what it
/// uses and its headroom, an idle one what it uses, and the rest stays free for whoever comes. Else
/// idle ones give their prefixes first: they share what busy ones leave. Where these want more than
/// there is, each has its least, and the rest is filled up like water: shares grow in proportion to
/// weights until each has what it wants or nothing is left (max-min fairness). The shares are at
/// most `capacity` in sum, unless what everybody always has is more than that. Pure; O(n^2).
[[nodiscard]] std::vector<KvShare> share_kv(std::span<const KvUser> users, std::int64_t capacity);

}  // namespace heddle::policy
