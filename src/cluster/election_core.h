#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "cluster/registry.h"
#include "cluster/watched_time.h"

namespace heddle::cluster {

/// How long things take. A leader that nobody hears of is followed `lease` after its last renewal
/// was seen; it has given up `lease - give_up` before that, which has to cover by how much clocks
/// run apart in one lease.
struct ElectionTimes {
  Duration renewal = std::chrono::milliseconds(150);  ///< Between renewals.
  Duration give_up = std::chrono::milliseconds(500);  ///< After the last renewal was sent.
  Duration lease = std::chrono::milliseconds(700);
  Duration tick = std::chrono::milliseconds(25);  ///< Between two ElectionCore::step().
};

/// Numbers of leadership. Each has one leader at most, and a later leader has a greater one.
using Term = std::uint64_t;

/// Content of the record that candidates compete for.
struct ElectionRecord {
  std::string name{};
  std::string address{};
  Term term = 0;
  std::uint64_t holder = 0;  ///< Of one life of the leader's process; 0: it has left.
  std::uint64_t beat = 0;    ///< Renewals in this term.
  friend bool operator==(const ElectionRecord&, const ElectionRecord&) = default;
};
[[nodiscard]] std::string write_election_record(const ElectionRecord& record);
/// kCorrupt where it is none.
[[nodiscard]] Result<ElectionRecord> parse_election_record(std::string_view text);

namespace election {

// What the core hears.
struct Tick {};
/// A put or removal that a watch told of; without record: it is gone. What cannot be read counts
/// as the record of a stranger in term 0.
struct Saw {
  std::optional<ElectionRecord> record{};
  Revision revision = 0;
};
/// The answer to Read.
struct ReadDone {
  bool reached = false;  ///< The registry answered; else the rest means nothing.
  std::optional<ElectionRecord> record{};
  Revision revision = 0;
};
/// The answer to Put.
struct PutDone {
  enum class Outcome : std::uint8_t { kPut, kRefused, kUnknown };
  Outcome outcome = Outcome::kUnknown;
  Revision revision = 0;  ///< Where it was put.
};
/// The watch may have missed something.
struct LostTrack {};
/// Somebody has spoken of a term.
struct HeardOf {
  Term term = 0;
};
/// No more leadership is wanted.
struct Stop {};
using Event = std::variant<Tick, Saw, ReadDone, PutDone, LostTrack, HeardOf, Stop>;

// What it wants done. At most one Read or Put is under way at a time.
struct Read {};
struct Put {
  Revision expected = 0;
  ElectionRecord record{};
};
struct Elected {
  Term term = 0;
};
enum class Why : std::uint8_t {
  kStopped,
  kSuperseded,  ///< There is a later term.
  kUnreached,   ///< No renewal got through in time. Perhaps nobody else leads.
};
struct Lost {
  Why why = Why::kStopped;
};
/// Who leads now: this one, another, or, with term 0, nobody that is known.
struct Leader {
  std::string name{};
  std::string address{};
  Term term = 0;
  friend bool operator==(const Leader&, const Leader&) = default;
};
using Command = std::variant<Read, Put, Elected, Lost, Leader>;

}  // namespace election

/// Decides who leads, by a record that the leader renews and the others watch. No instant of one
/// machine is compared with another's: a candidate takes over when it has itself watched for a
/// lease that nothing changed. The scheme is that of Kubernetes' client-go (tools/leaderelection).
///
/// Where a put's outcome is not known, the record is read again, and whoever finds itself in it
/// without knowing that it leads takes a term more.
class ElectionCore {
 public:
  /// @param self  Name, address and holder; the holder is like no other's.
  ElectionCore(ElectionTimes times, ElectionRecord self);

  void step(Instant now, const election::Event& event, std::vector<election::Command>& commands);

  /// The term in which this one leads at this time; nothing if it does not. Whoever acts as the
  /// leader asks before it does, as a process that was stopped knows nothing of the time.
  [[nodiscard]] std::optional<Term> leads(Instant now) const;
  /// It has stopped and left nothing behind.
  [[nodiscard]] bool over() const { return stopping_ && !busy_ && !left_behind_; }

 private:
  struct Leading {
    Term term;
    Instant until;
    Instant renew_at;
  };
  struct Sent {
    election::Put put;
    Instant at;
  };
  using Commands = std::vector<election::Command>;

  void hear(const election::Tick& event, Commands& commands);
  void hear(const election::Saw& event, Commands& commands);
  void hear(const election::ReadDone& event, Commands& commands);
  void hear(const election::PutDone& event, Commands& commands);
  void hear(const election::LostTrack& event, Commands& commands);
  void hear(const election::HeardOf& event, Commands& commands);
  void hear(const election::Stop& event, Commands& commands);

  void look(Commands& commands);
  void act(Commands& commands);
  void accept(const std::optional<ElectionRecord>& record, Revision revision, Commands& commands);
  void put(ElectionRecord record, Commands& commands);
  void lose(election::Why why, Commands& commands);
  void tell_leader(Commands& commands);
  [[nodiscard]] bool is_free() const;

  ElectionTimes times_;
  ElectionRecord self_;
  Instant now_{};  ///< Never goes back.
  WatchedTime time_{};

  bool known_ = false;  ///< What the record is.
  std::optional<ElectionRecord> record_{};
  Revision revision_ = 0;
  Duration changed_at_{};   ///< When the record last was seen to change, in watched time.
  bool went_back_ = false;  ///< To an earlier revision, since when it has not changed.
  Term highest_ = 0;        ///< Of all terms that were ever seen or heard of.

  bool busy_ = false;           ///< A Read or Put is under way.
  std::optional<Sent> sent_{};  ///< The Put.
  std::optional<Leading> leading_{};
  bool stopping_ = false;
  bool left_behind_ = false;  ///< The record may still name this one.
  election::Leader told_{};
};

}  // namespace heddle::cluster
