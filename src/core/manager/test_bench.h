#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/manager/manager_core.h"

/// For tests of the whole manager: a core that hears events, and the devices that it commands.
namespace heddle::core::test {

using namespace std::chrono_literals;

inline constexpr ModelId kA{1};
inline constexpr ModelId kB{2};
inline constexpr ModelId kC{3};
inline constexpr DeviceId kDevice{0};
inline constexpr std::uint64_t kPageBytes = 10'000'000;
inline constexpr std::int64_t kImagePages = 8;
/// A block of KV has 4 tokens, and a page 2 blocks.
inline const std::vector<policy::KvGroup> kKv{{.tokens_per_block = 4, .blocks_per_page = 2}};

/// A ManagerCore and its devices. All workers are up from the beginning.
class Bench {
 public:
  /// The devices do nothing by themselves: the test says what their workers and engines say.
  explicit Bench(Configure configure, Instant begins = Instant(100s))
      : now(begins), configuration(std::move(configure)) {
    start();
  }

  /// Models a, b and c, on devices that do at once what they are told; 20 pages each hold two.
  Bench(int devices, PlannerOptions planner, std::int64_t batch = 4) : acts(true) {
    planner.calendar = {.window = 10s, .windows_per_day = 8640};
    configuration.options = {.drain_after = 1s, .planner = planner};
    for (int i = 0; i < devices; ++i) {
      configuration.devices.push_back({.id = DeviceId(static_cast<std::uint64_t>(i)),
                                       .name = "d" + std::to_string(i),
                                       .pages = 20,
                                       .page_bytes = kPageBytes});
    }
    for (const ModelId id : {kA, kB, kC}) {
      ManagerModel model{.id = id,
                         .name = std::string(1, static_cast<char>('`' + id.value())),
                         .image_bytes = kImagePages * kPageBytes,
                         .context = 1000,
                         .batch = batch};
      for (const ManagerDevice& device : configuration.devices) {
        model.footprints[device.id] = {.image_pages = kImagePages, .min_kv_pages = 1, .kv = kKv};
      }
      configuration.models.push_back(model);
    }
    start();
    for (const ManagerModel& model : configuration.models) {
      tell(ImageState{.model = model.id, .bytes = model.image_bytes, .host_cached = true});
    }
  }

  /// One model more, which is sharded over each two devices; its shards have so many pages each.
  void add_sharded(ModelId id, ModelId shard_id, std::int64_t pages, bool shares = false) {
    ManagerModel whole = configuration.models.front();
    whole.id = id;
    whole.name = "cut";
    whole.shares = shares;
    whole.image_bytes = static_cast<std::uint64_t>(pages) * kPageBytes;
    whole.footprints.clear();
    ManagerModel shard = whole;
    shard.id = shard_id;
    shard.part_of = id;
    policy::Footprint footprint = configuration.models.front().footprints.begin()->second;
    footprint.image_pages = pages;
    for (std::size_t i = 0; i + 1 < configuration.devices.size(); i += 2) {
      const DeviceId leader = configuration.devices[i].id;
      const DeviceId other = configuration.devices[i + 1].id;
      whole.footprints[leader] = shard.footprints[other] = footprint;
      whole.groups[leader] = {{.model = shard_id, .device = other}};
    }
    configuration.models.push_back(whole);
    configuration.models.push_back(shard);
    tell(configuration);
    for (const ModelId each : {id, shard_id}) {
      tell(ImageState{.model = each, .bytes = whole.image_bytes, .host_cached = true});
    }
  }

  // ---- What the core hears ----

  /// Its answer, which is in `said`, too. Devices that act carry it out, a load in `load_takes`.
  std::vector<ManagerCommand> tell(const ManagerEvent& event) {
    if (const auto* arrived = std::get_if<RequestArrived>(&event)) {
      asked.insert(arrived->request);
    }
    std::vector<ManagerCommand> commands;
    core.step(now, event, commands);
    core.check_invariants();
    said.insert(said.end(), commands.begin(), commands.end());
    if (acts) {
      for (const ManagerCommand& command : commands) {
        carry_out(command);
      }
    }
    return commands;
  }

