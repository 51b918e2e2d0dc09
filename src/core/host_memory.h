#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "core/agent_core.h"
#include "core/manager/events.h"
#include "core/messages.h"

namespace heddle::core {

/// What a host has said that still holds, for managers that were not there to hear it.
class HostMemory {
 public:
  /// What the host says to its manager; anything else is nothing to remember.
  void hear(const ManagerEvent& event);

  /// All that holds, in the order in which a manager can hear it: workers and what they have,
  /// images, groups, lent pages, engines, and whether the host is to go.
  /// @param there  The models of its workers, as the agent knows them: some were not reported yet.
  [[nodiscard]] std::vector<ManagerEvent> all(const ModelsByDevice& there) const;
  /// The workers that are up.
  [[nodiscard]] std::map<DeviceId, WorkerEpoch> lives() const;
  /// Whether that worker is up.
  [[nodiscard]] bool lives(DeviceId device, WorkerEpoch epoch) const;

 private:
  using Place = std::pair<DeviceId, ModelId>;

  struct Worker {
    WorkerEpoch epoch{};
    DeviceReport report{};  ///< The last, kept right by what the worker said since.
    std::map<ModelId, LoadFailed> failed{};  ///< Loads whose eviction nobody has ordered yet.
  };

  void note(const WorkerUp& up);
  void note(const WorkerDown& down);
  void note(const WorkerSaid& said);
  void note(const ImageFailed& failed);
  void note(const ImageState& image);
  void note(const GroupFormed& formed);
  void note(const GuestState& guests);
  void note(const EngineSaid& said);
  void note(const EngineKv& said) { engine_kv_[said.model] = said; }
  void note(const HostLeaving& leaving);
  template <class T>
  void note(const T& /*event*/) {}

  void forget(DeviceId device, Worker& worker, ModelId model);

  std::map<DeviceId, Worker> workers_{};
  std::map<ModelId, ImageState> images_{};   ///< Of which the host has something.
  std::map<Place, GroupFormed> groups_{};    ///< By the leader's device.
  std::map<Place, GuestState> guests_{};     ///< Of pages that are lent.
  std::map<ModelId, EngineSaid> engines_{};  ///< Of which something is left.
  std::map<ModelId, EngineKv> engine_kv_{};  ///< Of elastic ones that run.
  std::optional<HostLeaving> leaving_{};     ///< It is.
};

}  // namespace heddle::core
