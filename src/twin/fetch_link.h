#pragma once

#include <cstdint>
#include <deque>
#include <functional>

#include "policy/link_shares.h"
#include "twin/agenda.h"
#include "twin/setup.h"

namespace heddle::twin {

/// A host's link to where models are fetched from, as agent::FetchLink shares it. One thread.
class FetchLink {
 public:
  using Member = policy::LinkShares::Member;

  /// `rate` in bytes/s; 0: as fast as it goes. `agenda` outlives it, and it outlives what it puts
  /// there.
  FetchLink(std::uint64_t rate, const FetchTimes& times, Agenda& agenda)
      : rate_(rate), times_(times), agenda_(agenda), shares_(rate) {}

  [[nodiscard]] Member join(policy::FetchUrgency urgency);
  /// What it waits for never comes.
  void leave(Member member);
  /// `then` is done when the member may ask for more.
  void ask(Member member, std::function<void()> then);
  /// `then` is done when so many bytes of the member's have passed.
  void take(Member member, std::uint64_t bytes, std::function<void()> then);

 private:
  struct Waiting {
    Member member{};
    std::uint64_t bytes = 0;
    Instant since{};
    std::function<void()> then{};
  };
  [[nodiscard]] bool goes_before(const Waiting& a, const Waiting& b) const;
  void pass_on();
  void pass_on_at(Instant when);

  std::uint64_t rate_;
  FetchTimes times_;
  Agenda& agenda_;
  policy::LinkShares shares_;
  std::deque<Waiting> waiting_{};  ///< Bytes, by when they came.
  Instant paid_{};                 ///< When what has passed so far is paid for.
  bool awaits_ = false;            ///< It looks again.
  std::uint64_t joined_ = 0;
};

}  // namespace heddle::twin
