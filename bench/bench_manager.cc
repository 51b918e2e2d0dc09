#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "core/manager/manager_core.h"

/// What the events of a large cluster cost a manager's core. A table:
///     bench_manager [MODELS DEVICES [EVENTS [SEED [plain | heddle]]]]
/// Without arguments: 100 and 1,000 models and devices with all parts of the planner and without,
/// and ticks at 10,000.
///
/// Hosts have eight devices of two kinds. Any model may be on any device. At first each device has
/// three models with some requests in each. Then requests come to models by a power law and end;
/// workers bring in and take out what they are told to, and report. The last models of the law
/// are nowhere for most of the time and have to be placed.
namespace {

using namespace heddle;
using namespace std::chrono_literals;

constexpr std::uint64_t kDevicesOfAHost = 8;
constexpr std::int64_t kPages = 40'000;
constexpr std::uint64_t kPageBytes = 2U << 20U;
constexpr std::uint64_t kResidents = 3;
constexpr Duration kLoadTakes = 4s;
constexpr Duration kBetweenEvents = 200us;
constexpr std::uint64_t kRunning = 6;  ///< Requests of a device, about.

double micros(Duration span) {
  return std::chrono::duration<double, std::micro>(span).count();
}

struct Times {
  std::vector<Duration> spans{};
  void print(const char* what) {
    if (spans.empty()) {
      return;
    }
    std::ranges::sort(spans);
    std::printf("  %-28s %8zu %10.1f %10.1f %10.1f\n",
                what,
                spans.size(),
                micros(spans[spans.size() / 2]),
                micros(spans[spans.size() * 99 / 100]),
                micros(spans.back()));
  }
};

core::PlannerOptions all_parts() {
  return {.prewarm = true, .value = true, .pressure = true, .replicas = true};
}

/// A core, and devices that do what it says.
class Cluster {
 public:
  Cluster(std::uint64_t models, std::uint64_t devices, std::uint64_t seed, bool plain)
      : rng_(seed), models_(models) {
    configuration_.options = {.queue_per_model = 100'000, .queue_total = 1'000'000};
    configuration_.options.planner = plain ? core::PlannerOptions{} : all_parts();
    for (std::uint64_t i = 0; i < devices; ++i) {
      const std::uint64_t host = i / kDevicesOfAHost;
      configuration_.devices.push_back(
          {.id = device_id(HostId(host + 1), i % kDevicesOfAHost),
           .name = "h" + std::to_string(host + 1) + "/" + std::to_string(i % kDevicesOfAHost),
           .pages = host % 2 == 0 ? kPages : kPages * 3 / 5,
           .page_bytes = kPageBytes,
           .kind = static_cast<std::uint32_t>(host % 2 + 1)});
    }
    for (std::uint64_t id = 1; id <= models; ++id) {
      const auto pages = 3'000 + static_cast<std::int64_t>(rng_.below(8'000));
      core::ManagerModel model{.id = ModelId(id),
                               .name = "m" + std::to_string(id),
                               .image_bytes = static_cast<std::uint64_t>(pages) * kPageBytes,
                               .context = 32'768,
                               .batch = 64};
      for (const std::uint32_t kind : {1U, 2U}) {
        model.on_kinds[kind] = {.image_pages = pages,
                                .overhead_pages = 200,
                                .min_kv_pages = 100,
                                .kv = {{.tokens_per_block = 16, .blocks_per_page = 8}}};
      }
      configuration_.models.push_back(std::move(model));
    }
  }

  /// Tells the core of all there is; returns how long that took.
  Duration start() {
    const Instant began = steady_now();
    tell(configuration_);
    std::uint64_t model = 0;
    for (const core::ManagerDevice& device : configuration_.devices) {
      core::DeviceReport report{.version = 1};
      for (std::uint64_t i = 0; i < kResidents; ++i) {
        const ModelId id(model++ % std::max<std::uint64_t>(models_ * 3 / 4, 1) + 1);
        residents_[device.id][id] = true;
      }
      tell(core::WorkerFound{
          .device = device.id, .epoch = worker_epoch(1, 1), .report = report_of(device.id)});
    }
    const Duration took = steady_now() - began;
    while (running_.size() < kRunning * configuration_.devices.size()) {
      now_ += kBetweenEvents;
      next();
    }
    return took;
  }