  template <class T>
  std::vector<ManagerCommand> report(DeviceId device, T what) {
    return tell(
        WorkerSaid{.device = device, .epoch = epochs.at(device), .report = std::move(what)});
  }
  /// The first device says so.
  template <class T>
  std::vector<ManagerCommand> report(T what) {
    return report(kDevice, std::move(what));
  }

  /// A request that has this number, of 4 tokens and as many of answer.
  std::vector<ManagerCommand> ask(std::uint64_t number, ModelId model) {
    return tell(RequestArrived{
        .request = RequestId(number), .model = model, .prompt_tokens = 4, .max_tokens = 4});
  }
  /// The next request.
  std::vector<ManagerCommand> ask(ModelId model) { return ask(++requests, model); }
  RequestId arrive(ModelId model) {
    ask(model);
    return RequestId(requests);
  }
  std::vector<ManagerCommand> finish(RequestId id) { return tell(RequestFinished{.request = id}); }
  std::vector<ManagerCommand> finish(std::uint64_t number) { return finish(RequestId(number)); }
  /// A request that runs for so long.
  void serve(ModelId model, Duration time) {
    const RequestId id = arrive(model);
    wait(time);
    finish(id);
  }

  /// The worker is down, and its requests wait again; those of `advanced` it brought further.
  std::vector<ManagerCommand> down(const WorkerDown& how, std::vector<RequestId> advanced = {}) {
    std::vector<ManagerCommand> all = tell(how);
    // The core knows best which of them were there.
    const std::vector<ManagerCommand> more =
        tell(PlaceLost{.device = how.device,
                       .epoch = how.epoch,
                       .requests = {asked.begin(), asked.end()},
                       .advanced = std::move(advanced)});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::vector<ManagerCommand> down(DeviceId device) {
    return down(WorkerDown{.device = device, .epoch = epochs.at(device)});
  }
  /// The worker dies so, and the next one comes up.
  std::vector<ManagerCommand> die(const WorkerDown& how, std::vector<RequestId> advanced = {}) {
    down(how, std::move(advanced));
    return come_up(how.device);
  }
  /// All workers die, and with them all that was there.
  void die() {
    resident.clear();
    complete.clear();
    loads.clear();
    for (const ManagerDevice& device : configuration.devices) {
      down(device.id);
    }
    for (const ManagerDevice& device : configuration.devices) {
      come_up(device.id);
    }
  }
  /// A new worker of the device is up.
  std::vector<ManagerCommand> come_up(DeviceId device) {
    epochs[device] = WorkerEpoch(epochs[device].value() + 1);
    return tell(WorkerUp{.device = device, .epoch = epochs[device]});
  }

  // ---- Time ----

  /// The core hears that this time is over.
  std::vector<ManagerCommand> after(Duration time) {
    now += time;
    return tell(Tick{});
  }

  /// Time passes, and what was asked to be woken for happens.
  void wait(Duration time) {
    const Instant end = now + time;
    for (;;) {
      Instant next = end;
      for (const Load& load : loads) {
        next = std::min(next, std::max(load.done, now));
      }
      if (wake_at) {
        next = std::min(next, *wake_at);
      }
      now = std::max(now, next);
      const auto done = std::find_if(
          loads.begin(), loads.end(), [this](const Load& load) { return load.done <= now; });
      if (done != loads.end()) {
        const Load load = *done;
        loads.erase(done);
        complete.insert({load.device, load.model});
        report_pages(load.device);
      } else if (wake_at && *wake_at <= now) {
        wake_at.reset();
        tell(Tick{});
      } else if (now >= end) {
        return;
      }
    }
  }

  // ---- What there is to see ----

  [[nodiscard]] bool there(ModelId model, std::uint64_t device = 0) {
    return resident[DeviceId(device)].contains(model);
  }
  [[nodiscard]] ModelStatus status(ModelId model) const {
    return core.models().at(model.value() - 1);
  }
  [[nodiscard]] std::uint64_t starts(ModelId model, StartKind kind) const {
    return status(model).demand.starts.at(static_cast<std::size_t>(kind));
  }
  [[nodiscard]] std::uint64_t loaded(ModelId model, LoadReason why) const {
    return status(model).loads.at(static_cast<std::size_t>(why));
  }
  [[nodiscard]] std::vector<Decision> decisions(DecisionKind kind) const {
    std::vector<Decision> found;
    for (const ManagerCommand& command : said) {
      const auto* decision = std::get_if<Decision>(&command);
      if (decision != nullptr && decision->kind == kind) {
        found.push_back(*decision);
      }
    }
    return found;
  }

  struct Load {
    ModelId model{};
    DeviceId device{};
    Instant done{};
  };
  bool acts = false;  ///< The devices carry out what the core wants.
  Instant now{100s};
  Duration load_takes = 1s;
  std::int64_t kv_pages = 0;  ///< Of each shard whose group is formed.
  Configure configuration{};
  ManagerCore core{};
  std::map<DeviceId, WorkerEpoch> epochs{};
  std::optional<Instant> wake_at{};
  std::vector<Load> loads{};
  std::map<DeviceId, std::set<ModelId>> resident{};
  std::set<std::pair<DeviceId, ModelId>> complete{};
  std::map<ModelId, std::vector<GroupMember>> formed{};  ///< By rank 0.
  std::map<DeviceId, std::vector<RequestId>> sent{};
  std::vector<ManagerCommand> said{};  ///< By the core, so far.
  std::uint64_t requests = 0;
  std::set<RequestId> asked{};  ///< Requests that arrived.

 private:
  void start() {
    tell(configuration);
    for (const ManagerDevice& device : configuration.devices) {
      come_up(device.id);
    }
  }

  void carry_out(const ManagerCommand& command) {
    if (const auto* wake = std::get_if<WakeAt>(&command)) {
      wake_at = wake->at;
    } else if (const auto* load = std::get_if<LoadOn>(&command)) {
      resident[load->device].insert(load->model);
      loads.push_back({load->model, load->device, now + load_takes});
      report(load->device, ModelServing{.model = load->model});
    } else if (const auto* evict = std::get_if<EvictFrom>(&command)) {
      resident[evict->device].erase(evict->model);
      complete.erase({evict->device, evict->model});
      report(evict->device, ModelEvicted{.model = evict->model, .exchanged = true});
    } else if (const auto* form = std::get_if<FormGroup>(&command)) {
      const GroupMember& leader = form->members.front();
      formed[leader.model] = form->members;
      tell(GroupFormed{.device = leader.device, .epoch = leader.epoch, .model = leader.model});
      report_pages(form->members);
    } else if (const auto* told = std::get_if<TellWorker>(&command)) {
      if (const auto* back = std::get_if<StepBack>(&told->message)) {
        const std::vector<GroupMember> members = formed.extract(back->model).mapped();
        report(told->device, SteppedBack{.model = back->model});
        report_pages(members);
      }
    } else if (const auto* dispatch = std::get_if<Dispatch>(&command)) {
      sent[dispatch->device].push_back(dispatch->request);
    }
  }

  void report_pages(const std::vector<GroupMember>& members) {
    for (const GroupMember& member : members) {
      report_pages(member.device);
    }
  }
  void report_pages(DeviceId device) {
    DeviceReport pages;
    for (const ModelId model : resident[device]) {
      const bool in_group = std::ranges::any_of(formed, [&](const auto& group) {
        return std::ranges::count(group.second, model, &GroupMember::model) > 0;
      });
      pages.models.push_back({.model = model,
                              .residency = Residency::kWarm,
                              .kv_pages = in_group ? kv_pages : 0,
                              .complete = complete.contains({device, model})});
    }
    report(device, pages);
  }
};

}  // namespace heddle::core::test
