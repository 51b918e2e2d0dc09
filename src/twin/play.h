#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "base/check.h"
#include "base/time.h"
#include "twin/gateway.h"
#include "twin/setup.h"

namespace heddle::twin {

/// Sends all of `asks` (by time, counted from now on) to a Twin or a Cluster, and lets time go by
/// until the last answer has come; they are answered in the order of `asks`, in times counted
/// likewise. Every `interval` of virtual time `moment` is called with how much has gone by.
template <class Played>
std::vector<Answer> play(Played& played,
                         const Paths& paths,
                         const std::vector<Ask>& asks,
                         Duration interval,
                         const std::function<void(Duration)>& moment) {
  const Instant start = played.now();
  const std::size_t before = played.requests().size();
  for (const Ask& ask : asks) {
    played.agenda().at(start + ask.at.time_since_epoch() + paths.arrive,
                       [&played, &ask] { played.ask(ask); });
  }
  const auto over = [&] {
    return played.requests().size() == before + asks.size() && played.all_ended();
  };
  for (Instant next = start; !over();) {
    HEDDLE_CHECK(played.advance());
    for (; next <= played.now(); next += interval) {
      moment(next - start);
    }
  }
  moment(played.now() - start);
  const auto seen = [&](Instant at) { return Instant(at + paths.answer - start); };
  std::vector<Answer> answers;
  for (std::size_t i = before; i < played.requests().size(); ++i) {
    const Request& request = played.requests()[i];
    answers.push_back(
        {.last = seen(request.last), .tokens = request.tokens(), .error = request.error.message});
    if (answers.back().tokens > 0) {
      answers.back().first = seen(request.first);
    }
  }
  return answers;
}

/// Lets time go by until then, without requests.
template <class Played>
void rest(Played& played, Instant until) {
  if (until <= played.now()) {
    return;
  }
  bool over = false;
  played.agenda().at(until, [&over] { over = true; });
  while (!over) {
    HEDDLE_CHECK(played.advance());
  }
}

}  // namespace heddle::twin
