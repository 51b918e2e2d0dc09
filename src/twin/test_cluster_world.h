#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <typeinfo>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "twin/cluster.h"
#include "twin/test_models.h"
#include "twin/test_setup.h"
#include "twin/test_world_options.h"

#include <cxxabi.h>

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
  /// of one.
  void run() {
    for (int happenings = 0; !over() && cluster_.advance(); ++happenings) {
      HEDDLE_CHECK(happenings < 1'000'000);
    }
    if (!over() || std::getenv("DBG")) {
      debug();
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

 public:
  void debug() const {
    for (const Request& r : requests()) {
      if (r.end == Request::End::kNone) {
        std::fprintf(stderr,
                     "request model=%llu dispatched=%d dev=%llx tokens=%lld/%lld held=%d\n",
                     (unsigned long long)r.ask.model.value(),
                     r.dispatched,
                     (unsigned long long)r.device.value(),
                     (long long)r.tokens(),
                     (long long)r.most,
                     r.held);
      }
    }
    for (const auto& leader : cluster_.leaders()) {
      for (const auto& step : leader->record()) {
        if (const auto* d = std::get_if<core::WorkerDown>(&step.event)) {
          std::fprintf(stderr,
                       "%8.3f term %llu DOWN %llx epoch %llx killed %d\n",
                       to_seconds(step.at.time_since_epoch()) * 1e3,
                       (unsigned long long)leader->term(),
                       (unsigned long long)d->device.value(),
                       (unsigned long long)d->epoch.value(),
                       d->killed);
        }
        if (const auto* d = std::get_if<core::PlaceLost>(&step.event)) {
          std::fprintf(stderr,
                       "%8.3f term %llu PLACELOST %llx epoch %llx n=%zu adv=%zu\n",
                       to_seconds(step.at.time_since_epoch()) * 1e3,
                       (unsigned long long)leader->term(),
                       (unsigned long long)d->device.value(),
                       (unsigned long long)d->epoch.value(),
                       d->requests.size(),
                       d->advanced.size());
        }
        if (const auto* d = std::get_if<core::HostLost>(&step.event)) {
          std::fprintf(stderr,
                       "%8.3f term %llu HOSTLOST %llx\n",
                       to_seconds(step.at.time_since_epoch()) * 1e3,
                       (unsigned long long)leader->term(),
                       (unsigned long long)d->host.value());
        }
        if (const auto* d = std::get_if<core::GroupFormed>(&step.event)) {
          std::fprintf(stderr,
                       "%8.3f term %llu FORMED %llx m%llu\n",
                       to_seconds(step.at.time_since_epoch()) * 1e3,
                       (unsigned long long)leader->term(),
                       (unsigned long long)d->device.value(),
                       (unsigned long long)d->model.value());
        }
        for (const auto& c : step.commands) {
          if (const auto* d = std::get_if<core::Decision>(&c)) {
            std::fprintf(stderr,
                         "%8.3f term %llu m%llu %llx %s\n",
                         to_seconds(step.at.time_since_epoch()) * 1e3,
                         (unsigned long long)leader->term(),
                         (unsigned long long)d->model.value(),
                         (unsigned long long)(d->device ? d->device->value() : 0),
                         d->why.c_str());
          }
        }
      }
    }
    for (const auto& d : cluster_.devices()) {
      std::fprintf(stderr, "device %llx up=%d\n", (unsigned long long)d.id.value(), d.up);
    }
    for (const auto& [id, node] : cluster_.hosts()) {
      for (const auto& w : node->host().lives()) {
        std::fprintf(
            stderr, "worker %llx alive %d\n", (unsigned long long)w->device().value(), w->alive());
        const auto& rec = w->record();
        for (std::size_t i = rec.size() > 6000 ? rec.size() - 60 : 0; i < rec.size(); ++i) {
          std::string line;
          const auto short_name = [](const char* n) {
            int st;
            char* d = abi::__cxa_demangle(n, nullptr, nullptr, &st);
            std::string s(d ? d : n);
            std::free(d);
            return s.substr(s.rfind(':') + 1);
          };
          if (const auto* m = std::get_if<core::WorkerMessage>(&rec[i].event)) {
            std::visit([&](const auto& e) { line += short_name(typeid(e).name()); }, *m);
          } else {
            std::visit([&](const auto& e) { line += short_name(typeid(e).name()); }, rec[i].event);
          }
          line += " ->";
          for (const auto& c : rec[i].commands) {
            if (const auto* r = std::get_if<core::Report>(&c)) {
              std::visit([&](const auto& e) { line += " !" + short_name(typeid(e).name()); },
                         r->report);
            } else {
              std::visit([&](const auto& e) { line += " " + short_name(typeid(e).name()); }, c);
            }
          }
          std::fprintf(stderr,
                       "   %8.3f %s\n",
                       to_seconds(rec[i].at.time_since_epoch()) * 1e3,
                       line.c_str());
        }
      }
    }
    std::fprintf(stderr,
                 "agenda %zu quiet %d\n",
                 const_cast<Cluster&>(cluster_).agenda().size(),
                 cluster_.quiet());
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
