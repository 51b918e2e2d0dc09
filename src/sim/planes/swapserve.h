#pragma once

#include <map>
#include <optional>
#include <vector>

#include "policy/preemption.h"
#include "sim/planes/reservations.h"
#include "sim/planes/support.h"

namespace heddle::sim {

/// SwapServeLLM: every model has an engine of its own on fixed GPUs, which runs or lies suspended
/// in host memory as a whole. Whoever is asked for reserves its GPUs, in order of arrival with
/// backfill; whom it takes them from is policy::choose_swap_victims' choice. Requests in flight may
/// end for a while; what is left of them is computed again after the engine's return. Flags:
/// `paper` (0; 1: shortest queue, then least recently used, without a minimum stay), `kv_gb` (8: KV
/// of an engine), `residence` (3: swap-in times that an engine stays at least).
class SwapServePlane final : public ControlPlane {
 public:
  explicit SwapServePlane(Flags& flags);
  [[nodiscard]] LinkRule link_rule() const override { return LinkRule::kClasses; }
  void decide(const Notice& notice, const World& world, Actions& actions) override;

 private:
  enum class State : std::uint8_t {
    kSuspended,
    kAsked,
    kSwappingIn,
    kRunning,
    kDraining,
    kSwappingOut
  };
  struct Swappable {
    State state = State::kSuspended;
    EnginePlace at{};
    ReservationId reservation{};
    ReplicaId replica{};
    Instant running_since{};
    Instant last_used{};
    std::uint64_t turn = 0;  ///< Of its residence; timers of earlier ones are void.
  };

  void begin(const World& world, Actions& actions);
  void ask(const World& world, Actions& actions, ModelId model);
  void step(const World& world, Actions& actions);
  void swap_in(const World& world, Actions& actions, ModelId model);
  void make_room(const World& world, Actions& actions);
  void gone(const World& world, Actions& actions, ModelId model);
  [[nodiscard]] Reservation reservation_of(ModelId model) const;
  [[nodiscard]] std::vector<policy::SwapCandidate> candidates(const World& world) const;
  [[nodiscard]] bool up(const World& world, ModelId model) const;

  policy::PreemptionOptions options_{};
  double kv_bytes_;
  RequestQueues queues_{};
  std::vector<Swappable> engines_{};
  std::optional<Reservations> reservations_{};
  std::map<ReservationId, ModelId> asked_by_{};
  std::uint64_t asked_ = 0;
  Instant look_again_{};  ///< When a timer says that somebody's stay may end; past: none does.
};

}  // namespace heddle::sim
