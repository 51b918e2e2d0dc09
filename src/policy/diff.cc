#include "policy/diff.h"

#include <algorithm>
#include <tuple>

namespace heddle::policy {
namespace {

template <class Id>
Instant end_of(const std::map<Id, Instant>& ends, Id id) {
  const auto at = ends.find(id);
  return at == ends.end() ? Instant::min() : at->second;
}

template <class Id>
void extend(std::map<Id, Instant>& ends,
            std::set<std::pair<Instant, Id>>& by_end,
            Id id,
            Instant until) {
  const auto [at, is_new] = ends.try_emplace(id, until);
  if (!is_new) {
    if (at->second >= until) {
      return;
    }
    by_end.erase({at->second, id});
    at->second = until;
  }
  by_end.emplace(until, id);
}

template <class Id>
void expire_ends(std::map<Id, Instant>& ends,
                 std::set<std::pair<Instant, Id>>& by_end,
                 Instant now) {
  while (!by_end.empty() && by_end.begin()->first <= now) {
    ends.erase(by_end.begin()->second);
    by_end.erase(by_end.begin());
  }
}

/// What the actions accepted so far have in their hands.
struct Taken {
  std::set<ModelId> models{};
  std::set<DeviceId> devices{};

  [[nodiscard]] std::optional<HeldReason> conflict(const Action& action) const {
    const auto has_model = [this](ModelId id) { return models.contains(id); };
    const auto has_device = [this](DeviceId id) { return devices.contains(id); };
    if (has_model(action.model) ||
        std::any_of(action.victims.begin(), action.victims.end(), has_model)) {
      return HeldReason::kModelTaken;
    }
    if (std::any_of(action.devices.begin(), action.devices.end(), has_device)) {
      return HeldReason::kDeviceTaken;
    }
    return std::nullopt;
  }

  void take(const Action& action) {
    models.insert(action.model);
    models.insert(action.victims.begin(), action.victims.end());
    devices.insert(action.devices.begin(), action.devices.end());
  }
};

}  // namespace

Duration hold_after(ActionKind kind, Duration period) {
  return period * (kind == ActionKind::kMigrate ? 60 : 10);
}

Instant NotBefore::free_at(const Action& action) const {
  Instant at = end_of(models_, action.model);
  for (const ModelId victim : action.victims) {
    at = std::max(at, end_of(models_, victim));
  }
  for (const DeviceId device : action.devices) {
    at = std::max(at, end_of(devices_, device));
  }
  return at;
}

void NotBefore::hold(const Action& action, Instant until) {
  extend(models_, models_by_end_, action.model, until);
  for (const ModelId victim : action.victims) {
    extend(models_, models_by_end_, victim, until);
  }
  for (const DeviceId device : action.devices) {
    extend(devices_, devices_by_end_, device, until);
  }
}

void NotBefore::expire(Instant now) {
  expire_ends(models_, models_by_end_, now);
  expire_ends(devices_, devices_by_end_, now);
}

Diff make_diff(std::span<const Action> proposals,
               NotBefore& not_before,
               Instant now,
               Duration period) {
  not_before.expire(now);
  std::vector<const Action*> order;
  for (const Action& action : proposals) {
    order.push_back(&action);
  }
  std::sort(order.begin(), order.end(), [](const Action* a, const Action* b) {
    return std::tie(a->kind, b->worth, a->model, a->devices, a->victims, a->plan) <
           std::tie(b->kind, a->worth, b->model, b->devices, b->victims, b->plan);
  });
  Diff diff;
  Taken taken;
  for (const Action* action : order) {
    if (const std::optional<HeldReason> conflict = taken.conflict(*action)) {
      diff.held.push_back({*action, *conflict});
      continue;
    }
    const Instant free_at = not_before.free_at(*action);
    if (free_at > now && action->kind != ActionKind::kStart) {
      diff.held.push_back({*action, HeldReason::kTooSoon});
      diff.retry_at = std::min(diff.retry_at.value_or(free_at), free_at);
      continue;
    }
    taken.take(*action);
    diff.actions.push_back(*action);
  }
  for (const Action& action : diff.actions) {
    not_before.hold(action, now + hold_after(action.kind, period));
  }
  return diff;
}

}  // namespace heddle::policy
