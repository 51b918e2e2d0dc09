#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "policy/preemption.h"

namespace heddle::sim {

using ReservationId = Id<struct ReservationIdTag>;

/// Pages on a set of devices, to be had all at once or not at all.
struct Reservation {
  ReservationId id{};
  ModelId model{};
  std::vector<policy::DevicePages> pages{};  ///< Each device once.
  /// How long it will be held, if that is known; unknown ones count as held for ever.
  std::optional<Duration> lasts{};
};

enum class ReservationState : std::uint8_t {
  kPending,  ///< Waits.
  kGranted,  ///< Its pages count as taken from now on, before anything is loaded into them.
  kUsed,     ///< It is loaded.
};

/// Who may bring an engine in next (SwapServeLLM section 3.4): reservations in order of arrival;
/// one that must wait lets later ones pass only where that cannot delay it (EASY backfill):
///   - on devices that it does not want, or
///   - if they end before it can start, or
///   - if there is room for both when it can start.
/// Every reservation becomes the head in its turn, so none starves. State as a value; the scoped
/// handles that release when they die belong to whoever acts on it.
class Reservations {
 public:
  /// `capacity`: the pages of each device. `margin_percent` of it is never reserved: an engine
  /// comes back a little larger than it went.
  Reservations(std::span<const policy::DevicePages> capacity, std::int64_t margin_percent);

  /// Whether it could ever be granted; if not, it is to be refused at configuration.
  [[nodiscard]] bool possible(const Reservation& reservation) const;

  /// Queues a reservation that is possible; its id is new.
  void ask(Reservation reservation);

  /// Grants what can be granted now, in order of arrival. O(pending * (granted + devices)).
  std::vector<ReservationId> grant(Instant now);

  void set_used(ReservationId id);  ///< Of a granted one.
  void release(ReservationId id);   ///< In any state; what waits may be granted then.
  /// Pages that are free on the device by measurement. Fewer than the books say are somebody
  /// unknown's until measured again; more change nothing.
  void measure(DeviceId device, std::int64_t free_pages);

  [[nodiscard]] std::optional<ReservationState> state(ReservationId id) const;
  /// The reservation that waits for longest.
  [[nodiscard]] std::optional<ReservationId> head() const;
  /// What a pending reservation lacks now: what choose_swap_victims has to free.
  [[nodiscard]] std::vector<policy::DevicePages> missing(ReservationId id) const;
  [[nodiscard]] std::int64_t free_pages(DeviceId device) const;

 private:
  struct Holder {
    Reservation reservation{};
    ReservationState state = ReservationState::kGranted;
    std::optional<Instant> ends{};
  };
  struct Device {
    std::int64_t capacity = 0;
    std::int64_t usable = 0;  ///< Capacity less the margin.
    std::int64_t taken = 0;
    std::int64_t unknown = 0;  ///< Taken by somebody that the books do not have.
  };
  using Free = std::map<DeviceId, std::int64_t>;

  [[nodiscard]] const Device& device(DeviceId id) const;
  [[nodiscard]] Free free_now() const;
  [[nodiscard]] std::optional<std::pair<Instant, Free>> start_of(const Reservation& head) const;
  void hold(Reservation reservation, Instant now);

  std::map<DeviceId, Device> devices_;
  std::vector<Reservation> pending_;  // In order of arrival.
  std::map<ReservationId, Holder> holders_;
};

}  // namespace heddle::sim
