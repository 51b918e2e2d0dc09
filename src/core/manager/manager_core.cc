#include "core/manager/manager_core.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "core/manager/catalog.h"
#include "core/manager/client_events.h"
#include "core/manager/external_engines.h"
#include "core/manager/pages.h"
#include "core/manager/parts.h"
#include "core/manager/passes/passes.h"
#include "core/manager/status.h"
#include "core/manager/value.h"
#include "core/manager/worker_events.h"
#include "core/manager/worker_lives.h"

namespace heddle::core {
namespace manager {

/// Periods between looking for moves.
constexpr std::int64_t kBalance = 10;

/// Whether it is of requests and operators, which cannot be judged before models and devices are
/// known.
bool of_requests(const ManagerEvent& event) {
  if (const auto* said = std::get_if<WorkerSaid>(&event)) {
    return std::holds_alternative<RequestReturned>(said->report) ||
           std::holds_alternative<RequestFailed>(said->report);
  }
  return std::holds_alternative<RequestArrived>(event) ||
         std::holds_alternative<RequestFinished>(event) ||
         std::holds_alternative<RequestCancelled>(event) ||
         std::holds_alternative<RequestUnanswered>(event) ||
         std::holds_alternative<FrontState>(event) || std::holds_alternative<PlaceLost>(event) ||
         std::holds_alternative<AdminLoad>(event) || std::holds_alternative<AdminUnload>(event);
}

/// The parts of the core and the order in which they act: an event changes what is known, then
/// every pass looks at all of it once.
class Core {
 public:
  void step(Instant now, const ManagerEvent& event, std::vector<ManagerCommand>& commands) {
    HEDDLE_CHECK(now >= state_.now);
    state_.now = now;
    fetches_.advance();
    out_.open(commands);
    if (!state_.settled && of_requests(event)) {
      early_.push_back(event);
    } else {
      hear_now(event);
    }
    if (state_.settled) {
      schedule();
    }
    out_.close();
  }

  [[nodiscard]] const State& state() const { return state_; }
  [[nodiscard]] const PlaceSearch& search() const { return search_; }

 private:
  void hear_now(const ManagerEvent& event) {
    std::visit([this](const auto& concrete) { on(concrete); }, event);
  }
  template <class Event>
  void on(const Event& event) {
    hear(parts_, event);
  }
  void on(const Configure& configure) {
    catalog_.configure(configure);
    fetches_.configure(configure);
  }
  void on(const LoadRemembered& remembered) { demand_.remember(remembered); }
  void on(const ImageState& image) {
    fetches_.heard(image);
    catalog_.image(image);
  }
  void on(const GuestState& guests) { guests_.heard(guests); }
  void on(const GuestPeers& peers) { guests_.heard(peers); }
  void on(const EngineSaid& said) { engines_.hear(parts_, said); }
  void on(const EngineKv& said) { engines_.hear(parts_, said); }
  void on(const RequestUnanswered& unanswered) { engines_.hear(parts_, unanswered); }
  void on(const HostLost& lost) {
    engines_.hear(parts_, lost);
    fetches_.lose(lost.host);
    hear(parts_, lost);
  }
  void on(const FrontState& front) {
    hear(parts_, front);
    engines_.count_frozen();
  }
  void on(const DrainManager& drain) { state_.drain_deadline = drain.deadline; }
  void on(const WorkerSaid& said) {
    if (const auto* stepped = std::get_if<SteppedBack>(&said.report)) {
      std::erase_if(formed_, [&](const GroupFormed& formed) {
        return formed.device == said.device && formed.model == stepped->model;
      });
    }
    hear(parts_, said);
  }
  /// All its shards may not have been heard of yet: they are on several hosts.
  void on(const GroupFormed& formed) {
    if (state_.settled) {
      hear(parts_, formed);
    } else {
      formed_.push_back(formed);
    }
  }
  void on(const Settled& settled) {
    for (const GroupFormed& formed :
         settled.settled ? std::exchange(formed_, {}) : std::vector<GroupFormed>{}) {
      catalog_.know(formed);
      hear(parts_, formed);
    }
    state_.settled = settled.settled;
    for (const ManagerEvent& event :
         state_.settled ? std::exchange(early_, {}) : std::vector<ManagerEvent>{}) {
      hear_now(event);
    }
  }
  void on(const Tick& /*tick*/) {}

  void schedule();
  void look_ahead();
  void shut_down();

