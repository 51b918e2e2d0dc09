// Random worlds of external engines on one to four of four devices, and of models of ours beside
// them. All are asked for all the time. Whatever comes and goes, nothing is owned twice, and each
// request is answered within a bound.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "core/engines_core.h"
#include "core/manager/manager_core.h"

namespace heddle::core {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kDevicePages = 20;
constexpr std::int64_t kOwnPages = 5;  ///< Of a model of ours: four of image, one of KV.
constexpr Duration kTurn = 20ms;
constexpr int kTurns = 3000;               ///< 60 s.
constexpr Duration kAnsweredWithin = 20s;  ///< From a request's arrival.

class WideEngineWorld {
 public:
  /// With `workers` devices are those of workers, which have models of ours and lend to engines.
  WideEngineWorld(std::uint64_t seed, bool workers) : rng_(seed), workers_(workers) {
    Configure manager{.options = {.drain_after = 500ms}};
    ConfigureEngines host{.host_pages = 1000};
    for (std::uint64_t i = 0; i < 4; ++i) {
      const DeviceId id(i);
      manager.devices.push_back({.id = id, .name = "d" + std::to_string(i), .pages = kDevicePages});
      if (!workers_) {
        host.devices.push_back({.id = id, .pages = kDevicePages});
      }
      devices_[id] = {};
    }
    const int engines = static_cast<int>(3 + rng_.below(4));
    for (int i = 0; i < engines; ++i) {
      add_engine(i, manager, host);
    }
    for (std::uint64_t i = 0; workers_ && i < 2; ++i) {
      add_own(ModelId(100 + i), manager);
    }
    tell(host);
    hear(manager);
    for (const auto& [id, device] : devices_) {
      if (workers_) {
        hear(WorkerUp{.device = id, .epoch = WorkerEpoch(1)});
        report(id);
      }
    }
  }

  void run() {
    for (int i = 0; i < kTurns; ++i) {
      turn(true);
    }
    for (int i = 0; i < kTurns && !requests_.empty(); ++i) {
      turn(false);
    }
  }

  [[nodiscard]] std::size_t unanswered() const { return requests_.size(); }
  [[nodiscard]] Duration longest_wait() const { return longest_; }
  /// Least answers of any model.
  [[nodiscard]] int least_answers() const {
    int least = INT32_MAX;
    for (const ModelId model : models_) {
      const auto found = answers_.find(model);
      least = std::min(least, found == answers_.end() ? 0 : found->second);
    }
    return least;
  }
  /// Answers of engines on two devices or more.
  [[nodiscard]] int wide_answers() const {
    int all = 0;
    for (const auto& [model, count] : answers_) {
      all += wide_.contains(model) ? count : 0;
    }
    return all;
  }
  [[nodiscard]] int failures() const { return failures_; }

 private:
  struct Request {
    ModelId model{};
    Instant arrived{};
    std::optional<DeviceId> at{};
    Duration left{};  ///< Until its answer, while it runs.
  };
  /// A worker's device, as far as that matters here.
  struct Device {
    std::map<ModelId, std::int64_t> own{};   ///< Pages of models of ours.
    std::map<ModelId, std::int64_t> lent{};  ///< Pages of engines.
    std::uint64_t version = 0;
    [[nodiscard]] std::int64_t free() const {
      std::int64_t pages = kDevicePages;
      for (const auto* owners : {&own, &lent}) {
        for (const auto& [model, count] : *owners) {
          pages -= count;
        }
      }
      return pages;
    }
  };
  struct Later {
    Instant at{};
    std::function<void()> what{};
  };

  // ---- What there is ----

  void add_engine(int i, Configure& manager, ConfigureEngines& host) {
    const ModelId id(static_cast<std::uint64_t>(i + 1));
    // The first is on all devices, so that everybody else is in its way.
    const std::uint64_t count = i == 0 ? 4 : 1 + rng_.below(4);
    std::set<DeviceId> places;
    while (places.size() < count) {
      places.insert(DeviceId(rng_.below(4)));
    }
    const std::int64_t pages = static_cast<std::int64_t>(i == 0 ? 16 : 4 + rng_.below(13));
    ManagerModel model{.id = id,
                       .name = "e" + std::to_string(i),
                       .context = 1,
                       .min_residence = std::chrono::milliseconds(700 * rng_.below(4)),
                       .footprints = {{*places.begin(), {.image_pages = pages}}}};
    const bool keeps = rng_.below(2) == 0;
    model.external = ExternalModel{.drain = keeps ? std::optional<Duration>(200ms) : std::nullopt};
    HostedEngine engine{.model = id, .device = *places.begin(), .pages = pages};
    engine.levels = keeps ? std::vector{spec::SuspendLevel::kCheckpoint, spec::SuspendLevel::kStop}
                          : std::vector{spec::SuspendLevel::kSleep, spec::SuspendLevel::kStop};
    for (auto place = std::next(places.begin()); place != places.end(); ++place) {
      model.external->further[*places.begin()].push_back(*place);
      engine.further.push_back(*place);
    }
    if (count > 1) {
      wide_.insert(id);
    }
    pages_[id] = pages;
    models_.insert(id);
    manager.models.push_back(std::move(model));
    host.engines.push_back(std::move(engine));
  }
  void add_own(ModelId id, Configure& manager) {
    ManagerModel model{.id = id, .name = "own", .image_bytes = 4, .context = 8};
    for (const auto& [device, state] : devices_) {
      model.footprints[device] = {.image_pages = kOwnPages - 1,
                                  .min_kv_pages = 1,
                                  .kv = {{.tokens_per_block = 4, .blocks_per_page = 2}}};
    }
    models_.insert(id);
    manager.models.push_back(std::move(model));
  }

