#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/time.h"
#include "fetch/peer.h"
#include "fetch/source.h"

namespace heddle::fetch {

/// A source of which other hosts have the model in their caches. Ranges come from them in turn, and
/// from the source itself where none of them gives the range. What there is the source says, or a
/// peer where the source is away.
class PeerSource final : public Source {
 public:
  struct Setup {
    std::string model{};               ///< As it is given to pull().
    std::unique_ptr<Source> origin{};  ///< The source itself,
    std::unique_ptr<Source> lister{};  ///< and the same, which is given up sooner, for list().
    std::vector<std::shared_ptr<Peer>> peers{};
    std::function<Instant()> now{};
    /// A peer does not give what it was asked for. May be empty.
    std::function<void(const std::string& why)> on_failure{};
  };

  explicit PeerSource(Setup setup);

  [[nodiscard]] Result<Listing> list(const std::stop_token& stop) override;
  [[nodiscard]] Result<void> read(const Object& object,
                                  Range range,
                                  const Sink& sink,
                                  const std::stop_token& stop) override;
  void spoilt(const Object& object) override;

 private:
  /// What is known of a peer.
  struct Known {
    std::set<std::string> lacks{};  ///< Files that it refused.
    std::set<std::string> gave{};   ///< Of which it gave bytes.
    int failures = 0;
    Instant not_before{};  ///< It is asked again.
  };
  class Delivery;

  [[nodiscard]] std::optional<std::size_t> next_peer(const Object& object,
                                                     const std::set<std::size_t>& asked);
  void note(std::size_t peer, const Object& object, bool gave, const Result<void>& read);
  Result<void> read_origin(const Object& object,
                           Range range,
                           Delivery& delivery,
                           const std::stop_token& stop);

  const Setup setup_;
  std::mutex mutex_{};        // Guards all below.
  std::vector<Known> known_;  ///< By place in `peers`.
  std::size_t turn_ = 0;      ///< Whose turn it is.
};

}  // namespace heddle::fetch
