#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/manager/catalog.h"
#include "core/manager/index.h"
#include "core/manager/parts.h"
#include "core/manager/status.h"

/// For tests of the manager's parts: a small state, the parts that write it, and their commands.
namespace heddle::core::manager::test {

using namespace std::chrono_literals;

inline constexpr ModelId kA{1};
inline constexpr ModelId kB{2};
inline constexpr ModelId kC{3};
inline constexpr ModelId kGroup{4};  ///< Rank 0 of a sharded model.
inline constexpr ModelId kShard{5};  ///< Rank 1 of it.
inline constexpr ModelId kEngine{6};
inline constexpr ModelId kWide{7};  ///< An engine on two devices.
inline constexpr ModelId kUnknown{9};
inline constexpr ModelId kSecond{10};       ///< Rank 0 of another sharded model.
inline constexpr ModelId kSecondShard{11};  ///< Rank 1 of it.
inline constexpr DeviceId kDevice{0};
inline constexpr DeviceId kOther{1};
inline constexpr std::int64_t kPages = 20;      ///< Of a device.
inline constexpr std::int64_t kImagePages = 8;  ///< Of a model; with one of KV it needs 9.
inline constexpr std::int64_t kEnginePages = 12;
inline constexpr std::uint64_t kPageBytes = 10'000'000;

/// Devices with models, or shards, on them.
using Spots = std::vector<std::pair<DeviceId, ModelId>>;

class TestState;

/// The parts, for what looks at State::index: tests write parts of the state themselves.
class Fresh {
 public:
  explicit Fresh(TestState& core) : core_(core) {}
  operator const Parts&() const;  // NOLINT(google-explicit-constructor)

 private:
  TestState& core_;
};

/// Models a, b and c on devices that are up, and all parts of the core; no pass runs by itself. A
/// page has 8 tokens of KV, so that 96 fit beside the weights of a model that is alone.
class TestState {
 public:
  explicit TestState(int count = 1, PlannerOptions planner = {}) {
    planner.calendar = {.window = 10s, .windows_per_day = 8640};
    configuration.options = {
        .drain_after = 1s, .load_attempts = 2, .load_cooldown = 10s, .planner = planner};
    for (int i = 0; i < count; ++i) {
      configuration.devices.push_back({.id = DeviceId(static_cast<std::uint64_t>(i)),
                                       .name = "d" + std::to_string(i),
                                       .pages = kPages,
                                       .page_bytes = kPageBytes});
    }
    for (const auto& [id, name] : {std::pair{kA, "a"}, {kB, "b"}, {kC, "c"}}) {
      ManagerModel model = new_model(id, name);
      for (const ManagerDevice& device : configuration.devices) {
        model.footprints[device.id] = footprint();
      }
      configuration.models.push_back(model);
    }
    out.open(commands);
    configure();
    for (const ManagerDevice& device : configuration.devices) {
      devices.up({.device = device.id, .epoch = WorkerEpoch(device.id.value() + 1)});
    }
  }

  void configure() { catalog.configure(configuration); }

  /// The device has so many pages instead.
  void resize(DeviceId device, std::int64_t pages) {
    std::ranges::find(configuration.devices, device, &ManagerDevice::id)->pages = pages;
    configure();
  }

  /// A model more, sharded over each two devices.
  void add_group(ModelId rank0 = kGroup, ModelId rank1 = kShard) {
    ManagerModel all = new_model(rank0, "sharded");
    ManagerModel shard = new_model(rank1, "sharded");
    shard.part_of = rank0;
    for (std::size_t i = 0; i + 1 < configuration.devices.size(); i += 2) {
      const DeviceId leader = configuration.devices[i].id;
      const DeviceId other = configuration.devices[i + 1].id;
      all.footprints[leader] = shard.footprints[other] = footprint();
      all.groups[leader] = {{.model = rank1, .device = other}};
    }
    configuration.models.push_back(all);
    configuration.models.push_back(shard);
    configure();
  }
  /// An external engine more, on the first device.
  void add_engine(std::int64_t pages = kEnginePages, std::optional<Duration> drain = 2s) {
    ManagerModel engine = new_model(kEngine, "engine");
    engine.footprints[kDevice] = {.image_pages = pages};
    engine.external = ExternalModel{.drain = drain};
    configuration.models.push_back(engine);
    configure();
  }
  /// The configuration does not have it any more.
  void remove(ModelId id) {
    std::erase_if(configuration.models, [id](const auto& m) { return m.id == id; });
    configure();
  }