  State state_{};
  Outbox out_{state_};
  Catalog catalog_{state_};
  Demand demand_{state_, out_};
  RequestQueues queues_{state_, out_, demand_};
  Tickets tickets_{state_, out_};
  LoadAttempts attempts_{state_, queues_, tickets_};
  Devices devices_{state_};
  GuestLoans guests_{state_, out_};
  Fetches fetches_{state_};
  Residency residency_{state_, out_, queues_, demand_, guests_, fetches_};
  KvLimits kv_limits_{state_, out_};
  Shortages shortages_{state_};
  Loads loads_{state_, queues_, residency_};
  DrainPlans plans_{state_, out_, residency_, loads_, shortages_};
  Claims claims_{state_, out_, queues_, residency_, loads_, plans_};
  ExternalEngines engines_{state_};
  PlaceSearch search_{state_};
  Reservations reservations_{state_, out_};
  Parts parts_{.state = state_,
               .out = out_,
               .catalog = catalog_,
               .demand = demand_,
               .queues = queues_,
               .tickets = tickets_,
               .attempts = attempts_,
               .devices = devices_,
               .guests = guests_,
               .fetches = fetches_,
               .residency = residency_,
               .kv_limits = kv_limits_,
               .shortages = shortages_,
               .loads = loads_,
               .plans = plans_,
               .claims = claims_,
               .search = search_,
               .reservations = reservations_};
  std::vector<ManagerEvent> early_{};  ///< Heard before it was known what there is.
  std::vector<GroupFormed> formed_{};  ///< Likewise.
  bool drained_ = false;
  Instant plan_at_{};  ///< The next look ahead.
  Instant balance_at_{};
};

void Core::schedule() {
  expire(parts_);
  unload(parts_);
  unload_doubles(parts_);
  catalog_.forget_removed();
  unload_cramped(parts_);
  leave(parts_);
  tend_groups(parts_);
  consolidate(parts_);
  follow(parts_);
  release(parts_);
  plans_.advance();
  dispatch(parts_);
  tickets_.answer();  // Before another model takes the place of one that has just come.
  claims_.advance();
  place(parts_);
  attach(parts_);
  recall(parts_);
  weave(parts_);
  share_kv(parts_);
  lend(parts_);
  finish_moves(parts_);
  look_ahead();
  shut_down();
}

/// What is decided by the clock rather than for a request that waits. Looks once a period while
/// there is anything to look at, else at the end of the window.
void Core::look_ahead() {
  const PlannerOptions& planner = state_.options.planner;
  if (state_.drain_deadline || (!planner.prewarm && !planner.pressure && !planner.replicas)) {
    return;
  }
  if (state_.now >= plan_at_) {
    // Late by a little, it keeps its beat.
    plan_at_ = std::max(plan_at_ + planner.period, state_.now + planner.period / 2);
    loads_.expire();
    loads_.looks();
    demand_.turn_window();
    fit_shares(parts_);
    if (planner.replicas) {
      spread(parts_);
      scale(parts_);
      overtake(parts_);
    }
    if (planner.pressure && state_.now >= balance_at_) {
      balance_at_ = state_.now + kBalance * planner.period;
      balance(parts_);
    }
    if (planner.prewarm) {
      prewarm(parts_);
    }
  }
  if (!state_.requests.empty() || loads_.unfinished()) {
    out_.wake_by(plan_at_);
  } else if (planner.prewarm) {
    // From then on each period: which load is short enough to wait changes.
    out_.wake_by(std::max(plan_at_, planner.calendar.start_of(state_.window + 1) - lead(state_)));
  }
}

/// Once the server shuts down: says when no request is left, which at the deadline is made so.
void Core::shut_down() {
  if (!state_.drain_deadline || drained_) {
    return;
  }
  if (state_.now >= *state_.drain_deadline) {
    while (!state_.requests.empty()) {
      queues_.fail(state_.requests.begin()->first,
                   {Code::kUnavailable, "the server shut down before the request ended"});
    }
  }
  if (state_.requests.empty()) {
    drained_ = true;
    out_.act(Drained{});
    return;
  }
  out_.wake_by(*state_.drain_deadline);
}

}  // namespace manager

class ManagerCore::Impl : public manager::Core {};

ManagerCore::ManagerCore() : impl_(std::make_unique<Impl>()) {}
ManagerCore::~ManagerCore() = default;
ManagerCore::ManagerCore(ManagerCore&&) noexcept = default;
ManagerCore& ManagerCore::operator=(ManagerCore&&) noexcept = default;

void ManagerCore::step(Instant now,
                       const ManagerEvent& event,
                       std::vector<ManagerCommand>& commands) {
  impl_->step(now, event, commands);
}

std::vector<ModelStatus> ManagerCore::models() const {
  return manager::model_statuses(impl_->state());
}

std::vector<DeviceStatus> ManagerCore::devices() const {
  return manager::device_statuses(impl_->state());
}

std::int64_t ManagerCore::tokens_max(ModelId model) const {
  return manager::tokens_max(impl_->state(), model);
}

std::optional<Instant> ManagerCore::waits_since(ModelId model) const {
  return manager::waits_since(impl_->state(), model);
}

void ManagerCore::check_invariants() const {
  manager::check_invariants(impl_->state());
  impl_->search().check();
}

}  // namespace heddle::core
