// Random worlds of external engines that two hosts have: hosts are cut off and die, engines and
// managers die; in some of them engines are prewarmed. Whatever happens, each request is answered
// once all is well again.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "core/manager/manager_core.h"

namespace heddle::core {
namespace {

using namespace std::chrono_literals;

constexpr ModelId kModel{1};
constexpr ModelId kRival{2};
constexpr int kSteps = 300;
constexpr int kTurnsMost = 4000;   ///< Until all is answered; 200 s.
constexpr int kTurnsToRest = 100;  ///< For what is at two places to leave one.
constexpr policy::Calendar kCalendar{.window = 1s, .windows_per_day = 4};

class EngineWorld {
 public:
  /// With `forecasts` nobody asks for an engine in some windows of a day, and it comes before
  /// others.
  EngineWorld(std::uint64_t seed, bool forecasts) : rng_(seed), forecasts_(forecasts) {
    for (const HostId host : {HostId(1), HostId(2)}) {
      hosts_[device_id(host, 0)] = {};
    }
    begin_manager();
  }

  void run() {
    for (int i = 0; i < kSteps; ++i) {
      stir();
      turn();
    }
    for (auto& [device, host] : hosts_) {
      link(device, host);
    }
    for (int i = 0; i < kTurnsMost && !requests_.empty(); ++i) {
      turn();
    }
    for (int i = 0; i < kTurnsToRest; ++i) {
      turn();
    }
  }

  [[nodiscard]] std::size_t unanswered() const { return requests_.size(); }
  [[nodiscard]] int answered() const { return answered_; }
  /// Times that an engine was started or resumed before it was asked for.
  [[nodiscard]] int prewarmed() const { return prewarmed_; }
  /// At how many hosts something of the engine is left.
  [[nodiscard]] std::int64_t places(ModelId model) const {
    return std::ranges::count_if(
        hosts_, [&](const auto& entry) { return entry.second.engines.contains(model); });
  }

 private:
  enum class Engine : std::uint8_t { kStarting, kRunning, kSuspended, kLeaving };
  struct Host {
    bool linked = true;
    std::uint64_t life = 1;
    std::map<ModelId, Engine> engines{};  ///< Those of which something is left.
  };
  struct Request {
    ModelId model{};
    std::optional<DeviceId> at{};  ///< Where it was forwarded.
    bool broken = false;           ///< Its connection is, and the front has not noticed yet.
    bool cut = false;              ///< Together with its host.
  };

  // ---- What happens ----

  void stir() {
    auto& [device, host] = *std::next(hosts_.begin(), static_cast<std::ptrdiff_t>(rng_.below(2)));
    switch (rng_.below(24)) {
      case 0:
        unlink(device, host);
        break;
      case 1:
        die(device, host);
        break;
      case 2:
      case 3:
        link(device, host);
        break;
      case 4:
        begin_manager();
        break;
      case 5:
        if (!host.engines.empty() && rng_.below(4) == 0) {
          kill(device, host, host.engines.begin()->first);
        }
        break;
      case 6:
        if (forecasts_ && rng_.below(4) == 0) {
          hear(AdminUnload{.ticket = TicketId(++tickets_given_),
                           .model = rng_.below(2) == 0 ? kModel : kRival,
                           .why = EvictionReason::kIdle});
        }
        break;
      default:
        if (requests_.size() < 6) {
          arrive();
        }
    }
  }

  /// Time passes; hosts get on with their orders, and answers come.
  void turn() {
    now_ += 50ms;
    answer();
    hear(Tick{});
    for (auto& [device, host] : hosts_) {
      for (const ModelId model : {kModel, kRival}) {
        advance(device, host, model);
      }
    }
    for (const RequestId id : std::set<RequestId>(ids())) {
      get_on(id);
    }
  }

  void advance(DeviceId device, Host& host, ModelId model) {
    const auto found = host.engines.find(model);
    if (found == host.engines.end() || rng_.below(3) > 0) {
      return;
    }
    if (found->second == Engine::kStarting) {
      found->second = Engine::kRunning;
      say(device, host, model, EngineNews::kServing, 8);
    } else if (found->second == Engine::kLeaving) {
      const bool suspends = rng_.below(2) == 0;
      if (suspends) {
        found->second = Engine::kSuspended;
        say(device, host, model, EngineNews::kSuspended, 1);
      } else {
        end(device, host, model, false);
        say(device, host, model, EngineNews::kEnded);
      }
    }
  }

