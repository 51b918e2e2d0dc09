#include "core/manager/tickets.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/manager/groups.h"
#include "core/manager/index.h"
#include "core/manager/models.h"

namespace heddle::core::manager {
namespace {

/// Whether the model has left as far as its unloads ask: external engines that are merely idle may
/// stay suspended.
bool gone(const State& state, ModelId id, const ModelState& model) {
  const bool idle_is_enough =
      std::all_of(model.unloads_asked.begin(), model.unloads_asked.end(), [](const auto& unload) {
        return unload.second == EvictionReason::kIdle;
      });
  const bool there = std::ranges::any_of(model.spots, [&](const Spot& spot) {
    return !spot.instance->is<Suspended>() || !idle_is_enough;
  });
  const bool cut = std::ranges::any_of(model.cuts, [&](ModelId c) { return somewhere(state, c); });
  return !there && !cut && !(model.sharded() && somewhere(state, id));
}

bool serves(const State& state, const ModelState& model) {
  return std::ranges::any_of(forms(model), [&](ModelId form) {
    return std::ranges::any_of(state.models.at(form).spots,
                               [](const Spot& spot) { return spot.instance->is<Serving>(); });
  });
}

}  // namespace

void Tickets::ask(const AdminLoad& load) {
  ModelState& model = state_.models.at(load.model);
  model.loads_asked.emplace(load.ticket, state_.now);
  model.sent_away = false;
  model.idle_in = -1;
  reindex(state_, load.model);
}

void Tickets::ask(const AdminUnload& unload) {
  ModelState& model = state_.models.at(unload.model);
  model.unloads_asked.emplace(unload.ticket, unload.why);
  if (unload.why == EvictionReason::kIdle) {
    model.idle_in = state_.options.planner.calendar.window_at(state_.now);
  } else {
    model.sent_away = true;
  }
  reindex(state_, unload.model);
}

void Tickets::welcome(ModelId model) {
  state_.models.at(model).sent_away = false;
  state_.models.at(model).idle_in = -1;
}

void Tickets::answer() {
  each(state_.index.ticketed, [&](ModelId id) {
    ModelState& model = state_.models.at(id);
    if (!model.loads_asked.empty() && serves(state_, model)) {
      for (const auto& [ticket, since] : std::exchange(model.loads_asked, {})) {
        out_.act(AdminDone{.ticket = ticket});
      }
    }
    if (!model.unloads_asked.empty() && gone(state_, id, model)) {
      for (const auto& [ticket, why] : std::exchange(model.unloads_asked, {})) {
        out_.act(AdminDone{.ticket = ticket});
      }
    }
    reindex(state_, id);
  });
}

void Tickets::fail_loads(ModelId model, const Error& error) {
  for (const auto& [ticket, since] : std::exchange(state_.models.at(model).loads_asked, {})) {
    out_.act(AdminDone{.ticket = ticket, .error = error});
  }
  reindex(state_, model);
}

}  // namespace heddle::core::manager