  // ---- What is where ----

  [[nodiscard]] Instance& at(ModelId model, DeviceId device = kDevice) {
    return state.devices.at(device).instances.at(model);
  }
  [[nodiscard]] bool there(ModelId model, DeviceId device = kDevice) const {
    return state.devices.at(device).instances.contains(model);
  }
  [[nodiscard]] ModelState& model(ModelId id) { return state.models.at(id); }
  [[nodiscard]] DeviceState& device(DeviceId id = kDevice) { return state.devices.at(id); }

  void load(ModelId model, DeviceId device = kDevice, LoadReason why = LoadReason::kRequest) {
    residency.begin_load(device, model, why);
  }
  /// It serves, all weights are there, and nothing of that is in `commands`.
  Instance& serve(ModelId model, DeviceId device = kDevice) {
    if (!there(model, device)) {
      load(model, device);
    }
    residency.serve(device, model);
    at(model, device).complete = true;
    if (state.models.at(model).external()) {
      residency.hold_pages(device, model, kEnginePages);
    }
    commands.clear();
    return at(model, device);
  }
  /// All shards are on their way to a block, which a request asked for.
  void load_group(DeviceId leader = kDevice, ModelId rank0 = kGroup, ModelId rank1 = kShard) {
    const DeviceId other(leader.value() + 1);
    residency.begin_load(leader, rank0, LoadReason::kRequest);
    residency.begin_load(other, rank1, LoadReason::kRequest, {.leader = leader});
    commands.clear();
  }
  /// The group serves there.
  void serve_group(DeviceId leader = kDevice, ModelId rank0 = kGroup, ModelId rank1 = kShard) {
    load_group(leader, rank0, rank1);
    at(rank0, leader).complete = at(rank1, DeviceId(leader.value() + 1)).complete = true;
    residency.form(rank0, leader);
    residency.formed(rank0, leader);
    commands.clear();
  }
  /// A shard that nobody asked for is there: rank 0, or the other one.
  Instance& stage(ModelId shard, bool complete = true) {
    const DeviceId place = shard == kGroup ? kDevice : kOther;
    residency.begin_load(
        place,
        shard,
        LoadReason::kForecast,
        {.leader = shard == kGroup ? std::nullopt : std::optional(kDevice), .staged = true});
    residency.serve(place, shard);
    at(shard, place).complete = complete;
    commands.clear();
    return at(shard, place);
  }

  // ---- Requests ----

  /// One that waits for the model; it has so many tokens, a half of them of its answer.
  RequestId wait(ModelId model, std::int64_t tokens = 8, std::int32_t priority = 0) {
    const RequestId id(++requests);
    queues.arrive({.request = id,
                   .model = model,
                   .priority = priority,
                   .prompt_tokens = tokens / 2,
                   .max_tokens = tokens - tokens / 2});
    return id;
  }
  /// One that was sent to the instance.
  RequestId run(ModelId model, DeviceId device = kDevice) {
    const RequestId id = wait(model);
    queues.send(id, device, std::nullopt);
    commands.clear();
    return id;
  }
  void finish(RequestId id) { queues.finish({.request = id}); }

  // ---- Time, and what was commanded ----

  void pass(Duration time) { state.now += time; }

