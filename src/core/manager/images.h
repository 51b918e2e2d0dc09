#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/manager/state.h"

/// Where models' images come from on each host: its memory, its disk, or over its network.
namespace heddle::core::manager {

/// Of a host's network [bytes/s], where it is not known.
inline constexpr std::int64_t kNetworkRate = 125'000'000;

/// Of the model's files, what the host has yet to fetch before it can read them [bytes].
[[nodiscard]] std::uint64_t to_fetch(const ModelState& model, HostId host);

/// The fetch that a load there would begin: due when the first request that waits for the model
/// wants its first token, or in an hour where none does. There is something to fetch.
[[nodiscard]] policy::Fetch fetch_of(const State& state, ModelId model, HostId host);

/// As LoadOn::due_in has it.
[[nodiscard]] Duration due_in(const State& state, ModelId model);

/// Until a load there had the files, beside what the host fetches already; 0 where it has them.
[[nodiscard]] Duration fetch_time(const State& state, ModelId model, HostId host);

/// What a load takes longer from the host's disk than from its memory; as measured, else as the
/// bytes take at kLoadRate.
[[nodiscard]] Duration read_time(const ModelState& model);

/// Whether the host could begin to fetch the model now and make no first token late, neither of
/// this model nor of those that it fetches (HydraServe, Eq. 3). True where nothing is to be
/// fetched, or the host's network is not known.
[[nodiscard]] bool admits_fetch(const State& state, ModelId model, HostId host);

/// Hosts from whose caches a load there can fetch the model: those that have all of its files, at
/// most two, those first that fewer fetches under way come from, then by number. None where nothing
/// is to be fetched.
[[nodiscard]] std::vector<HostId> fetch_peers(const State& state, ModelId model, HostId host);

/// What hosts have of a model's image and of its files, for the choice between their devices.
class HostWeights {
 public:
  /// Of each host on which it could be, ascending; again is nothing new.
  void add(const State& state, ModelId model, HostId host);
  /// The first of those that have the image in memory soonest; one was added.
  [[nodiscard]] HostId soonest() const;
  /// As weigh_hosts, once all hosts were added.
  void weigh(policy::PlacementDevice& place) const;

 private:
  struct Host {
    HostId host{};
    Duration time{};  ///< Until the image is in its memory.
    bool admitted = false;
  };
  std::vector<Host> hosts_{};
  Duration first_ = Duration::max();
  bool any_admitted_ = false;
};

/// Says of places for the model how much later its host has the image in memory than the host that
/// has it first, and takes those out that would make fetches late, unless all would.
void weigh_hosts(const State& state, ModelId model, std::vector<policy::PlacementDevice>& places);

/// For people, what a load there fetches: "; fetches 1.20 GiB, 3.4 s by estimate, from the caches
/// of h2 and h3". Empty where it fetches nothing.
[[nodiscard]] std::string describe_fetch(const State& state, ModelId model, HostId host);

}  // namespace heddle::core::manager
