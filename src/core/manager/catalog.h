#pragma once

#include "core/manager/state.h"

namespace heddle::core::manager {

/// The models and devices that are configured.
class Catalog {
 public:
  explicit Catalog(State& state) : state_(state) {}

  /// Takes in the configuration, at the beginning and at each reload.
  void configure(const Configure& configure);
  /// The group runs where no block of the configuration may be: its devices are one.
  void know(const GroupFormed& formed);
  /// A cut, of which nothing is anywhere, is to be led from there, with its further stages there.
  void choose_block(ModelId cut, DeviceId leader, std::vector<ShardPlace> followers);
  /// How much of an image the host has.
  void image(const ImageState& image);
  /// Forgets models that were removed and of which nothing is left.
  void forget_removed();

 private:
  void forget_devices(ModelState& model) const;
  void count_cuts();
  void keep_blocks(ModelState& model, const ManagerModel& before, const Footprints& needed) const;
  void reckon_tokens();
  void reckon_workspaces();
  [[nodiscard]] bool leads(DeviceId device) const;
  [[nodiscard]] bool in_use(const ModelState& model,
                            DeviceId leader,
                            const std::vector<ShardPlace>& others) const;

  State& state_;
};

}  // namespace heddle::core::manager
