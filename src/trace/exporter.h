#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/http_address.h"
#include "base/metrics.h"
#include "base/result.h"
#include "base/time.h"
#include "trace/span.h"

namespace heddle::trace {

/// Sends spans to a collector by OTLP over HTTP, from a thread of its own. Whoever has spans never
/// waits for it: what finds no room, or is not taken in time, is lost and counted.
class Exporter {
 public:
  struct Options {
    HttpAddress collector{};  ///< Its base path is that which spans are posted to.
    std::vector<std::pair<std::string, std::string>> headers{};  ///< Of each request.
    Attributes resource{};                                       ///< What is told of this process.
    std::string version{};                                       ///< Of this program.
    std::size_t waiting_max = 8192;                              ///< Spans that may wait.
    std::size_t batch_max = 512;                                 ///< Spans in one request.
    Duration gather = std::chrono::seconds(1);      ///< From a first span to the request.
    Duration patience = std::chrono::seconds(10);   ///< With an answer.
    int tries = 6;                                  ///< For each batch.
    Duration first_wait = std::chrono::seconds(1);  ///< From the first try to the second.
  };

  /// What becomes of spans is counted in `metrics`, which outlives it. kUnavailable where no thread
  /// can be started.
  static Result<std::unique_ptr<Exporter>> start(Options options, Metrics& metrics);
  /// Gives up what has not been sent.
  ~Exporter();
  Exporter(const Exporter&) = delete;
  Exporter& operator=(const Exporter&) = delete;

  /// Has these sent, soon, or none of them where there is no room. Any thread.
  void add(std::vector<Span> spans);
  /// Sends what waits at once, each batch once, and gives up what has not been taken within
  /// `patience`. Then `done` is called, on the exporter's thread. To be called once, last.
  void flush(Duration patience, std::function<void()> done);

 private:
  class Impl;
  explicit Exporter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::trace
