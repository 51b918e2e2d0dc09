#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "base/time.h"

namespace heddle::policy {

/// What an operator asks of a model's answers; what is absent is derived.
struct WantedObjectives {
  std::optional<Duration> ttft{};  ///< From a request's arrival to its first token; > 0.
  std::optional<Duration> tpot{};  ///< From one token to the next, on average; > 0.
  friend bool operator==(const WantedObjectives&, const WantedObjectives&) = default;
};

/// What the requests of a model are to get.
struct Objectives {
  Duration ttft{};
  Duration tpot{};
  friend bool operator==(const Objectives&, const Objectives&) = default;
};

/// Objectives are so many times the warm figures, as HydraServe sets its own.
/// first).
inline constexpr std::int64_t kTtftSlack = 5;
inline constexpr std::int64_t kTpotSlack = 2;
/// Until something was measured.
inline constexpr Objectives kUnmeasured{.ttft = std::chrono::seconds(10),
                                        .tpot = std::chrono::milliseconds(200)};

/// How fast a model answers when it is warm and has its device to itself: averages of what was
/// measured (exponentially weighted, 1/8 to the newest). A value: copy it, compare it.
class WarmFigures {
 public:
  /// An answer that nobody disturbed. `tpot`: nullopt for one of a single token.
  void observe(Duration ttft, std::optional<Duration> tpot);

  /// What is wanted, else so many times what was measured, else kUnmeasured.
  [[nodiscard]] Objectives objectives(const WantedObjectives& wanted) const;
  /// What was measured; nullopt: nothing yet.
  [[nodiscard]] std::optional<Duration> ttft() const { return ttft_; }
  [[nodiscard]] std::optional<Duration> tpot() const { return tpot_; }

  friend bool operator==(const WarmFigures&, const WarmFigures&) = default;

 private:
  std::optional<Duration> ttft_{};
  std::optional<Duration> tpot_{};
};

}  // namespace heddle::policy