  // ---- Time ----

  void turn(bool ask) {
    now_ += kTurn;
    for (const ModelId model : models_) {
      const auto waiting = std::ranges::count_if(
          requests_, [&](const auto& entry) { return entry.second.model == model; });
      if (ask && waiting < 2 && rng_.below(3) == 0) {
        arrive(model);
      }
    }
    while (!later_.empty()) {
      const auto due = std::ranges::find_if(later_, [&](const Later& l) { return l.at <= now_; });
      if (due == later_.end()) {
        break;
      }
      const std::function<void()> what = std::move(due->what);
      later_.erase(due);
      what();
    }
    if (wake_ && now_ >= *wake_) {
      wake_.reset();
      hear(Tick{});
    }
    std::set<RequestId> ended;
    for (auto& [id, request] : requests_) {
      longest_ = std::max(longest_, now_ - request.arrived);
      if (request.at && runs(request)) {
        request.left -= kTurn;
        if (request.left <= Duration{}) {
          ended.insert(id);
        }
      }
    }
    for (const RequestId id : ended) {
      const ModelId model = requests_.at(id).model;
      requests_.erase(id);
      ++answers_[model];
      hear(RequestFinished{.request = id, .model = model});
    }
    check();
  }
  void in(Duration time, std::function<void()> what) {
    later_.push_back({.at = now_ + time, .what = std::move(what)});
  }
  void arrive(ModelId model) {
    const RequestId id(++requests_given_);
    requests_[id] = {
        .model = model, .arrived = now_, .left = std::chrono::milliseconds(20 + rng_.below(400))};
    const std::int64_t tokens = pages_.contains(model) ? 0 : 1;
    hear(RequestArrived{
        .request = id, .model = model, .prompt_tokens = tokens, .max_tokens = tokens});
  }
  [[nodiscard]] bool runs(const Request& request) const {
    if (!pages_.contains(request.model)) {
      return devices_.at(*request.at).own.contains(request.model);
    }
    return running_.contains(request.model);
  }

  /// No page has two owners: neither those of engines that hold memory, nor those of ours.
  void check() {
    for (const auto& [id, device] : devices_) {
      if (workers_) {
        ASSERT_GE(device.free(), 0);
        continue;
      }
      const ledger::PoolUsage usage = *host_.usage(id);
      ASSERT_LE(usage.of(ledger::LeaseKind::kExternal).reserved, kDevicePages);
    }
  }

  // ---- The manager ----

  void hear(const ManagerEvent& event) {
    std::vector<ManagerCommand> commands;
    manager_.step(now_, event, commands);
    manager_.check_invariants();
    for (const ManagerCommand& command : commands) {
      if (const auto* load = std::get_if<LoadOn>(&command)) {
        carry_out(*load);
      } else if (const auto* evict = std::get_if<EvictFrom>(&command)) {
        carry_out(*evict);
      } else if (const auto* failed = std::get_if<FailRequest>(&command)) {
        requests_.erase(failed->request);
        ++failures_;
      } else if (const auto* wake = std::get_if<WakeAt>(&command)) {
        wake_ = wake->at;
      } else if (const auto* dispatch = std::get_if<Dispatch>(&command)) {
        requests_.at(dispatch->request).at = dispatch->device;
      }
    }
  }
  void carry_out(const LoadOn& load) {
    if (pages_.contains(load.model)) {
      in({}, [this, load] { tell(load); });
      return;
    }
    in({}, [this, load] {
      Device& device = devices_.at(load.device);
      ++device.version;
      if (device.free() < kOwnPages || device.own.contains(load.model)) {
        say(load.device,
            LoadRefused{.model = load.model,
                        .version = device.version,
                        .reason = {Code::kResourceExhausted, "no room"}});
        return;
      }
      device.own[load.model] = kOwnPages;
      say(load.device, ModelServing{.model = load.model});
      report(load.device);
    });
  }
  void carry_out(const EvictFrom& evict) {
    if (pages_.contains(evict.model)) {
      in({}, [this, evict] { tell(evict); });
      return;
    }
    in({}, [this, evict] {
      Device& device = devices_.at(evict.device);
      ++device.version;
      device.own.erase(evict.model);
      for (auto& [id, request] : requests_) {
        if (request.model == evict.model && request.at == evict.device) {
          request.at.reset();
        }
      }
      say(evict.device, ModelEvicted{.model = evict.model, .exchanged = true});
      report(evict.device);
    });
  }
  template <class T>
  void say(DeviceId device, T what) {
    hear(WorkerSaid{.device = device, .epoch = WorkerEpoch(1), .report = std::move(what)});
  }
  void report(DeviceId id) {
    const Device& device = devices_.at(id);
    DeviceReport report{.version = device.version};
    report.usage.total = kDevicePages;
    report.usage.free = device.free();
    for (const auto& [model, pages] : device.own) {
      report.models.push_back({.model = model, .residency = Residency::kServing, .complete = true});
    }
    say(id, std::move(report));
  }

