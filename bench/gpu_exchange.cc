// What an all-reduce takes between GPUs that reach each other's memory, by size: each rank sums all
// of it (one shot), or a part of it that the others take (two shots), or it goes through the host.
// Groups of 2, 4 and 8 GPUs, as many as there are. What HEDDLE_TUNE_ONE_SHOT_KIB should be is where
// the second becomes the faster one. Two ranks have no second way.
//
//   gpu_exchange          one GPU says so and ends with status 0
//   gpu_exchange small    sizes that the emulated driver gets through (its times mean nothing)
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
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

std::unique_ptr<device::CudaDevice> device_of(std::int64_t ordinal) {
  return must(
      device::CudaDevice::create({.ordinal = static_cast<int>(ordinal), .bytes = 64U << 20U}));
}

/// What a process that counted GPUs ends with, less their number: others failed.
constexpr int kCounted = 100;

/// How many GPUs from the first one on all reach each other, and kCounted.
int count_linked() {
  std::vector<std::unique_ptr<device::CudaDevice>> devices;
  devices.push_back(device_of(0));
  while (devices.size() < ops::PeerArea::kRanksMax) {
    const int ordinal = static_cast<int>(devices.size());
    auto device = device::CudaDevice::create({.ordinal = ordinal, .bytes = 64U << 20U});
    const bool linked = device && std::ranges::all_of(devices, [&](const auto& other) {
                          return other->is_linked_to(ordinal);
                        });
    if (!linked) {
      break;
    }
    devices.push_back(std::move(*device));
  }
  return kCounted + static_cast<int>(devices.size());
}

/// What each of `ranks` ranks has of the others.
std::vector<worker::RankLinks> links_of(const std::shared_ptr<collective::SharedArea>& area) {
  const auto ranks = static_cast<std::size_t>(area->ranks());
  std::vector<worker::RankLinks> links(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    links[rank].gpu = static_cast<int>(rank);
    links[rank].rank = static_cast<std::int64_t>(rank);
    links[rank].sockets.resize(ranks);
    links[rank].area = must(collective::SharedArea::attach(area->fd()));  // Each pins its own.
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

/// A rank of a group, in a process of its own.
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
  double microseconds(std::int64_t kib) {
    std::vector<double> found;
    for (int round = 0; round <= plan_.rounds; ++round) {
      meet();
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

  void meet() { must(collective_.agree(0)); }

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

/// What a rank's process does: the first one reports.
void measure(const worker::RankLinks& links, const Plan& plan) {
  const bench::Report report("exchange");
  const auto device = device_of(links.rank);
  Rank rank(*device, links, plan);
  for (const std::int64_t kib : plan.kib) {
    const double us = rank.microseconds(kib);
    if (links.rank == 0) {
      report.row("all-reduce of " + std::to_string(kib) + " KiB, " +
                     std::to_string(links.sockets.size()) + " ranks, " + plan.way.name,
                 {{"us", us}, {"gb_s", static_cast<double>(kib) * 1024e-3 / us}});
    }
  }
  rank.meet();  // Nobody goes before all are through.
}

/// Runs `work` in a process of its own, which ends with what it returns.
template <class Work>
pid_t start(const Work& work) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    const int status = work();
    std::fflush(nullptr);
    std::_Exit(status);
  }
  return child;
}

/// The status that a process ended with; -1 where it was killed.
int status_of(pid_t child) {
  int status = 0;
  return child > 0 && ::waitpid(child, &status, 0) == child && WIFEXITED(status)
             ? WEXITSTATUS(status)
             : -1;
}

/// All ranks of a group, each a process, as a process has its GPU and reads its tunables once.
bool run_group(std::int64_t ranks, const Plan& plan) {
  const auto area = must(collective::SharedArea::create(ranks));
  std::vector<pid_t> children;
  for (const worker::RankLinks& links : links_of(area)) {
    children.push_back(start([&] {
      // NOLINTNEXTLINE(concurrency-mt-unsafe)
      ::setenv("HEDDLE_TUNE_ONE_SHOT_KIB", plan.way.one_shot_kib, 1);
      measure(links, plan);
      return 0;
    }));
  }
  bool good = true;
  for (const pid_t child : children) {
    if (status_of(child) != 0) {
      area->abandon();  // So that the others end.
      good = false;
    }
  }
  return good;
}

int run_all(bool small) {
  const int gpus = status_of(start(count_linked)) - kCounted;
  if (gpus < 1) {
    return 1;  // It has said why.
  }
  if (gpus < 2) {
    bench::Report("exchange").skip("all-reduce", "one GPU, or none that it reaches");
    return 0;
  }
  bool good = true;
  for (const WayName& way : kWays) {
    for (const std::int64_t ranks : {2, 4, 8}) {
      const bool same = ranks == 2 && way.way == Way::kTwoShots;
      good = good && (ranks > gpus || same || run_group(ranks, plan_of(way, small)));
    }
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace heddle

int main(int count, char** arguments) {
  return heddle::run_all(count > 1 && std::string_view(arguments[1]) == "small");
}
