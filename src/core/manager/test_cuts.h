#pragma once

#include <map>
#include <vector>

#include "core/manager/passes/passes.h"
#include "core/manager/test_state.h"

namespace heddle::core::manager::test {

inline constexpr ModelId kHalves{40};
inline constexpr ModelId kQuarters{42};

/// Four hosts of one device and 10 MB/s each, none of which has the files of model a, 80 MB. It may
/// be cut into two stages or four.
struct FourHosts : TestState {
  FourHosts() {
    const ManagerDevice first = configuration.devices.front();
    for (std::uint64_t host = 1; host < 4; ++host) {
      ManagerDevice device = first;
      device.id = device_id(HostId(host), 0);
      device.name = "h" + std::to_string(host);
      configuration.devices.push_back(device);
    }
    for (ManagerModel& model : configuration.models) {
      hold_everywhere(model, kImagePages);
    }
    for (std::uint64_t host = 0; host < 4; ++host) {
      configuration.models.front().fetched[HostId(host)] = kImagePages * kPageBytes;
      configuration.networks[HostId(host)] = 10'000'000;
    }
    configure_cut(kHalves, 2);
    configure_cut(kQuarters, 4);
    reconfigure();
    for (std::uint64_t host = 1; host < 4; ++host) {
      devices.up({.device = at_host(host), .epoch = WorkerEpoch(host + 1)});
    }
  }

  static DeviceId at_host(std::uint64_t host) { return device_id(HostId(host), 0); }
  static ModelId stage(ModelId cut, std::uint64_t index) {
    return ModelId(cut.value() + 60 + index);
  }

  void reconfigure() {
    configure();
    fetches.configure(configuration);
    fetches.advance();
  }
  /// One more device of the last host, where nothing is.
  DeviceId add_device() {
    const DeviceId fifth = device_id(HostId(3), 1);
    configuration.devices.push_back(configuration.devices.front());
    configuration.devices.back().id = fifth;
    for (ManagerModel& model : configuration.models) {
      model.footprints[fifth] = model.footprints.at(kDevice);
    }
    reconfigure();
    devices.up({.device = fifth, .epoch = WorkerEpoch(9)});
    return fifth;
  }
  /// First tokens of model a are wanted within this.
  void want(Duration ttft) {
    configuration.models.front().slo.ttft = ttft;
    reconfigure();
  }

  /// As after every event.
  void passes() {
    unload(parts);
    catalog.forget_removed();
    tend_groups(parts);
    consolidate(parts);
    dispatch(parts);
    tickets.answer();
    claims.advance();
    place(parts);
  }
  /// Everything that is on its way gets there, and groups are formed.
  void arrive_all() {
    for (auto& [device_id, device] : state.devices) {
      for (auto& [id, instance] : device.instances) {
        if (!instance.is<Loading>()) {
          continue;
        }
        instance.complete = true;
        if (!state.models.at(id).grouped()) {
          residency.serve(device_id, id);
        }
      }
    }
    tend_groups(parts);
    for (const FormGroup& form : all<FormGroup>()) {
      residency.formed(form.members.front().model, form.members.front().device);
    }
    commands.clear();
  }
  /// What was told to leave has left.
  void evict_all() {
    for (auto& [device_id, device] : state.devices) {
      std::vector<ModelId> gone;
      for (const auto& [id, instance] : device.instances) {
        if (instance.is<Evicting>()) {
          gone.push_back(id);
        }
      }
      for (const ModelId id : gone) {
        residency.lose(device_id, id);
      }
    }
  }
  /// A request waits, and the model serves in four stages.
  RequestId start_in_stages() {
    want(3s);
    const RequestId id = wait(kA);
    passes();
    arrive_all();
    dispatch(parts);
    pass(5s);
    loading.expire();
    passes();
    return id;
  }
  /// Where the model, or a stage of it, is.
  [[nodiscard]] Spots places() const {
    Spots found;
    for (const auto& [device_id, device] : state.devices) {
      for (const auto& [id, instance] : device.instances) {
        found.emplace_back(device_id, id);
      }
    }
    return found;
  }

 private:
  void hold_everywhere(ManagerModel& model, std::int64_t pages) {
    policy::Footprint footprint = configuration.models.at(1).footprints.begin()->second;
    footprint.image_pages = pages;
    for (const ManagerDevice& device : configuration.devices) {
      model.footprints[device.id] = footprint;
    }
  }
  void configure_cut(ModelId id, std::int64_t stages) {
    ManagerModel cut = configuration.models.front();
    cut.id = id;
    cut.cut_of = kA;
    hold_everywhere(cut, kImagePages / stages);
    cut.image_bytes = static_cast<std::uint64_t>(kImagePages / stages) * kPageBytes;
    for (auto& [host, bytes] : cut.fetched) {
      bytes = cut.image_bytes;
    }
    ManagerModel follower = cut;
    follower.part_of = id;
    follower.cut_of.reset();
    for (std::int64_t i = 1; i < stages; ++i) {
      follower.id = stage(id, static_cast<std::uint64_t>(i));
      cut.stages.push_back(follower.id);
      configuration.models.push_back(follower);
    }
    configuration.models.push_back(cut);
  }
};

}  // namespace heddle::core::manager::test
