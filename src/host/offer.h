#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "core/manager/events.h"
#include "core/messages.h"
#include "policy/admission.h"

namespace heddle::host {

/// A model, or one shard of it, as a host can hold it.
struct OfferedRank {
  std::uint64_t image_bytes = 0;
  std::map<DeviceId, policy::Footprint> footprints{};  ///< On each device that may hold it.
  friend bool operator==(const OfferedRank&, const OfferedRank&) = default;
};

/// A model as it is cut into stages, each of which any device may hold that has a footprint for it.
struct OfferedCut {
  std::vector<OfferedRank> stages{};
  friend bool operator==(const OfferedCut&, const OfferedCut&) = default;
};

/// Devices that can hold a sharded model together, by rank.
struct Block {
  std::vector<DeviceId> devices{};
  friend bool operator==(const Block&, const Block&) = default;
};

/// A further shard of a model, for people: "big[1]".
[[nodiscard]] inline std::string shard_name(const std::string& model, std::size_t rank) {
  return model + "[" + std::to_string(rank) + "]";
}

/// A stage of a model that is cut into so many, for people: "big (stage 2 of 4)".
[[nodiscard]] inline std::string stage_name(const std::string& model,
                                            std::size_t stage,
                                            std::size_t stages) {
  return model + " (stage " + std::to_string(stage + 1) + " of " + std::to_string(stages) + ")";
}

/// What a host can do about a configured model.
struct Offer {
  std::string name{};
  std::optional<Error> failure{};  ///< Why it can do nothing.
  /// Of what its files say, in hexadecimal; hosts with other digests have other models. Empty for
  /// an external engine.
  std::string digest{};
  std::int64_t written = 0;          ///< When the newest of the files was [ns]; only to compare.
  std::int64_t context = 0;          ///< Longest prompt and answer together [tokens].
  std::vector<OfferedRank> ranks{};  ///< One, where it is not sharded.
  /// Of a sharded model: those that can hold it.
  std::vector<Block> blocks{};
  /// Of an external engine: it can be suspended there with its requests.
  bool keeps_requests = false;
  /// Of an external engine: it is on all devices of its footprints at once.
  bool together = false;
  /// Of a model that several hosts may fetch together: how it is cut into 2, 3, ... stages.
  std::vector<OfferedCut> cuts{};
  bool fetched = false;  ///< The host lacks the files, and fetches them when it loads the model.
};

/// An offer that was taken up: what its name stands for on a host from now on.
struct Assignment {
  std::string name{};
  std::string digest{};  ///< As it was offered.
  /// By rank, then of the stages of its cuts, in the order of Offer::cuts. An id keeps its meaning
  /// for ever.
  std::vector<ModelId> ids{};
  friend bool operator==(const Assignment&, const Assignment&) = default;
};

/// Which hosts may have the files of a model.
struct Holder {
  std::string model{};                   ///< Its name.
  std::vector<core::GroupHost> hosts{};  ///< The best first.
  friend bool operator==(const Holder&, const Holder&) = default;
};

/// What a host is.
struct HostFacts {
  std::string name{};                          ///< Empty where it is the only one.
  std::string isa{};                           ///< What its processor offers, as the kernels need.
  std::vector<core::ManagerDevice> devices{};  ///< Their ids are theirs for ever.
  core::GuestPeers guest_peers{};              ///< Among its devices.
  std::vector<Assignment> assigned{};          ///< What names stand for there already.
  std::uint64_t network = 0;     ///< At which models are fetched at most [bytes/s]; 0: not known.
  std::string build{};           ///< The version of the program.
  std::int64_t step_tokens = 0;  ///< Of one model in one step of its workers, at most.
};

}  // namespace heddle::host
