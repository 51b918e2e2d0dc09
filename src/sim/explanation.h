#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "sim/request_row.h"
#include "sim/world.h"

namespace heddle::sim {

/// What happened to one request and around it, to tell a person why it took as long as it did:
/// which pages it waited for and who gave them, which load, over which link and shared with whom,
/// whose turn came first. Told of every action of a run; keeps only what the request may have met.
class Explanation {
 public:
  explicit Explanation(RequestId request) : request_(request) {}

  void acted(const World& world, const Observer::Act& act);
  void ended(const World& world, const RequestRow& row);

  /// Lines of text; `models` are names by id.
  [[nodiscard]] std::string tell(const std::vector<std::string>& models) const;

  /// A stretch of the request's wait, and what it was spent on.
  struct Part {
    Duration took{};
    std::string what{};   ///< A clause: "pages of GPU 3 were being freed ...".
    std::string brief{};  ///< The same in a few words, for the verdict.
  };
  /// The wait for the first token, in order and without gaps. Empty before ended().
  [[nodiscard]] std::vector<Part> parts(const std::vector<std::string>& models) const;

 private:
  /// The instance that the request was handed to, as it was then.
  struct Handed {
    Instant at{};
    std::vector<GpuId> gpus{};
    std::string host{};
    StartSpec spec{};
    Instant created{};
    std::optional<Instant> begun{};
    std::optional<Instant> filled{};
    Instant serving_since{};
    double bytes = 0;                ///< Of weights that were loaded, through each link of `hosts`.
    double link_rate = 0;            ///< [bytes/s]
    double others = 0;               ///< Requests in the engine already.
    Duration prefill{};              ///< Of its prompt, alone.
    std::vector<ModelId> sharing{};  ///< Whose loads used the same link meanwhile.
  };

  void hand(const World& world, const Observer::Act& act);
  [[nodiscard]] std::string weights_clause(const Handed& handed,
                                           Duration took,
                                           const std::vector<std::string>& models) const;
  [[nodiscard]] std::string pages_clause(const Handed& handed,
                                         const std::vector<std::string>& models) const;

  RequestId request_;
  std::optional<RequestRow> row_{};
  Duration slo_ttft_{};
  bool arrived_ = false;
  std::deque<Observer::Act> acts_{};
  std::deque<ReplicaId> loads_{};  ///< Begun lately.
  std::vector<Handed> handed_{};
};

}  // namespace heddle::sim
