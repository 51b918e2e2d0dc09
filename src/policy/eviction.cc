#include "policy/eviction.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "policy/preemption.h"

namespace heddle::policy {
namespace {

/// What models of our own cost at least that are taken out and brought back, beside engines.
constexpr Duration kNativeSwap = std::chrono::milliseconds(10);

/// The cheapest of `candidates` that together bring `available` up to `need`. All are on one
/// device.
std::optional<std::vector<ResidentView>> cheapest(const std::vector<ResidentView>& candidates,
                                                  std::int64_t missing,
                                                  Instant now) {
  const DeviceId here{};
  std::vector<SwapCandidate> swaps;
  for (const ResidentView& resident : candidates) {
    swaps.push_back({.model = resident.model,
                     .holds = {{.device = here, .pages = resident.pages}},
                     .queue = resident.queue,
                     .oldest_wait = resident.oldest_wait,
                     .last_used = resident.last_used,
                     .swap_in = resident.swap > Duration{} ? resident.swap : kNativeSwap,
                     .worth = resident.worth > 0 ? std::optional(resident.worth) : std::nullopt});
  }
  const std::array<DevicePages, 1> wanted{{{.device = here, .pages = missing}}};
  const Preemption choice =
      choose_swap_victims(swaps, wanted, now, Duration{}, {.residence_swaps = 0});
  if (choice.outcome != PreemptionOutcome::kPreempt) {
    return std::nullopt;
  }
  std::vector<ResidentView> chosen;
  for (const ModelId victim : choice.victims) {
    chosen.push_back(*std::find_if(candidates.begin(), candidates.end(), [&](const auto& resident) {
      return resident.model == victim;
    }));
  }
  return chosen;
}

double density(const ResidentView& resident) {
  return resident.worth / static_cast<double>(std::max<std::int64_t>(resident.pages, 1));
}

}  // namespace

/// Greedy in order of value, then without those that turned out superfluous: one large model may
/// have made several small ones unnecessary.
std::optional<std::vector<ResidentView>> least_valuable(std::vector<ResidentView> candidates,
                                                        std::int64_t free_pages,
                                                        std::int64_t need_pages,
                                                        Instant now) {
  std::int64_t available = free_pages;
  const std::int64_t need = need_pages;
  std::sort(candidates.begin(), candidates.end(), [](const ResidentView& a, const ResidentView& b) {
    return std::tuple(a.queue, density(a), a.last_used, a.model) <
           std::tuple(b.queue, density(b), b.last_used, b.model);
  });
  std::vector<ResidentView> chosen;
  for (const ResidentView& candidate : candidates) {
    if (candidate.displaced) {
      available += candidate.pages;
      chosen.push_back(candidate);
    }
  }
  const auto displaced = std::ssize(chosen);
  std::erase_if(candidates, [](const ResidentView& candidate) { return candidate.displaced; });
  const bool engines = std::any_of(candidates.begin(), candidates.end(), [](const auto& candidate) {
    return candidate.swap > Duration{};
  });
  if (engines && available < need) {
    auto rest = cheapest(candidates, need - available, now);
    if (!rest) {
      return std::nullopt;
    }
    chosen.insert(chosen.end(), rest->begin(), rest->end());
    return chosen;
  }
  for (const ResidentView& candidate : candidates) {
    if (available >= need) {
      break;
    }
    available += candidate.pages;
    chosen.push_back(candidate);
  }
  if (available < need) {
    return std::nullopt;
  }
  for (std::size_t i = chosen.size(); i-- > static_cast<std::size_t>(displaced);) {
    if (available - chosen[i].pages >= need) {
      available -= chosen[i].pages;
      chosen.erase(chosen.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  return chosen;
}

std::optional<std::vector<ModelId>> choose_victims(std::span<const ResidentView> residents,
                                                   std::int64_t free_pages,
                                                   std::int64_t need_pages) {
  std::vector<ResidentView> candidates;
  std::copy_if(residents.begin(),
               residents.end(),
               std::back_inserter(candidates),
               [](const ResidentView& r) { return !r.pinned && !r.in_transition; });
  const auto victims = least_valuable(std::move(candidates), free_pages, need_pages, Instant{});
  if (!victims) {
    return std::nullopt;
  }
  std::vector<ModelId> ids;
  for (const ResidentView& victim : *victims) {
    ids.push_back(victim.model);
  }
  return ids;
}

}  // namespace heddle::policy