  void get_on(RequestId id) {
    Request& request = requests_.at(id);
    if (!request.at || rng_.below(3) > 0) {
      return;
    }
    if (request.broken) {
      const bool cut = request.cut;
      request.at.reset();
      request.broken = request.cut = false;
      hear(RequestUnanswered{.request = id, .cut = cut});
      return;
    }
    const Host& host = hosts_.at(*request.at);
    const auto engine = host.engines.find(request.model);
    if (engine != host.engines.end() && engine->second == Engine::kRunning) {
      requests_.erase(id);
      ++answered_;
      hear(RequestFinished{.request = id});
    }
  }

  /// Whether somebody may ask for the model in this window: for each in one window of a day.
  [[nodiscard]] static bool asked_in(ModelId model, std::int64_t window) {
    return window % kCalendar.windows_per_day == (model == kModel ? 0 : 2);
  }
  /// What a manager before this one measured.
  void remember(ModelId model) {
    LoadRemembered remembered{.model = model};
    const std::int64_t present = kCalendar.window_at(now_);
    for (std::int64_t window = present - 5 * kCalendar.windows_per_day; window < present;
         ++window) {
      remembered.windows.emplace_back(
          window, asked_in(model, window) ? policy::Load{.mean = 0.5, .peak = 2} : policy::Load{});
    }
    hear(remembered);
  }

  void arrive() {
    const RequestId id(++requests_given_);
    const ModelId model = rng_.below(3) == 0 ? kRival : kModel;
    if (forecasts_ && !asked_in(model, kCalendar.window_at(now_))) {
      return;
    }
    requests_[id] = {.model = model};
    hear(RequestArrived{.request = id, .model = model});
  }

  // ---- Hosts ----

  void unlink(DeviceId device, Host& host) {
    if (std::exchange(host.linked, false)) {
      hear(HostLost{.host = host_of(device)});
    }
  }
  void die(DeviceId device, Host& host) {
    for (const ModelId model : {kModel, kRival}) {
      end(device, host, model, true);
    }
    ++host.life;
    unlink(device, host);
  }
  void link(DeviceId device, Host& host) {
    if (!std::exchange(host.linked, true)) {
      tell_all(device, host);
    }
  }
  void tell_all(DeviceId device, Host& host) {
    hear(WorkerFound{.device = device, .epoch = WorkerEpoch(host.life), .report = {}});
    for (const auto& [model, engine] : std::map(host.engines)) {
      if (engine == Engine::kRunning || engine == Engine::kLeaving) {
        say(device, host, model, EngineNews::kServing, 8);
      } else if (engine == Engine::kSuspended) {
        say(device, host, model, EngineNews::kSuspended, 1);
      }
    }
  }
  void kill(DeviceId device, Host& host, ModelId model) {
    end(device, host, model, false);
    say(device, host, model, EngineNews::kLost);
  }
  /// Nothing is left of the engine; connections to it break.
  void end(DeviceId device, Host& host, ModelId model, bool cut) {
    host.engines.erase(model);
    for (auto& [id, request] : requests_) {
      if (request.model == model && request.at == device && !request.broken) {
        request.broken = true;
        request.cut = cut;
      }
    }
  }
  void say(DeviceId device, Host& host, ModelId model, EngineNews news, std::int64_t held = 0) {
    if (host.linked) {
      hear(EngineSaid{.device = device,
                      .model = model,
                      .news = news,
                      .held_pages = held,
                      .swap_out = forecasts_ ? Duration(100ms) : Duration{},
                      .swap_in = forecasts_ ? Duration(200ms) : Duration{},
                      .reason = {Code::kUnavailable, "signal 9"}});
    }
  }

  // ---- The manager ----

  void begin_manager() {
    core_ = ManagerCore();
    hear(Settled{.settled = false});
    Configure configure{.options = {.drain_after = 200ms,
                                    .planner = {.prewarm = forecasts_,
                                                .value = forecasts_,
                                                .period = 100ms,
                                                .calendar = kCalendar}}};
    for (const ModelId model : {kModel, kRival}) {
      ManagerModel& entry = configure.models.emplace_back(ManagerModel{
          .id = model, .name = "m", .context = 1, .external = ExternalModel{.drain = 1s}});
      for (const auto& [device, host] : hosts_) {
        entry.footprints[device] = {.image_pages = 8};
      }
    }
    for (const auto& [device, host] : hosts_) {
      configure.devices.push_back({.id = device, .name = "d", .pages = 10});
    }
    hear(configure);
    for (const ModelId model : {kModel, kRival}) {
      if (forecasts_) {
        remember(model);
      }
    }
    const bool fronts_first = rng_.below(2) == 0;
    if (fronts_first) {
      tell_front();
    }
    for (auto& [device, host] : hosts_) {
      if (host.linked) {
        tell_all(device, host);
      }
    }
    if (!fronts_first) {
      tell_front();
    }
    hear(Settled{.settled = true});
  }
  void tell_front() {
    FrontState state{.front = FrontId(0)};
    for (const auto& [id, request] : requests_) {
      state.requests.push_back(
          {.request = {.request = id, .model = request.model}, .age = 1s, .device = request.at});
    }
    hear(state);
  }

