#include "policy/reclaim.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"
#include "base/div_up.h"

namespace heddle::policy {
namespace {

/// Missing pages on each of an instance's devices.
class Deficits {
 public:
  Deficits(std::span<const ReplicaMap::Index> devices, const ReplicaMap& map, std::int64_t need)
      : devices_(devices) {
    for (const ReplicaMap::Index device : devices) {
      missing_.push_back(need - map.devices()[device].free_pages);
    }
    revoked_.resize(missing_.size());
  }

  /// `sign` 1: the replica goes; -1: it stays after all.
  void revoke(const ReplicaMap::Entry& entry, std::int64_t sign) {
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      if (std::binary_search(entry.devices.begin(), entry.devices.end(), devices_[i])) {
        missing_[i] -= sign * entry.replica.pages;
        revoked_[i] += sign * entry.replica.pages;
      }
    }
  }

  [[nodiscard]] bool any() const {
    return std::any_of(missing_.begin(), missing_.end(), [](std::int64_t m) { return m > 0; });
  }

  [[nodiscard]] bool any_on(const ReplicaMap::Entry& entry) const {
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      if (missing_[i] > 0 &&
          std::binary_search(entry.devices.begin(), entry.devices.end(), devices_[i])) {
        return true;
      }
    }
    return false;
  }

  [[nodiscard]] std::int64_t most_revoked() const {
    return *std::max_element(revoked_.begin(), revoked_.end());
  }

 private:
  std::span<const ReplicaMap::Index> devices_;
  std::vector<std::int64_t> missing_{};
  std::vector<std::int64_t> revoked_{};
};

}  // namespace

std::int64_t kv_reserve(const GraceView& view, ReserveVariant variant) {
  const std::int64_t m = view.kv_pages;
  const std::int64_t c = view.batch;
  HEDDLE_CHECK(m >= 0 && c >= 0 && view.requests >= 0 && view.kv_pages_used >= 0);
  if (m == 0 || c == 0) {
    return m;
  }
  const std::int64_t by_requests = div_up(m * view.requests, c);
  const std::int64_t wanted = variant == ReserveVariant::kPaper
                                  ? std::max(by_requests, view.kv_pages_used + div_up(m, c))
                                  : view.kv_pages_used + by_requests;
  return std::max(std::min(m, wanted), view.kv_pages_used);
}

std::int64_t pages_to_release(const GraceView& view, ReserveVariant variant) {
  return std::max<std::int64_t>(0, view.kv_pages_held - kv_reserve(view, variant));
}

Revocation choose_revocation(const ReplicaMap& map,
                             ReplicaId instance,
                             std::int64_t need_pages,
                             std::span<const AdmissionView> sequences) {
  HEDDLE_CHECK(need_pages >= 0);
  const ReplicaMap::Entry& owner = map.entry(instance);
  Revocation result;
  for (const ReplicaMap::Index device : owner.devices) {
    result.unused_pages =
        std::max(result.unused_pages, std::min(need_pages, map.devices()[device].free_pages));
  }
  std::vector<const ReplicaMap::Entry*> candidates;
  for (const ReplicaId id : map.touching(owner.devices)) {
    const ReplicaMap::Entry& entry = map.entry(id);
    if (id != instance && entry.evictable()) {
      candidates.push_back(&entry);
    }
  }
  std::sort(candidates.begin(), candidates.end(), [](const auto* a, const auto* b) {
    return std::tie(a->replica.worth, b->replica.pages, a->replica.id) <
           std::tie(b->replica.worth, a->replica.pages, b->replica.id);
  });
  Deficits deficits(owner.devices, map, need_pages);
  std::vector<const ReplicaMap::Entry*> chosen;
  for (const ReplicaMap::Entry* entry : candidates) {
    if (deficits.any_on(*entry)) {
      deficits.revoke(*entry, 1);
      chosen.push_back(entry);
    }
  }
  result.enough = !deficits.any();
  for (std::size_t i = chosen.size(); result.enough && i-- > 0;) {
    deficits.revoke(*chosen[i], -1);
    if (deficits.any()) {
      deficits.revoke(*chosen[i], 1);
    } else {
      chosen.erase(chosen.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  for (const ReplicaMap::Entry* entry : chosen) {
    result.revoke.push_back(entry->replica.id);
  }
  result.unmapped_after = kRemapPage * (result.unused_pages + deficits.most_revoked());
  if (!result.enough) {
    result.preempt = choose_preemption(sequences);
  }
  return result;
}

}  // namespace heddle::policy
