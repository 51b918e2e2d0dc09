#include "policy/reservations.h"

namespace heddle::policy {

bool may_pass(const Reservation& reservation, const Passer& passer, Instant now) {
  const bool older = passer.since < reservation.since;
  const bool room_for_both = passer.left_pages >= reservation.pages;
  const bool in_time =
      now < reservation.since + kNobodyPasses && passer.gone && *passer.gone <= reservation.from;
  return older || room_for_both || in_time;
}

}  // namespace heddle::policy
