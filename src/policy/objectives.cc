#include "policy/objectives.h"

#include <algorithm>

namespace heddle::policy {
namespace {

constexpr std::int64_t kNewestPart = 8;

void take_in(std::optional<Duration>& average, Duration measured) {
  measured = std::max(measured, Duration{1});
  average = average ? *average + (measured - *average) / kNewestPart : measured;
}

Duration choose(const std::optional<Duration>& wanted,
                const std::optional<Duration>& measured,
                std::int64_t slack,
                Duration unmeasured) {
  if (wanted) {
    return *wanted;
  }
  return measured ? *measured * slack : unmeasured;
}

}  // namespace

void WarmFigures::observe(Duration ttft, std::optional<Duration> tpot) {
  take_in(ttft_, ttft);
  if (tpot) {
    take_in(tpot_, *tpot);
  }
}

Objectives WarmFigures::objectives(const WantedObjectives& wanted) const {
  return {.ttft = choose(wanted.ttft, ttft_, kTtftSlack, kUnmeasured.ttft),
          .tpot = choose(wanted.tpot, tpot_, kTpotSlack, kUnmeasured.tpot)};
}

}  // namespace heddle::policy
