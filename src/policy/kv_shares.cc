#include "policy/kv_shares.h"

#include <algorithm>
#include <cmath>

namespace heddle::policy {
namespace {

/// Of what it uses, and of all there is.
constexpr std::int64_t kHeadroomPart = 4;
/// With so much of its headroom left an engine has time.
constexpr std::int64_t kTimePart = 4;

struct Vessel {
  std::int64_t least = 0;
  std::int64_t most = 0;
  double weight = 1;
  std::int64_t has = 0;
};

/// Fills `amount` into the vessels beyond what each has at least, in proportion to their weights,
/// until each has its most.
void fill(std::vector<Vessel>& vessels, std::int64_t amount) {
  for (Vessel& vessel : vessels) {
    vessel.has = std::min(vessel.least, vessel.most);
    amount -= vessel.has;
  }
  while (amount > 0) {
    double weight = 0;
    for (const Vessel& vessel : vessels) {
      weight += vessel.has < vessel.most ? vessel.weight : 0;
    }
    if (weight == 0) {
      return;
    }
    const std::int64_t round = amount;
    for (Vessel& vessel : vessels) {
      const auto part = static_cast<std::int64_t>(
          std::floor(static_cast<double>(round) * vessel.weight / weight));
      const std::int64_t more =
          vessel.has < vessel.most
              ? std::min({vessel.most - vessel.has, std::max<std::int64_t>(part, 1), amount})
              : 0;
      vessel.has += more;
      amount -= more;
    }
  }
}

}  // namespace

std::int64_t kv_headroom(std::int64_t used, std::int64_t capacity) {
  return std::max<std::int64_t>({used, capacity, kHeadroomPart}) / kHeadroomPart;
}

std::vector<KvShare> share_kv(std::span<const KvUser> users, std::int64_t capacity) {
  std::int64_t busy_want = 0;
  std::int64_t idle_least = 0;
  const auto want = [&](const KvUser& user) {
    return std::max(user.least, user.used + kv_headroom(user.used, capacity));
  };
  for (const KvUser& user : users) {
    busy_want += user.busy ? want(user) : 0;
    idle_least += user.busy ? 0 : user.least;
  }
  const bool enough = busy_want + idle_least <= capacity;
  std::vector<Vessel> busy;
  std::vector<Vessel> idle;
  for (const KvUser& user : users) {
    const Vessel vessel{.least = user.least,
                        .most = user.busy ? want(user) : std::max(user.least, user.used),
                        .weight = user.weight};
    (user.busy ? busy : idle).push_back(vessel);
  }
  fill(busy, enough ? busy_want : capacity - idle_least);
  fill(idle, enough ? capacity - busy_want : idle_least);
  std::vector<KvShare> shares;
  auto next_busy = busy.begin();
  auto next_idle = idle.begin();
  for (const KvUser& user : users) {
    const Vessel& vessel = user.busy ? *next_busy++ : *next_idle++;
    KvShare share{.pages = vessel.has};
    if (user.busy && user.used + kv_headroom(user.used, capacity) / kTimePart > share.pages) {
      share.lacks = vessel.most - vessel.has;
    }
    shares.push_back(share);
  }
  return shares;
}

}  // namespace heddle::policy