  void hear(const ManagerEvent& event) {
    std::vector<ManagerCommand> commands;
    core_.step(now_, event, commands);
    core_.check_invariants();
    for (const ManagerCommand& command : commands) {
      if (const auto* load = std::get_if<LoadOn>(&command)) {
        prewarmed_ += load->early ? 1 : 0;
        bring_in(load->device, load->model);
      } else if (const auto* evict = std::get_if<EvictFrom>(&command)) {
        take_out(evict->device, evict->model);
      } else if (const auto* dispatch = std::get_if<Dispatch>(&command)) {
        forward(*dispatch);
      } else if (const auto* fail = std::get_if<FailRequest>(&command)) {
        requests_.erase(fail->request);
      }
    }
  }
  /// As a host's core does it: what is on its way somewhere is not called back.
  void bring_in(DeviceId device, ModelId model) {
    Host& host = hosts_.at(device);
    if (!host.linked) {
      return;
    }
    const auto [at, fresh] = host.engines.emplace(model, Engine::kStarting);
    if (!fresh && at->second == Engine::kSuspended) {
      at->second = Engine::kStarting;
    }
    said_.push_back([this, device, model, state = at->second] {
      if (state == Engine::kRunning) {
        say(device, hosts_.at(device), model, EngineNews::kServing, 8);
      } else if (state == Engine::kLeaving) {
        say(device, hosts_.at(device), model, EngineNews::kRefused, 8);
      }
    });
  }
  void take_out(DeviceId device, ModelId model) {
    Host& host = hosts_.at(device);
    if (!host.linked) {
      return;
    }
    const auto found = host.engines.find(model);
    if (found == host.engines.end()) {
      said_.push_back(
          [this, device, model] { say(device, hosts_.at(device), model, EngineNews::kEnded); });
    } else {
      found->second = Engine::kLeaving;
    }
  }
  void forward(const Dispatch& dispatch) {
    if (const auto found = requests_.find(dispatch.request); found != requests_.end()) {
      found->second.at = dispatch.device;
      found->second.cut = found->second.broken = false;
      const Host& host = hosts_.at(dispatch.device);
      if (!host.engines.contains(found->second.model)) {
        found->second.broken = true;
      }
    }
  }
  /// What hosts answer at once. Within an event nothing else is heard.
  void answer() {
    for (const auto& say_it : std::exchange(said_, {})) {
      say_it();
    }
  }

  [[nodiscard]] std::set<RequestId> ids() const {
    std::set<RequestId> all;
    for (const auto& [id, request] : requests_) {
      all.insert(id);
    }
    return all;
  }

  Rng rng_;
  bool forecasts_;
  Instant now_{100s};
  ManagerCore core_{};
  std::map<DeviceId, Host> hosts_{};
  std::map<RequestId, Request> requests_{};
  std::vector<std::function<void()>> said_{};  ///< That the manager is about to hear.
  std::uint64_t requests_given_ = 0;
  std::uint64_t tickets_given_ = 0;
  int answered_ = 0;
  int prewarmed_ = 0;
};

/// How much happened in so many worlds in which it went well.
struct Worlds {
  int answered = 0;
  int prewarmed = 0;
};

void run_worlds(bool forecasts, Worlds& worlds) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    EngineWorld world(seed, forecasts);
    world.run();
    worlds.answered += world.answered();
    worlds.prewarmed += world.prewarmed();
    ASSERT_EQ(world.unanswered(), 0U);
    for (const ModelId model : {kModel, kRival}) {
      ASSERT_LE(world.places(model), 1);
    }
  }
}

TEST(EngineWorld, EveryRequestIsAnsweredOnceAllIsWell) {
  Worlds worlds;
  run_worlds(false, worlds);
  EXPECT_GT(worlds.answered, 3000);
  EXPECT_EQ(worlds.prewarmed, 0);
}

TEST(EngineWorld, EveryRequestIsAnsweredWhereEnginesArePrewarmed) {
  Worlds worlds;
  run_worlds(true, worlds);
  EXPECT_GT(worlds.answered, 3000);
  EXPECT_GT(worlds.prewarmed, 300);
}

}  // namespace
}  // namespace heddle::core
