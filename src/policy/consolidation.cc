#include "policy/consolidation.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"

namespace heddle::policy {
namespace {

/// The part of `bytes` that is not on a member: (s-1)/s, rounded up.
std::int64_t elsewhere(std::int64_t bytes, std::int64_t stages) {
  return bytes - bytes / stages;
}

/// Members that can hold the whole model, in order of preference.
std::vector<GroupMember> candidates(const GroupView& view, std::int64_t lacking) {
  std::vector<GroupMember> able;
  std::copy_if(view.members.begin(),
               view.members.end(),
               std::back_inserter(able),
               [lacking](const GroupMember& m) { return m.full || m.free_bytes >= lacking; });
  std::vector<GroupMember> full;
  std::vector<GroupMember> rest;
  for (const GroupMember& member : able) {
    (member.full ? full : rest).push_back(member);
  }
  std::sort(rest.begin(), rest.end(), [](const GroupMember& a, const GroupMember& b) {
    return std::tie(b.free_bytes, a.device) < std::tie(a.free_bytes, b.device);
  });
  full.insert(full.end(), rest.begin(), rest.end());
  return full;
}

}  // namespace

std::string_view name(ConsolidationKind kind) {
  switch (kind) {
    case ConsolidationKind::kStay:
      return "stay";
    case ConsolidationKind::kScaleDown:
      return "scale_down";
    case ConsolidationKind::kScaleUp:
      return "scale_up";
  }
  return "?";
}

Consolidation choose_consolidation(const GroupView& view) {
  const auto stages = std::ssize(view.members);
  HEDDLE_CHECK(stages >= 1);
  const std::int64_t lacking = elsewhere(view.weights, stages);
  const std::vector<GroupMember> able = candidates(view, lacking);
  Consolidation out;
  const auto count = std::min(std::max(std::int64_t{1}, view.wanted), std::ssize(able));
  for (std::int64_t i = 0; i < count; ++i) {
    out.survivors.push_back(
        {.device = able[static_cast<std::size_t>(i)].device, .fetch_bytes = lacking});
  }
  if (out.survivors.empty()) {
    return out;
  }
  out.kind = count == 1 ? ConsolidationKind::kScaleDown : ConsolidationKind::kScaleUp;
  for (const GroupMember& member : view.members) {
    const bool stays = std::any_of(out.survivors.begin(),
                                   out.survivors.end(),
                                   [&](const Survivor& s) { return s.device == member.device; });
    if (!stays) {
      out.leaving.push_back(member.device);
    }
  }
  std::vector<GroupRequest> requests(view.requests.begin(), view.requests.end());
  std::sort(requests.begin(), requests.end(), [](const GroupRequest& a, const GroupRequest& b) {
    return std::tie(a.waiting_since, a.id) < std::tie(b.waiting_since, b.id);
  });
  for (const GroupRequest& request : requests) {
    Survivor& least = *std::min_element(
        out.survivors.begin(), out.survivors.end(), [](const Survivor& a, const Survivor& b) {
          return a.gather_bytes < b.gather_bytes;
        });
    least.requests.push_back(request.id);
    least.gather_bytes += elsewhere(request.tokens * view.kv_per_token, stages);
  }
  return out;
}

}  // namespace heddle::policy
