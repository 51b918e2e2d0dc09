#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "twin/cluster.h"
#include "twin/test_models.h"
#include "twin/test_setup.h"
#include "twin/test_world_options.h"

/// For tests: hosts of a cluster between random clients and an operator, with random delays and
/// faults from a seed. Everything is checked with HEDDLE_CHECK, so that a seed that fails can be
/// run again under a debugger.
namespace heddle::twin::test {

class ClusterWorld {
 public:
  explicit ClusterWorld(const WorldOptions& options)
      : options_(options),
        rng_(options.seed),
        models_(options_, rng_),
        cluster_(setup_of(options_, models_), fault_plan(options_, rng_)) {
    for (int i = 0; i < options_.requests; ++i) {
      some_time(options_.arrivals, [this] { arrive(); });
    }
    for (int i = 0; options_.admin && i < 12; ++i) {
      some_time(options_.arrivals, [this] { operate(); });
    }
    for (int i = 0; options_.reloads && i < 4; ++i) {
      some_time(options_.arrivals, [this] {
        models_.replace_any();
        cluster_.configure(models_.manager(), models_.host());
      });
    }
  }

  /// Runs until nothing is left to happen; then every request has ended, and no worker has anything
  /// of one. `look` is called after each thing that happens.
  void run(const std::function<void(Cluster&)>& look = {}) {
    for (int happenings = 0; !over() && cluster_.advance(); ++happenings) {
      HEDDLE_CHECK(happenings < 1'000'000);
      if (look) {
        look(cluster_);
      }
    }
    HEDDLE_CHECK(over());
    for (const auto& [id, node] : cluster_.hosts()) {
      HEDDLE_CHECK(!node->host().alive() || node->requests() == 0);
      for (const std::shared_ptr<Worker>& worker : node->host().lives()) {
        HEDDLE_CHECK(!worker->alive() || worker->sequences() == 0);
      }
    }
    for (const core::ModelStatus& model : cluster_.leaders().back()->core().models()) {
      HEDDLE_CHECK(model.requests_running == 0 && model.requests_waiting == 0);
    }
  }

  [[nodiscard]] Instant now() const { return cluster_.now(); }
  [[nodiscard]] const Cluster& cluster() const { return cluster_; }
  /// Of all gateways.
  [[nodiscard]] std::vector<Request> requests() const {
    std::vector<Request> all;
    for (const auto& [id, gateway] : cluster_.gateways()) {
      const std::vector<Request>& own = gateway->gateway().requests();
      all.insert(all.end(), own.begin(), own.end());
    }
    return all;
  }

 private:
  /// Nothing is left to happen but that managers look ahead.
  [[nodiscard]] bool over() const {
    if (!cluster_.quiet() || !cluster_.all_ended() || !cluster_.leaders().back()->alive()) {
      return false;
    }
    std::int64_t answers = 0;
    for (const auto& [id, gateway] : cluster_.gateways()) {
      answers += gateway->answers();
    }
    const std::vector<core::DeviceStatus> devices = cluster_.leaders().back()->core().devices();
    return answers == operated_ &&
           std::ssize(devices) == static_cast<std::int64_t>(options_.hosts) * options_.devices &&
           std::ranges::all_of(devices, [](const core::DeviceStatus& device) { return device.up; });
  }

  void some_time(Duration within, std::function<void()> what) {
    cluster_.agenda().after(kBegin + Duration(between(rng_, 0, within.count())), std::move(what));
  }

  GatewayNode& any_gateway() {
    return cluster_.gateway(FrontId(1 + rng_.below(options_.gateways)));
  }

  void arrive() {
    const Ask ask = draw_ask(options_, models_, rng_);
    GatewayNode& gateway = any_gateway();
    const RequestId id = gateway.ask(ask);
    if (options_.cancels && rng_.below(4) == 0) {
      some_time(50ms, [&gateway, id] { gateway.cancel(id); });
    }
    if (options_.cancels && rng_.below(6) == 0) {
      some_time(50ms, [&gateway, id] { gateway.finish_choice(id, 0); });
    }
  }

  void operate() {
    const ModelId model = models_.any();
    ++operated_;
    any_gateway().operate(rng_.below(2) == 0, model);
  }

  /// Until all have linked, if nothing goes wrong.
  static constexpr Duration kBegin = 8ms;

  WorldOptions options_;
  Rng rng_;
  DrawnModels models_;
  std::int64_t operated_ = 0;
  Cluster cluster_;
};

}  // namespace heddle::twin::test
