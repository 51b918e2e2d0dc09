#pragma once

#include "core/manager/catalog.h"
#include "core/manager/claims.h"
#include "core/manager/demand.h"
#include "core/manager/devices.h"
#include "core/manager/drain_plans.h"
#include "core/manager/fetches.h"
#include "core/manager/guest_loans.h"
#include "core/manager/kv_limits.h"
#include "core/manager/load_attempts.h"
#include "core/manager/loads.h"
#include "core/manager/outbox.h"
#include "core/manager/place_search.h"
#include "core/manager/request_queues.h"
#include "core/manager/reservations.h"
#include "core/manager/residency.h"
#include "core/manager/shortages.h"
#include "core/manager/state.h"
#include "core/manager/tickets.h"

namespace heddle::core::manager {

/// The parts of the manager's core, for whatever takes in events or decides: it reads `state`, and
/// changes that only through the part that writes it.
struct Parts {
  const State& state;
  Outbox& out;
  Catalog& catalog;
  Demand& demand;
  RequestQueues& queues;
  Tickets& tickets;
  LoadAttempts& attempts;
  Devices& devices;
  GuestLoans& guests;
  Fetches& fetches;
  Residency& residency;
  KvLimits& kv_limits;
  Shortages& shortages;
  Loads& loads;
  DrainPlans& plans;
  Claims& claims;
  PlaceSearch& search;
  Reservations& reservations;
};

}  // namespace heddle::core::manager
