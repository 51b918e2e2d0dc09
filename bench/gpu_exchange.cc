// What an all-reduce takes between GPUs that reach each other's memory, by size: each rank sums all
// of it (one shot), or a part of it that the others take (two shots), or it goes through the host.
// Groups of 2, 4 and 8 GPUs, as many as there are. What HEDDLE_TUNE_ONE_SHOT_KIB should be is where
// the second becomes the faster one. Two ranks have no second way.
//
//   gpu_exchange          one GPU says so and ends with status 0
//   gpu_exchange small    sizes that the emulated driver gets through (its times mean nothing)
#include <algorithm>
#include <array>
#include <barrier>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "bench/gpu_report.h"
#include "collective/shared_collective.h"
#include "device/cuda/cuda_device.h"
#include "ops/exchange.h"
#include "rpc/link.h"
#include "worker/peer_ranks.h"

#include <sys/wait.h>
#include <unistd.h>

namespace heddle {
namespace {

using bench::must;

enum class Way : std::uint8_t { kOneShot, kTwoShots, kHost };
struct WayName {
  Way way;
  const char* name;
  const char* one_shot_kib;  ///< Of the environment.
};
constexpr std::array kWays = {WayName{Way::kOneShot, "one shot", "1048576"},
                              WayName{Way::kTwoShots, "two shots", "0"},
                              WayName{Way::kHost, "through the host", "0"}};

/// Of a child that found one GPU.
constexpr int kOneGpu = 77;

struct Plan {
  WayName way;
  std::vector<std::int64_t> kib;
  int rounds = 0;
  int each = 0;  ///< Exchanges that are timed together.
};

Plan plan_of(const WayName& way, bool small) {
  if (small) {
    return {.way = way, .kib = {16, 256}, .rounds = 2, .each = 2};
  }
  return {.way = way,
          .kib = {16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 16384, 65536},
          .rounds = 15,
          .each = way.way == Way::kHost ? 4 : 20};
}

using Devices = std::vector<std::unique_ptr<device::CudaDevice>>;

/// GPUs from the first one on that all reach each other.
Devices linked_devices() {
  Devices devices;
  while (devices.size() < ops::PeerArea::kRanksMax) {
    const int ordinal = static_cast<int>(devices.size());
    auto device = device::CudaDevice::create({.ordinal = ordinal, .bytes = 64U << 20U});
    const bool linked = device && std::ranges::all_of(devices, [&](const auto& other) {
                          return other->is_linked_to(ordinal);
                        });
    if (!linked) {
      if (ordinal == 0) {
        must(std::move(device));
      }
      break;
    }
    devices.push_back(std::move(*device));
  }
  return devices;
}

/// What each of `ranks` ranks has of the others.
std::vector<worker::RankLinks> links_of(const std::shared_ptr<collective::SharedArea>& area) {
  const auto ranks = static_cast<std::size_t>(area->ranks());
  std::vector<worker::RankLinks> links(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    links[rank].gpu = static_cast<int>(rank);
    links[rank].rank = static_cast<std::int64_t>(rank);
    links[rank].sockets.resize(ranks);
    links[rank].area = area;
  }
  for (std::size_t a = 0; a < ranks; ++a) {
    for (std::size_t b = a + 1; b < ranks; ++b) {
      auto pair = must(rpc::packet_pair());
      links[a].sockets[b] = std::move(pair.first);
      links[b].sockets[a] = std::move(pair.second);
    }
  }
  return links;
}

/// A rank of a group, in a thread of its own.
class Rank {
 public:
  Rank(device::CudaDevice& device, const worker::RankLinks& links, const Plan& plan)
      : plan_(plan),
        stream_(must(device.create_stream())),
        collective_(links.area, links.rank),
        data_(must(device.allocate(device::Place::kDevice, bytes_of(plan.kib.back())))) {
    if (plan.way.way != Way::kHost) {
      peers_ = must(worker::PeerRanks::meet(device, links, std::chrono::seconds(30)));
    }
  }

