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

std::string_view name(ActionKind kind) {
  switch (kind) {
    case ActionKind::kStart:
      return "start";
    case ActionKind::kConsolidate:
      return "consolidate";
    case ActionKind::kScaleUp:
      return "scale_up";
    case ActionKind::kScaleDown:
      return "scale_down";
    case ActionKind::kMigrate:
      return "migrate";
    case ActionKind::kPrewarm:
      return "prewarm";
    case ActionKind::kEvict:
      return "evict";
  }
  return "?";
}

std::string_view reason_name(HeldReason reason) {
  switch (reason) {
    case HeldReason::kModelTaken:
      return "model_taken";
    case HeldReason::kDeviceTaken:
      return "device_taken";
    case HeldReason::kTooSoon:
      return "too_soon";
  }
  return "?";
}

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

void Agenda::appoint(ModelId model, Instant when) {
  const auto [at, is_new] = when_.try_emplace(model, when);
  if (!is_new) {
    by_time_.erase({at->second, model});
    at->second = when;
  }
  by_time_.emplace(when, model);
}

void Agenda::forget(ModelId model) {
  touched_.erase(model);
  if (const auto at = when_.find(model); at != when_.end()) {
    by_time_.erase({at->second, model});
    when_.erase(at);
  }
}

std::vector<ModelId> Agenda::take(Instant now) {
  while (!by_time_.empty() && by_time_.begin()->first <= now) {
    touched_.insert(by_time_.begin()->second);
    when_.erase(by_time_.begin()->second);
    by_time_.erase(by_time_.begin());
  }
  std::vector<ModelId> taken(touched_.begin(), touched_.end());
  for (const ModelId model : taken) {
    forget(model);
  }
  return taken;
}

std::optional<Instant> Agenda::next(Instant now) const {
  if (!touched_.empty()) {
    return now;
  }
  return by_time_.empty() ? std::nullopt : std::optional(by_time_.begin()->first);
}

}  // namespace heddle::policy
