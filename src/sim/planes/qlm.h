#pragma once

#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "base/rng.h"
#include "sim/planes/support.h"

namespace heddle::sim {

/// QLM: requests of one model and objective form groups, groups wait in a queue per GPU, and a GPU
/// serves one model at a time: when another's group comes first the engine ends what it has
/// and is replaced. Queues are put in order of deadline when one would be
/// missed. Flags: `swap` [s] (40: to replace an engine; the public code waits 120), `group` (128:
/// requests of a group, at most), `seed` of where new groups go. A model that no GPU of a queue is
/// large enough for refuses its requests.
class QlmPlane final : public ControlPlane {
 public:
  explicit QlmPlane(Flags& flags);
  void decide(const Notice& notice, const World& world, Actions& actions) override;

 private:
  struct Group {
    ModelId model{};
    Instant deadline{};  ///< Of its oldest request.
    std::deque<LiveId> requests{};
  };
  struct Queue {
    std::deque<Group> groups{};
    std::optional<ReplicaId> replica{};  ///< Of whatever model is there, or comes.
  };

  void add(const World& world, const Notice& notice);
  void order(const World& world, Queue& queue);
  void pull(const World& world, Actions& actions, GpuId gpu);
  [[nodiscard]] std::vector<GpuId> large_enough(const World& world, ModelId model) const;
  [[nodiscard]] bool late_as_it_is(const World& world, const Queue& queue) const;
  [[nodiscard]] static Duration service_time(const World& world, ModelId model);

  Duration swap_;
  std::size_t group_size_;
  Rng rng_;
  std::map<GpuId, Queue> queues_{};   ///< By the first GPU of a group that the largest model fits.
  std::map<ModelId, GpuId> homes_{};  ///< The queue of each model that has come.
  std::int64_t width_ = 1;            ///< GPUs of such a group.
};

}  // namespace heddle::sim