  /// So many events; the first part of them is not counted.
  void run(std::uint64_t events) {
    for (std::uint64_t i = 0; i < events; ++i) {
      counts_ = i >= events / 10;
      now_ += kBetweenEvents;
      next();
    }
  }
  /// One look ahead of the planner.
  void tick() {
    now_ += 500ms;
    hear("Tick, the planner looks", core::Tick{});
  }

  void print() {
    for (auto& [what, times] : times_) {
      times.print(what.c_str());
    }
  }
  [[nodiscard]] std::size_t running() const { return running_.size(); }
  [[nodiscard]] std::size_t waiting() const { return waiting_; }

 private:
  void tell(const core::ManagerEvent& event) {
    commands_.clear();
    core_.step(now_, event, commands_);
    follow();
  }
  void hear(const char* what, const core::ManagerEvent& event) {
    commands_.clear();
    const Instant began = steady_now();
    core_.step(now_, event, commands_);
    const Duration took = steady_now() - began;
    if (counts_) {
      times_[what].spans.push_back(took);
    }
    follow();
  }

  void follow() {
    for (const core::ManagerCommand& command : commands_) {
      if (const auto* dispatch = std::get_if<core::Dispatch>(&command)) {
        running_.push_back(dispatch->request);
        waiting_ -= waiting_ > 0 ? 1 : 0;
      } else if (const auto* load = std::get_if<core::LoadOn>(&command)) {
        residents_[load->device][load->model] = false;
        due_.emplace(now_ + kLoadTakes / 2, Later{load->device, load->model, 0});
        due_.emplace(now_ + kLoadTakes, Later{load->device, load->model, 1});
      } else if (const auto* evict = std::get_if<core::EvictFrom>(&command)) {
        due_.emplace(now_ + 2ms, Later{evict->device, evict->model, 2});
      } else if (const auto* wake = std::get_if<core::WakeAt>(&command)) {
        wakes_.emplace(wake->at, 0);
      }
    }
  }

