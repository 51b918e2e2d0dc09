#pragma once

#include <vector>

#include "core/manager/loads.h"
#include "core/manager/outbox.h"
#include "core/manager/residency.h"
#include "core/manager/shortages.h"
#include "core/manager/state.h"

namespace heddle::core::manager {

/// Loads that wait until their victims are idle, and pages that engines free when they are; at most
/// one plan a device.
class DrainPlans {
 public:
  DrainPlans(State& state, Outbox& out, Residency& residency, Loads& loads, Shortages& shortages)
      : state_(state), out_(out), residency_(residency), loads_(loads), shortages_(shortages) {}

  /// The victims are sent nothing more; when they are idle, the model is loaded in their place. For
  /// an engine on several devices, of which this one leads, on all of these: a victim goes from
  /// wherever it is among them. `instead` as DrainPlan has it.
  void begin(DeviceId device,
             ModelId model,
             const std::vector<ModelId>& victims,
             std::string instead = {});
  /// The victims stay, on all devices that the plan is for.
  void cancel(DeviceId device);
  /// Carries out what waited for models to become idle, and gives up what nobody wants any more.
  void advance();
  /// The oldest sequence of the device lacks pages that only other models have. Nothing runs there
  /// until it gets them, so draining models of ours would be in vain: they go at once, and their
  /// requests wait again. External engines that answer requests are waited for, if it takes them.
  /// If no model can go, the worker does without. Of a group each device has to have the pages; if
  /// all have, its worker is told.
  void want_pages(DeviceId device, const DeviceReport& report);
  /// The worker has the pages by now that a plan was to find.
  void have_pages(DeviceId device);
  /// Suspends the external engines among the victims that can leave. True when none is left that
  /// runs.
  bool suspend_victims(DeviceId device, const DrainPlan& plan);

 private:
  /// What a plan has come to on one of its devices.
  struct Cleared {
    bool idle = false;               ///< Nobody is left there that runs.
    bool enough = false;             ///< Then: with the victims gone there is room.
    std::vector<ModelId> victims{};  ///< Then: idle models of ours that go.
  };
  void advance(const DeviceState& device, const DrainPlan& plan);
  Cleared clear(const DeviceState& device, const DrainPlan& plan);
  void put_off(DeviceId device);
  void drain_victims(DeviceId device);
  void drain_later(const DrainPlan& plan);
  void drop(const DrainPlan& plan, DeviceId device);
  void end_turns(DeviceId id, const DrainPlan& plan);
  void want_share(DeviceId leader, const DeviceReport& report);
  bool free_shares(const DeviceState& device, ModelId wanting, std::int64_t lacks);
  [[nodiscard]] std::vector<policy::ResidentView> others_at(const DeviceState& device,
                                                            ModelId wanting) const;
  bool dissolve_victims(const DeviceState& device, const DrainPlan& plan);
  void free_lacking(DeviceId device);
  /// What is freed there is for this model.
  void owe(DeviceId device, ModelId model, std::int64_t pages);
  [[nodiscard]] bool fits_beside(const DeviceState& device, const DrainPlan& plan) const;
  [[nodiscard]] bool may_leave(const DrainPlan& plan, ModelId victim, const Instance& instance);

  State& state_;
  Outbox& out_;
  Residency& residency_;
  Loads& loads_;
  Shortages& shortages_;
};

}  // namespace heddle::core::manager