  /// The middle of what an exchange of so many KiB takes [us], all ranks having begun together.
  double microseconds(std::int64_t kib, std::barrier<>& together) {
    std::vector<double> found;
    for (int round = 0; round <= plan_.rounds; ++round) {
      together.arrive_and_wait();
      const auto began = std::chrono::steady_clock::now();
      for (int i = 0; i < plan_.each; ++i) {
        enqueue(kib);
      }
      must(stream_->synchronize());
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
      if (round > 0) {  // The first one loads kernels.
        found.push_back(took.count() * 1e6 / plan_.each);
      }
    }
    return bench::median(std::move(found));
  }

 private:
  static std::size_t bytes_of(std::int64_t kib) { return static_cast<std::size_t>(kib) << 10U; }

  void enqueue(std::int64_t kib) {
    constexpr std::int64_t kColumns = 4096;
    ops::OpContext context{.stream = *stream_, .kernels = *ops::kernels_for(device::Kind::kCuda)};
    ops::all_reduce(context,
                    {.group = &collective_,
                     .data = ops::matrix_of(
                         reinterpret_cast<float*>(data_.data()), (kib << 8U) / kColumns, kColumns),
                     .peers = peers_ == nullptr ? nullptr : &peers_->area()});
  }

  const Plan& plan_;
  std::unique_ptr<device::Stream> stream_;
  collective::SharedCollective collective_;
  device::Buffer data_;
  std::unique_ptr<worker::PeerRanks> peers_{};
};

void measure(const Devices& devices, std::int64_t ranks, const Plan& plan) {
  const bench::Report report("exchange");
  const auto area = must(collective::SharedArea::create(ranks));
  const std::vector<worker::RankLinks> links = links_of(area);
  std::barrier<> together(ranks);
  std::vector<std::thread> threads;
  for (std::size_t at = 0; at < links.size(); ++at) {
    threads.emplace_back([&, at] {
      Rank rank(*devices[at], links[at], plan);
      for (const std::int64_t kib : plan.kib) {
        const double us = rank.microseconds(kib, together);
        if (at == 0) {
          report.row("all-reduce of " + std::to_string(kib) + " KiB, " + std::to_string(ranks) +
                         " ranks, " + plan.way.name,
                     {{"us", us}, {"gb_s", static_cast<double>(kib) * 1024e-3 / us}});
        }
      }
      together.arrive_and_wait();  // Nobody goes before all are through.
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

/// In a process of its own, as a process reads its tunables once.
int run(const Plan& plan) {
  ::setenv("HEDDLE_TUNE_ONE_SHOT_KIB", plan.way.one_shot_kib, 1);  // NOLINT(concurrency-mt-unsafe)
  const Devices devices = linked_devices();
  if (devices.size() < 2) {
    bench::Report("exchange").skip("all-reduce", "one GPU, or none that it reaches");
    return kOneGpu;
  }
  for (const std::int64_t ranks : {2, 4, 8}) {
    const bool same = ranks == 2 && plan.way.way == Way::kTwoShots;
    if (ranks <= std::ssize(devices) && !same) {
      measure(devices, ranks, plan);
    }
  }
  return 0;
}

int run_all(bool small) {
  for (const WayName& way : kWays) {
    const pid_t child = ::fork();
    if (child == 0) {
      const int status = run(plan_of(way, small));
      std::fflush(nullptr);
      std::_Exit(status);
    }
    int status = 0;
    if (child < 0 || ::waitpid(child, &status, 0) != child || !WIFEXITED(status)) {
      return 1;
    }
    if (WEXITSTATUS(status) != 0) {
      return WEXITSTATUS(status) == kOneGpu ? 0 : WEXITSTATUS(status);
    }
  }
  return 0;
}

}  // namespace
}  // namespace heddle

int main(int count, char** arguments) {
  return heddle::run_all(count > 1 && std::string_view(arguments[1]) == "small");
}