  // ---- The host ----

  void tell(const EnginesEvent& event) {
    std::vector<EnginesCommand> commands;
    host_.step(now_, event, commands);
    host_.check_invariants();
    for (const EnginesCommand& command : commands) {
      std::visit([this](const auto& concrete) { on(concrete); }, command);
    }
  }
  void on(const TellManager& told) {
    in({}, [this, event = told.event] { hear(event); });
  }
  void on(const Borrow& borrow) {
    in({}, [this, borrow] {
      Device& device = devices_.at(borrow.device);
      // Some refuse for no reason that is known, but not time after time.
      const bool refuses = rng_.below(10) == 0 && refused_.insert(borrow.model).second;
      if (device.free() < borrow.pages || refuses) {
        tell(LoanRefused{.model = borrow.model, .reason = {Code::kResourceExhausted, "no room"}});
        return;
      }
      refused_.erase(borrow.model);
      device.lent[borrow.model] += borrow.pages;
      ++device.version;
      report(borrow.device);
      tell(LoanGranted{.model = borrow.model});
    });
  }
  void on(const Repay& repay) {
    in(kTurn, [this, repay] {
      Device& device = devices_.at(repay.device);
      const std::int64_t left = device.lent.at(repay.model) -= repay.pages;
      ASSERT_GE(left, 0);
      if (left == 0) {
        device.lent.erase(repay.model);
      }
      ++device.version;
      report(repay.device);
      tell(LoanRepaid{.model = repay.model});
    });
  }
  void on(const StartEngine& start) {
    in(300ms, [this, start] {
      EngineStarted said{.model = start.model, .life = start.life, .held_pages = held(start.model)};
      running_.insert(start.model);
      tell(said);
    });
  }
  void on(const SuspendEngine& suspend) {
    running_.erase(suspend.model);
    in(60ms, [this, suspend] {
      tell(EngineSuspended{.model = suspend.model, .life = suspend.life, .level = suspend.level});
    });
  }
  void on(const ResumeEngine& resume) {
    in(80ms, [this, resume] {
      running_.insert(resume.model);
      tell(EngineResumed{
          .model = resume.model, .life = resume.life, .held_pages = held(resume.model)});
    });
  }
  void on(const StopEngine& stop) {
    running_.erase(stop.model);
    in(60ms, [this, stop] {
      tell(EngineExited{.model = stop.model, .life = stop.life, .how = "exit status 0"});
    });
  }
  void on(const SetKvLimit& /*limit*/) { ADD_FAILURE() << "no engine is elastic"; }
  void on(const NudgeEngine& /*nudge*/) { ADD_FAILURE() << "no engine is elastic"; }
  /// Of all its devices together.
  [[nodiscard]] std::int64_t held(ModelId model) const {
    for (const EngineStatus& engine : host_.engines()) {
      if (engine.model == model) {
        return pages_.at(model) * static_cast<std::int64_t>(1 + engine.further.size());
      }
    }
    return 0;
  }

  Rng rng_;
  bool workers_;
  Instant now_{100s};
  ManagerCore manager_{};
  EnginesCore host_{};
  std::map<DeviceId, Device> devices_{};
  std::map<ModelId, std::int64_t> pages_{};  ///< Of engines, on each device.
  std::set<ModelId> models_{};
  std::set<ModelId> wide_{};
  std::set<ModelId> running_{};
  std::set<ModelId> refused_{};  ///< Whose last loan was, without reason.
  std::map<RequestId, Request> requests_{};
  std::map<ModelId, int> answers_{};
  std::deque<Later> later_{};
  std::optional<Instant> wake_{};
  std::uint64_t requests_given_ = 0;
  Duration longest_{};
  int failures_ = 0;
};

void run_wide_worlds(bool workers) {
  int wide = 0;
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    WideEngineWorld world(seed, workers);
    world.run();
    ASSERT_EQ(world.unanswered(), 0U);
    ASSERT_EQ(world.failures(), 0);
    ASSERT_LE(world.longest_wait(), kAnsweredWithin);
    ASSERT_GT(world.least_answers(), 0);
    wide += world.wide_answers();
  }
  EXPECT_GT(wide, 5000);
}

TEST(WideEngineWorld, EveryRequestIsAnsweredInTimeWhereOnlyEnginesAre) {
  run_wide_worlds(false);
}

TEST(WideEngineWorld, EveryRequestIsAnsweredInTimeBesideModelsOfOurs) {
  run_wide_worlds(true);
}

}  // namespace
}  // namespace heddle::core
