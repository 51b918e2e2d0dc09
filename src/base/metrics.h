#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace prometheus {
class Counter;
class Histogram;
}  // namespace prometheus

namespace heddle {

/// Label names and values of one time series, such as {{"model_name", "adder"}}.
using Labels = std::map<std::string, std::string>;

/// The metrics of one process, in Prometheus' data model. Any thread. Names and labels that break
/// Prometheus' rules are bugs and CHECK-fail.
class Metrics {
 public:
  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  /// Adds to a counter, which starts at 0 and only grows; `delta` >= 0.
  void add(const std::string& name,
           const std::string& help,
           const Labels& labels,
           double delta = 1);
  /// Sets a gauge.
  void set(const std::string& name, const std::string& help, const Labels& labels, double value);
  /// Puts a value into a histogram with these upper bounds (ascending; +Inf is implied). The first
  /// call for a name fixes its bounds.
  void observe(const std::string& name,
               const std::string& help,
               const Labels& labels,
               const std::vector<double>& bounds,
               double value);

  /// Series that were found once, for paths on which finding them by name each time takes too long.
  /// Good until they are forgotten, or the object ends; empty until they are assigned.
  class Counter {
   public:
    void add(double delta = 1);
    explicit operator bool() const { return series_ != nullptr; }

   private:
    friend class Metrics;
    prometheus::Counter* series_ = nullptr;
  };
  class Histogram {
   public:
    void observe(double value);
    explicit operator bool() const { return series_ != nullptr; }

   private:
    friend class Metrics;
    prometheus::Histogram* series_ = nullptr;
  };
  /// What add() and observe() would use; from now on it is exposed.
  [[nodiscard]] Counter counter(const std::string& name,
                                const std::string& help,
                                const Labels& labels);
  [[nodiscard]] Histogram histogram(const std::string& name,
                                    const std::string& help,
                                    const Labels& labels,
                                    const std::vector<double>& bounds);

  /// Called at the start of every expose(), to publish numbers that others keep: hot paths count
  /// for themselves and are read here.
  void on_scrape(std::function<void(Metrics&)> publish);

  /// All series in the text format, version 0.0.4.
  [[nodiscard]] std::string expose();

  /// Forgets every series that carries this label, such as those of a removed model.
  void forget(const std::string& label, const std::string& value);
  /// Forgets the gauge of this name with exactly these labels, if there is one: for those that tell
  /// something in their labels.
  void forget_gauge(const std::string& name, const Labels& labels);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Bounds for latencies in seconds, from 1 ms to 10 minutes: those of vLLM's histograms of time to
/// first token with finer steps below, so that its dashboards carry over.
[[nodiscard]] const std::vector<double>& latency_bounds();

}  // namespace heddle