  template <class T>
  [[nodiscard]] std::vector<T> all() const {
    std::vector<T> found;
    for (const ManagerCommand& command : commands) {
      if (const T* one = std::get_if<T>(&command)) {
        found.push_back(*one);
      }
    }
    return found;
  }
  [[nodiscard]] std::vector<Decision> decisions(DecisionKind kind) const {
    std::vector<Decision> found = all<Decision>();
    std::erase_if(found, [kind](const Decision& each) { return each.kind != kind; });
    return found;
  }
  [[nodiscard]] Spots loads() const { return spots<LoadOn>(); }
  [[nodiscard]] Spots evictions() const { return spots<EvictFrom>(); }
  /// The requests that were sent to workers or engines, in order.
  [[nodiscard]] std::vector<RequestId> sent() const { return ids<Dispatch>(); }
  [[nodiscard]] std::vector<RequestId> failed() const { return ids<FailRequest>(); }
  /// When the step that ends here wants to be woken; the next one begins.
  std::optional<Instant> wake() {
    const std::size_t before = commands.size();
    out.close();
    out.open(commands);
    return commands.size() == before ? std::nullopt
                                     : std::optional(std::get<WakeAt>(commands.back()).at);
  }

  State state{.now = Instant(100s)};
  Configure configuration{};
  std::vector<ManagerCommand> commands{};
  std::uint64_t requests = 0;
  Outbox out{state};
  Catalog catalog{state};
  Demand demand{state, out};
  RequestQueues queues{state, out, demand};
  Tickets tickets{state, out};
  LoadAttempts attempts{state, queues, tickets};
  Devices devices{state};
  GuestLoans guests{state, out};
  Fetches fetches{state};
  Residency residency{state, out, queues, demand, guests, fetches};
  KvLimits kv_limits{state, out};
  Shortages shortages{state};
  Loads loading{state, queues, residency};
  DrainPlans plans{state, out, residency, loading, shortages};
  Claims claims{state, out, queues, residency, loading, plans};
  PlaceSearch search{state};
  Reservations reservations{state, out};
  Parts all_parts{.state = state,
                  .out = out,
                  .catalog = catalog,
                  .demand = demand,
                  .queues = queues,
                  .tickets = tickets,
                  .attempts = attempts,
                  .devices = devices,
                  .guests = guests,
                  .fetches = fetches,
                  .residency = residency,
                  .kv_limits = kv_limits,
                  .shortages = shortages,
                  .loads = loading,
                  .plans = plans,
                  .claims = claims,
                  .search = search,
                  .reservations = reservations};
  Fresh parts{*this};

 protected:
  static ManagerModel new_model(ModelId id, std::string name) {
    return {.id = id,
            .name = std::move(name),
            .image_bytes = kImagePages * kPageBytes,
            .context = 1000,
            .batch = 4};
  }
  static policy::Footprint footprint() {
    return {.image_pages = kImagePages,
            .min_kv_pages = 1,
            .kv = {{.tokens_per_block = 4, .blocks_per_page = 2}}};
  }

 private:
  template <class T>
  [[nodiscard]] Spots spots() const {
    Spots found;
    for (const T& one : all<T>()) {
      found.emplace_back(one.device, one.model);
    }
    return found;
  }
  template <class T>
  [[nodiscard]] std::vector<RequestId> ids() const {
    std::vector<RequestId> found;
    for (const T& one : all<T>()) {
      found.push_back(one.request);
    }
    return found;
  }
};

/// An external engine more, on the first two devices at once.
inline void add_wide_engine(TestState& core) {
  ManagerModel engine{.id = kWide, .name = "wide", .context = 1000, .batch = 4};
  engine.footprints[kDevice] = {.image_pages = kEnginePages};
  engine.external = ExternalModel{.drain = 2s, .further = {{kDevice, {kOther}}}};
  core.configuration.models.push_back(engine);
  core.configure();
}

/// The model needs this there instead; nobody is told.
inline void set_need(TestState& core,
                     ModelId id,
                     DeviceId device,
                     const policy::Footprint& footprint) {
  core.model(id).footprints.put(device, footprint);
}
inline void set_image_pages(TestState& core, ModelId id, DeviceId device, std::int64_t pages) {
  policy::Footprint changed = core.model(id).footprints.at(device);
  changed.image_pages = pages;
  set_need(core, id, device, changed);
}
inline void set_overhead_pages(TestState& core, ModelId id, DeviceId device, std::int64_t pages) {
  policy::Footprint changed = core.model(id).footprints.at(device);
  changed.overhead_pages = pages;
  set_need(core, id, device, changed);
}

inline Fresh::operator const Parts&() const {
  reindex(core_.state);
  return core_.all_parts;
}

}  // namespace heddle::core::manager::test