  core::DeviceReport report_of(DeviceId device) {
    core::DeviceReport report{.version = ++version_};
    report.usage.total = kPages;
    report.usage.free = kPages / 10;
    for (const auto& [model, complete] : residents_[device]) {
      report.models.push_back({.model = model,
                               .residency = core::Residency::kServing,
                               .kv_pages = 100 + static_cast<std::int64_t>(rng_.below(2'000)),
                               .complete = complete});
    }
    return report;
  }
  void say(const char* what, DeviceId device, core::WorkerReport report) {
    hear(what,
         core::WorkerSaid{
             .device = device, .epoch = worker_epoch(1, 1), .report = std::move(report)});
  }

  void next() {
    if (!due_.empty() && due_.begin()->first <= now_) {
      const Later later = due_.begin()->second;
      due_.erase(due_.begin());
      if (later.what == 0) {
        say("ModelServing", later.device, core::ModelServing{.model = later.model});
      } else if (later.what == 1) {
        const auto there = residents_[later.device].find(later.model);
        if (there != residents_[later.device].end()) {
          there->second = true;
          say("DeviceReport, complete", later.device, report_of(later.device));
        }
      } else {
        residents_[later.device].erase(later.model);
        say("ModelEvicted",
            later.device,
            core::ModelEvicted{.model = later.model, .exchanged = true});
      }
      return;
    }
    if (!wakes_.empty() && wakes_.begin()->first <= now_) {
      wakes_.erase(wakes_.begin());
      hear(now_ >= look_at_ ? "Tick, the planner looks" : "Tick", core::Tick{});
      look_at_ = now_ >= look_at_ ? now_ + 500ms : look_at_;
      return;
    }
    const std::uint64_t draw = rng_.below(100);
    if (draw < 20) {
      const auto& devices = configuration_.devices;
      const DeviceId device = devices[rng_.below(devices.size())].id;
      say("DeviceReport", device, report_of(device));
    } else if (running_.size() < kRunning * configuration_.devices.size()) {
      arrive();
    } else {
      const std::size_t at = rng_.below(running_.size());
      const RequestId request = std::exchange(running_[at], running_.back());
      running_.pop_back();
      hear("RequestFinished",
           core::RequestFinished{.request = request, .ttft = 50ms, .tpot = 20ms});
    }
  }

  /// Nine of ten for a model of the first half by a power law, the others for any.
  void arrive() {
    const std::uint64_t span = rng_.below(10) < 9 ? 1 + rng_.below(models_ / 2) : models_;
    const ModelId model(1 + rng_.below(span));
    const core::RequestArrived arrived{
        .request = RequestId(++requests_), .model = model, .prompt_tokens = 500, .max_tokens = 500};
    ++waiting_;
    commands_.clear();
    const Instant began = steady_now();
    core_.step(now_, arrived, commands_);
    const Duration took = steady_now() - began;
    const bool sent = std::ranges::any_of(commands_, [](const core::ManagerCommand& command) {
      return std::holds_alternative<core::Dispatch>(command);
    });
    const bool placed = std::ranges::any_of(commands_, [](const core::ManagerCommand& command) {
      return std::holds_alternative<core::LoadOn>(command);
    });
    if (counts_) {
      times_[sent     ? "RequestArrived, model serves"
             : placed ? "RequestArrived, is placed"
                      : "RequestArrived, waits"]
          .spans.push_back(took);
      times_["RequestArrived, any"].spans.push_back(took);
    }
    follow();
  }

  struct Later {
    DeviceId device{};
    ModelId model{};
    int what = 0;  ///< It serves, is complete, or is gone.
  };

  Rng rng_;
  std::uint64_t models_;
  core::Configure configuration_{};
  core::ManagerCore core_{};
  Instant now_{std::chrono::hours(1)};
  Instant look_at_{};
  std::vector<core::ManagerCommand> commands_{};
  std::map<DeviceId, std::map<ModelId, bool>> residents_{};  ///< And whether they are complete.
  std::multimap<Instant, Later> due_{};
  std::multimap<Instant, int> wakes_{};
  std::vector<RequestId> running_{};
  std::map<std::string, Times> times_{};
  std::uint64_t requests_ = 0;
  std::uint64_t version_ = 1;
  std::size_t waiting_ = 0;
  bool counts_ = false;
};

void measure(std::uint64_t models,
             std::uint64_t devices,
             std::uint64_t events,
             std::uint64_t seed,
             bool plain,
             std::uint64_t ticks = 0) {
  Cluster cluster(models, devices, seed, plain);
  const Duration start = cluster.start();
  cluster.run(events);
  for (std::uint64_t i = 0; i < ticks; ++i) {
    cluster.tick();
  }
  std::printf("%llu models, %llu devices, seed %llu, %s; known in %.0f ms; %zu run, %zu wait\n",
              static_cast<unsigned long long>(models),
              static_cast<unsigned long long>(devices),
              static_cast<unsigned long long>(seed),
              plain ? "without a planner" : "with all parts of the planner",
              micros(start) / 1000,
              cluster.running(),
              cluster.waiting());
  std::printf("  %-28s %8s %10s %10s %10s\n", "event", "count", "p50 [us]", "p99 [us]", "max [us]");
  cluster.print();
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int at, std::uint64_t otherwise) {
    return argc > at ? std::strtoull(argv[at], nullptr, 10) : otherwise;
  };
  const std::uint64_t seed = number(4, 1);
  if (argc > 2) {
    const bool plain = argc > 5 && std::string_view(argv[5]) == "plain";
    measure(number(1, 0), number(2, 0), number(3, 20'000), seed, plain);
    return 0;
  }
  for (const std::uint64_t size : {100U, 1'000U}) {
    measure(size, size, 50'000, seed, true);
    measure(size, size, 50'000, seed, false);
  }
  measure(10'000, 10'000, 20'000, seed, false, 40);
}
