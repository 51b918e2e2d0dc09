#include "base/metrics.h"

#include <mutex>
#include <utility>

#include "base/check.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

namespace heddle {
namespace {

/// The series of one metric name; T is a prometheus metric type.
template <class T>
struct Family {
  prometheus::Family<T>* family = nullptr;
  std::map<Labels, T*> series{};
};

template <class T>
void forget_in(std::map<std::string, Family<T>>& families,
               const std::string& label,
               const std::string& value) {
  for (auto& [name, family] : families) {
    for (auto it = family.series.begin(); it != family.series.end();) {
      const auto found = it->first.find(label);
      if (found != it->first.end() && found->second == value) {
        family.family->Remove(it->second);
        it = family.series.erase(it);
      } else {
        ++it;
      }
    }
  }
}

}  // namespace

class Metrics::Impl {
 public:
  template <class T, class Builder, class... Args>
  T& series(std::map<std::string, Family<T>>& families,
            Builder builder,
            const std::string& name,
            const std::string& help,
            const Labels& labels,
            const Args&... args) {
    Family<T>& family = families[name];
    if (family.family == nullptr) {
      family.family = &builder.Name(name).Help(help).Register(registry);
    }
    T*& metric = family.series[labels];
    if (metric == nullptr) {
      metric = &family.family->Add(labels, args...);
    }
    return *metric;
  }

  std::mutex mutex;
  prometheus::Registry registry;
  std::map<std::string, Family<prometheus::Counter>> counters;
  std::map<std::string, Family<prometheus::Gauge>> gauges;
  std::map<std::string, Family<prometheus::Histogram>> histograms;
  std::vector<std::function<void(Metrics&)>> publishers;
};

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {}
Metrics::~Metrics() = default;

void Metrics::add(const std::string& name,
                  const std::string& help,
                  const Labels& labels,
                  double delta) {
  counter(name, help, labels).add(delta);
}

void Metrics::set(const std::string& name,
                  const std::string& help,
                  const Labels& labels,
                  double value) {
  const std::lock_guard lock(impl_->mutex);
  impl_->series(impl_->gauges, prometheus::BuildGauge(), name, help, labels).Set(value);
}

void Metrics::observe(const std::string& name,
                      const std::string& help,
                      const Labels& labels,
                      const std::vector<double>& bounds,
                      double value) {
  histogram(name, help, labels, bounds).observe(value);
}

Metrics::Counter Metrics::counter(const std::string& name,
                                  const std::string& help,
                                  const Labels& labels) {
  const std::lock_guard lock(impl_->mutex);
  Counter found;
  found.series_ = &impl_->series(impl_->counters, prometheus::BuildCounter(), name, help, labels);
  return found;
}

Metrics::Histogram Metrics::histogram(const std::string& name,
                                      const std::string& help,
                                      const Labels& labels,
                                      const std::vector<double>& bounds) {
  const std::lock_guard lock(impl_->mutex);
  Histogram found;
  found.series_ =
      &impl_->series(impl_->histograms, prometheus::BuildHistogram(), name, help, labels, bounds);
  return found;
}

void Metrics::Counter::add(double delta) {
  HEDDLE_CHECK(delta >= 0);
  series_->Increment(delta);
}

void Metrics::Histogram::observe(double value) {
  series_->Observe(value);
}

void Metrics::on_scrape(std::function<void(Metrics&)> publish) {
  const std::lock_guard lock(impl_->mutex);
  impl_->publishers.push_back(std::move(publish));
}

std::string Metrics::expose() {
  std::vector<std::function<void(Metrics&)>> publishers;
  {
    const std::lock_guard lock(impl_->mutex);
    publishers = impl_->publishers;
  }
  for (const auto& publish : publishers) {
    publish(*this);
  }
  return prometheus::TextSerializer().Serialize(impl_->registry.Collect());
}

void Metrics::forget(const std::string& label, const std::string& value) {
  const std::lock_guard lock(impl_->mutex);
  forget_in(impl_->counters, label, value);
  forget_in(impl_->gauges, label, value);
  forget_in(impl_->histograms, label, value);
}

void Metrics::forget_gauge(const std::string& name, const Labels& labels) {
  const std::lock_guard lock(impl_->mutex);
  const auto family = impl_->gauges.find(name);
  if (family == impl_->gauges.end()) {
    return;
  }
  if (const auto found = family->second.series.find(labels); found != family->second.series.end()) {
    family->second.family->Remove(found->second);
    family->second.series.erase(found);
  }
}

const std::vector<double>& latency_bounds() {
  static const std::vector<double> kBounds = {0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08,
                                              0.1,   0.25,   0.5,   0.75, 1,    2.5,  5,    7.5,
                                              10,    20,     40,    80,   160,  320,  640};
  return kBounds;
}

}  // namespace heddle
