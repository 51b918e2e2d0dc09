#pragma once

#include <cstdint>
#include <optional>

#include "base/rng.h"
#include "base/time.h"

namespace heddle::twin {

/// By how much things may take longer than was measured: each time by as much as the seed says.
struct Lateness {
  Duration hop{};      ///< A message to a worker, or from it.
  Duration start{};    ///< Of a worker.
  Duration exit{};     ///< Until the agent hears of a death.
  Duration read{};     ///< A part of an image.
  Duration map{};      ///< Whatever a mapper does at once.
  Duration copy{};     ///< What a link copies at once.
  Duration step{};     ///< What an engine computes at once.
  Duration grammar{};  ///< To compile.
};

/// What goes wrong in a host. By default nothing does, and all takes as long as was measured.
struct FaultPlan {
  std::uint64_t seed = 0;
  Lateness late{};
  int deaths = 0;             ///< Of workers. One in four hangs first.
  Duration deaths_within{};   ///< They die before this.
  int read_failures = 0;      ///< So many of the first reads fail, at their second part.
  int open_failures = 0;      ///< So many models cannot be opened, a third of the first ones.
  bool stuck_graphs = false;  ///< Now and then the pages of CUDA graphs cannot be had again.
  // Within the same time as workers die:
  int manager_deaths = 0;  ///< Another takes over after a while, which knows nothing.
  int manager_cuts = 0;    ///< Manager and host do not hear each other for a while.
  int gateway_cuts = 0;    ///< Gateway and host lose their connection.
  Duration away{};         ///< How long that takes at most.
  // Of a cluster, within the same time; these happen on any way between two of its processes:
  int host_deaths = 0;   ///< With all their workers. They come again, and know nothing.
  int cuts = 0;          ///< Nothing passes for a while.
  int one_way_cuts = 0;  ///< In one direction.
  int resets = 0;        ///< One end loses its connection, and has another at once.
  /// The first manager dies when it has heard so many events.
  std::optional<std::uint64_t> manager_dies_after{};
};

/// Why a worker that hangs is ended.
inline constexpr const char* kHangs = "it hangs";

/// Says of each thing that happens in a host whether it goes wrong, as the plan has it. One thread.
class Faults {
 public:
  explicit Faults(const FaultPlan& plan) : plan_(plan), rng_(plan.seed) {}

  [[nodiscard]] const Lateness& late() const { return plan_.late; }
  [[nodiscard]] Duration away() const { return plan_.away; }
  /// A time up to this, and always 0 where that is 0.
  Duration some(Duration most) {
    return most == Duration{} ? most
                              : Duration(static_cast<Duration::rep>(
                                    below(static_cast<std::uint64_t>(most.count()) + 1)));
  }
  /// Uniform in [0, bound).
  std::uint64_t below(std::uint64_t bound) { return rng_.below(bound); }

  /// A read that has come to its second part.
  bool read_fails() { return plan_.read_failures > 0 && plan_.read_failures-- > 0; }
  bool open_fails() {
    return plan_.open_failures > 0 && below(3) == 0 && plan_.open_failures-- > 0;
  }
  bool graphs_stick() { return plan_.stuck_graphs && below(8) == 0; }

 private:
  FaultPlan plan_;
  Rng rng_;
};

}  // namespace heddle::twin
