#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "policy/cold_start.h"
#include "sim/planes/classes.h"
#include "sim/planes/launch.h"

namespace heddle::sim {

/// A way to serve a request that cannot start at once.
enum class Mechanism : std::uint8_t {
  kQueue,     ///< At a running instance.
  kHit,       ///< On a loaded replica or on idle resident weights (WarmServe).
  kAttach,    ///< To a replica that is loading.
  kActivate,  ///< From host memory into the shared pool (Prism).
  kInstance,  ///< A new instance on devices of its own (WarmServe, on a miss).
  kPipeline,  ///< A cold start over several hosts, or one (HydraServe).
  kSwapIn,    ///< Of a suspended external engine (SwapServeLLM).
  kReserve,   ///< Wait until a reservation comes true (SwapServeLLM).
};
/// As in metric labels: "swap_in".
[[nodiscard]] std::string_view name(Mechanism mechanism);

/// What a mechanism would do for one request, and what that would cost.
struct Plan {
  Mechanism mechanism = Mechanism::kQueue;
  Duration ttft{};  ///< Predicted from now.
  Duration tpot{};
  double byte_seconds = 0.0;        ///< Memory taken that is not now, by how long it is kept.
  double lost_value = 0.0;          ///< worth() of what must be revoked [s].
  bool links_admit = true;          ///< Nobody else's transfer misses its deadline by it.
  std::vector<DeviceId> devices{};  ///< That it runs on.
  friend bool operator==(const Plan&, const Plan&) = default;
};

/// An instance that takes requests.
struct RunningInstance {
  std::vector<DeviceId> devices{};
  Duration ttft{};  ///< With the request in its queue: plan_queue's finish, or what was measured.
  Duration tpot{};
};

/// What every start of a model has in common.
struct StartTerms {
  Duration prefill{};  ///< Of the request, once there are weights.
  Duration tpot{};
  std::int64_t bytes = 0;     ///< Weights and least KV, on all devices.
  std::int64_t kv_bytes = 0;  ///< Of these, KV: what a loaded replica still lacks.
  Duration stay{};            ///< For how long they are expected to be kept.
  bool links_admit = true;
};

/// Until a launch has its weights, by its outcome.
struct LaunchTimes {
  Duration hit{};
  Duration attach{};
  Duration load{};
};

// What each mechanism proposes. Plans 1 to 3, 5, 4, 6 to 8 of the decision.

[[nodiscard]] Plan queue_plan(const RunningInstance& instance);
/// kHit, kAttach or kInstance, by the outcome; nullopt for kWait.
[[nodiscard]] std::optional<Plan> launch_plan(const Launch& launch,
                                              const LaunchTimes& times,
                                              const StartTerms& terms);
/// `devices` as choose_kv_home has them; `ready` until the weights are there.
[[nodiscard]] Plan activation_plan(std::vector<DeviceId> devices,
                                   Duration ready,
                                   double lost_value,
                                   const StartTerms& terms);
/// A best-effort start breaks its objective, and says so by its TTFT.
[[nodiscard]] Plan pipeline_plan(const policy::StartPlan& start, const StartTerms& terms);
[[nodiscard]] Plan swap_in_plan(std::vector<DeviceId> devices,
                                Duration swap_in,
                                double lost_value,
                                const StartTerms& terms);
/// After `granted` it starts like a swap-in, or a load, of `ready`; it revokes nothing.
[[nodiscard]] Plan reservation_plan(std::vector<DeviceId> devices,
                                    Duration granted,
                                    Duration ready,
                                    const StartTerms& terms);

/// Whether a model of this class may be served so: external engines queue, swap in or wait; models
/// that run dedicated queue, hit, attach, or get an instance or, of one part, a pipeline;
/// the others queue, hit, attach, are activated into the pool or start as a pipeline or, of several
/// parts, as an instance. Any may wait.
[[nodiscard]] bool permitted(Mechanism mechanism, ModelClass model_class, std::int64_t parts);

struct PlanTerms {
  Duration ttft_left{};  ///< Objective less what the request has waited.
  Duration tpot{};
  ModelClass model_class = ModelClass::kWarm;
  std::int64_t parts = 1;
  double value_price = 0.0;  ///< lambda: byte-seconds for a second of lost value.
  std::int64_t waiting = 1;  ///< Requests of the model that wait for what is decided; >= 1.
};

enum class PlanReason : std::uint8_t {
  kCheapest,   ///< Of those that keep both objectives and take no more than they save.
  kLeastHarm,  ///< There is none; with this one least is lost.
  kLate,       ///< No plan at all that harms nobody: the request goes to the late list.
};
[[nodiscard]] std::string_view reason_name(PlanReason reason);

struct PlanChoice {
  PlanReason reason = PlanReason::kLate;
  std::optional<std::size_t> plan{};  ///< Its index.
  double cost = 0.0;                  ///< byte-seconds + lambda * lost value.
  friend bool operator==(const PlanChoice&, const PlanChoice&) = default;
};

/// The decision on a request that cannot start at once. The harm of a plan is what it takes from
/// others and the time that its own requests wait, both in seconds:
///   harm = lost value + waiting * TTFT.
/// A plan that is too slow by a factor counts as a wait longer by that factor, and no shorter than
/// the objective. Of the permitted plans that the links admit, the cheapest that keeps both
/// objectives and does no more harm than being late would; else the one of least harm; else none.
/// Ties: the earlier first token, then the mechanism's order, then devices. Pure; the chosen plan
/// does not depend on the order of `plans`. O(plans).
[[nodiscard]] PlanChoice choose_plan(std::span<const Plan> plans, const PlanTerms& terms);

}  // namespace heddle::sim
