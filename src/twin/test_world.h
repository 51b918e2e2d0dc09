#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <set>
#include <variant>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "twin/test_models.h"
#include "twin/test_setup.h"
#include "twin/test_world_options.h"
#include "twin/twin.h"

/// For tests: a host between random clients and an operator, with random delays and faults from a
/// seed. Everything is checked with HEDDLE_CHECK, so that a seed that fails can be run again under
/// a debugger.
namespace heddle::twin::test {

/// Of all that a core wanted, those that are a T.
template <class T, class Event, class Command>
std::vector<const T*> wanted(const CoreRecord<Event, Command>& record) {
  std::vector<const T*> all;
  for (const auto& step : record) {
    for (const Command& command : step.commands) {
      if (const T* found = std::get_if<T>(&command)) {
        all.push_back(found);
      }
    }
  }
  return all;
}

class World {
 public:
  explicit World(const WorldOptions& options)
      : options_(options),
        rng_(options.seed),
        models_(options_, rng_),
        twin_(setup_of(options_, models_), fault_plan(options_, rng_)) {
    for (int i = 0; i < options_.requests; ++i) {
      some_time(options_.arrivals, [this] { arrive(); });
    }
    for (int i = 0; options_.admin && i < 12; ++i) {
      some_time(options_.arrivals, [this] { operate(); });
    }
    for (int i = 0; options_.reloads && i < 4; ++i) {
      some_time(options_.arrivals, [this] {
        models_.replace_any();
        twin_.configure(models_.manager(), models_.host());
      });
    }
  }

  /// Runs until nothing is left to happen; then every request has ended. `look` is called after
  /// each thing that happens.
  void run(const std::function<void(Twin&)>& look = {}) {
    for (int happenings = 0; !over() && twin_.advance(); ++happenings) {
      HEDDLE_CHECK(happenings < 400'000);
      if (look) {
        look(twin_);
      }
    }
    HEDDLE_CHECK(over());
    std::set<core::TicketId> answered;
    for (const core::AdminDone* done : wanted<core::AdminDone>(twin_.manager_record())) {
      HEDDLE_CHECK(answered.insert(done->ticket).second);
    }
    HEDDLE_CHECK(std::ssize(answered) == operated_);
  }

  [[nodiscard]] const Twin& twin() const { return twin_; }
  [[nodiscard]] const std::vector<Request>& requests() const { return twin_.requests(); }
  [[nodiscard]] bool is_sharded(ModelId model) const { return models_.is_sharded(model); }
  [[nodiscard]] Instant now() const { return twin_.now(); }

 private:
  /// Nothing is left to happen but that the manager looks ahead.
  [[nodiscard]] bool over() const {
    const auto up = [](const core::DeviceStatus& device) { return device.up; };
    if (!twin_.quiet() || !twin_.all_ended() || twin_.admin_answers() != operated_) {
      return false;
    }
    const std::vector<core::DeviceStatus> devices = twin_.devices();
    return std::all_of(devices.begin(), devices.end(), up);
  }

  void some_time(Duration within, std::function<void()> what) {
    twin_.agenda().after(Duration(between(rng_, 0, within.count())), std::move(what));
  }

  void arrive() {
    const Ask ask = draw_ask(options_, models_, rng_);
    const RequestId id = twin_.ask(ask);
    if (options_.cancels && rng_.below(4) == 0) {
      some_time(50ms, [this, id] { twin_.cancel(id); });
    }
    if (options_.cancels && rng_.below(6) == 0) {
      some_time(50ms, [this, id] { twin_.finish_choice(id, 0); });
    }
  }

  void operate() {
    const ModelId model = models_.any();
    const core::TicketId ticket(static_cast<std::uint64_t>(++operated_));
    if (rng_.below(2) == 0) {
      twin_.tell(core::AdminLoad{.ticket = ticket, .model = model});
    } else {
      twin_.tell(core::AdminUnload{.ticket = ticket, .model = model});
    }
  }

  WorldOptions options_;
  Rng rng_;
  DrawnModels models_;
  std::int64_t operated_ = 0;
  Twin twin_;
};

}  // namespace heddle::twin::test
