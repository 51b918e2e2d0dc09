#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "base/clock.h"
#include "core/manager/manager_core.h"

/// What a manager's core takes to adopt a large cluster, and then a step. A table.
namespace {

using namespace heddle;

constexpr std::uint64_t kHosts = 64;
constexpr std::uint64_t kDevicesOfAHost = 8;
constexpr std::uint64_t kModels = 100;
constexpr std::uint64_t kGateways = 4;
constexpr std::uint64_t kRequests = 10'000;
constexpr std::uint64_t kSteps = 10'000;
constexpr std::int64_t kPages = 20'000;
constexpr std::uint64_t kPageBytes = 2U << 20U;

struct Bed {
  core::ManagerCore core{};
  Instant now{std::chrono::hours(1)};
  std::vector<core::ManagerCommand> commands{};

  void tell(const core::ManagerEvent& event) {
    commands.clear();
    core.step(now, event, commands);
  }
};

DeviceId device_of(std::uint64_t host, std::uint64_t index) {
  return device_id(HostId(host + 1), index);
}

core::Configure cluster() {
  core::Configure all;
  for (std::uint64_t host = 0; host < kHosts; ++host) {
    for (std::uint64_t index = 0; index < kDevicesOfAHost; ++index) {
      all.devices.push_back({.id = device_of(host, index),
                             .name = "h" + std::to_string(host) + "/" + std::to_string(index),
                             .pages = kPages,
                             .page_bytes = kPageBytes});
    }
  }
  for (std::uint64_t id = 1; id <= kModels; ++id) {
    core::ManagerModel model{.id = ModelId(id),
                             .name = "m" + std::to_string(id),
                             .image_bytes = 8'000 * kPageBytes,
                             .context = 32'768,
                             .batch = 64};
    for (const core::ManagerDevice& device : all.devices) {
      model.footprints[device.id] = {.image_pages = 8'000,
                                     .min_kv_pages = 1,
                                     .kv = {{.tokens_per_block = 16, .blocks_per_page = 8}}};
    }
    all.models.push_back(std::move(model));
  }
  return all;
}

/// The model that serves on a device: two each.
ModelId model_on(std::uint64_t device, std::uint64_t which) {
  return ModelId((2 * device + which) % kModels + 1);
}

double milliseconds(Duration span) {
  return std::chrono::duration<double, std::milli>(span).count();
}

/// All that hosts and gateways tell a new manager, until it has decided.
Duration adopt(Bed& bed, const core::Configure& all) {
  std::vector<core::FrontState> fronts;
  for (std::uint64_t front = 1; front <= kGateways; ++front) {
    core::FrontState& state = fronts.emplace_back(core::FrontState{.front = FrontId(front)});
    for (std::uint64_t i = 0; i < kRequests / kGateways; ++i) {
      const std::uint64_t number = front * kRequests + i;
      const std::uint64_t device = number % (kHosts * kDevicesOfAHost);
      state.requests.push_back(
          {.request = {.request = RequestId(first_request(FrontId(front)).value() + i + 1),
                       .model = model_on(device, number % 2),
                       .prompt_tokens = 500,
                       .max_tokens = 500},
           .age = std::chrono::seconds(1),
           .device = device_of(device / kDevicesOfAHost, device % kDevicesOfAHost),
           .epoch = worker_epoch(1, 1)});
    }
  }
  const Instant began = steady_now();
  bed.tell(core::Settled{.settled = false});
  bed.tell(all);
  for (std::uint64_t device = 0; device < kHosts * kDevicesOfAHost; ++device) {
    core::DeviceReport report{.version = 1};
    report.usage.total = kPages;
    report.usage.free = kPages / 10;
    for (const std::uint64_t which : {0U, 1U}) {
      report.models.push_back({.model = model_on(device, which),
                               .residency = core::Residency::kServing,
                               .kv_pages = 1'000,
                               .complete = true});
    }
    std::ranges::sort(report.models, {}, &core::ResidentReport::model);
    bed.tell(
        core::WorkerFound{.device = device_of(device / kDevicesOfAHost, device % kDevicesOfAHost),
                          .epoch = worker_epoch(1, 1),
                          .report = std::move(report)});
  }
  for (const core::FrontState& front : fronts) {
    bed.tell(front);
  }
  bed.tell(core::Settled{});
  return steady_now() - began;
}

/// Each request that ends is followed by one that arrives.
std::vector<Duration> steps(Bed& bed) {
  std::vector<Duration> spans;
  for (std::uint64_t i = 0; i < kSteps; ++i) {
    const FrontId front(i % kGateways + 1);
    const std::uint64_t first = first_request(front).value();
    bed.now += std::chrono::milliseconds(1);
    const Instant began = steady_now();
    bed.tell(core::RequestFinished{.request = RequestId(first + i / kGateways + 1)});
    const Instant between = steady_now();
    bed.tell(core::RequestArrived{.request = RequestId(first + kRequests + i),
                                  .model = model_on(i, 0),
                                  .prompt_tokens = 500,
                                  .max_tokens = 500});
    spans.push_back(between - began);
    spans.push_back(steady_now() - between);
  }
  std::ranges::sort(spans);
  return spans;
}

}  // namespace

int main() {
  const core::Configure all = cluster();
  std::vector<Duration> adoptions;
  Bed last;
  for (int round = 0; round < 5; ++round) {
    last = Bed{};
    adoptions.push_back(adopt(last, all));
  }
  std::ranges::sort(adoptions);
  const std::vector<Duration> spans = steps(last);
  std::printf("%llu devices, %llu models, %llu requests adopted: median %.0f ms, most %.0f ms\n",
              static_cast<unsigned long long>(kHosts * kDevicesOfAHost),
              static_cast<unsigned long long>(kModels),
              static_cast<unsigned long long>(kRequests),
              milliseconds(adoptions[adoptions.size() / 2]),
              milliseconds(adoptions.back()));
  std::printf("a step then: p50 %.3f ms, p99 %.3f ms, most %.3f ms\n",
              milliseconds(spans[spans.size() / 2]),
              milliseconds(spans[spans.size() * 99 / 100]),
              milliseconds(spans.back()));
}
