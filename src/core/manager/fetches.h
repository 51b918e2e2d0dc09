#pragma once

#include "core/manager/state.h"

namespace heddle::core::manager {

/// What hosts fetch of models over their networks, from the load that begins it until the host has
/// all files (HydraServe, Eq. 3 and 4): the sole writer of State::networks.
class Fetches {
 public:
  explicit Fetches(State& state) : state_(state) {}

  /// Takes in what hosts' networks carry; what is under way goes on at the new rate.
  void configure(const Configure& configure);
  /// Time goes by, to State::now.
  void advance();
  /// The model is loaded there. Of no effect where the host has its files, or fetches them already.
  void begin(HostId host, ModelId model);
  /// So much of the image is there: believed where the estimate is far off.
  void heard(const ImageState& image);
  /// Nothing is fetched of it there any more.
  void end(HostId host, ModelId model);
  /// The host is gone, and what it fetched with it.
  void lose(HostId host);

 private:
  void count_busy(HostId host);

  State& state_;
  std::set<HostId> busy_{};  ///< Whose networks fetch something.
};

}  // namespace heddle::core::manager
