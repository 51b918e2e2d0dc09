#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/metrics.h"
#include "base/result.h"
#include "base/rng.h"
#include "base/time.h"
#include "config/config.h"
#include "gateway/http_exchange.h"
#include "gateway/request_span.h"
#include "trace/exporter.h"

namespace heddle::gateway {

/// Has requests be parts of traces, and sends what is told of them to a collector. Loop thread.
class Tracer {
 public:
  /// What is told of this process.
  struct Self {
    std::string version{};  ///< Of the program.
    std::string machine{};  ///< Its name.
  };
  /// `config` names a collector. `metrics` outlives it. kUnavailable where its thread cannot be
  /// started.
  static Result<std::unique_ptr<Tracer>> start(const config::TracingConfig& config,
                                               const Self& self,
                                               Rng rng,
                                               Metrics& metrics);

  /// Of later requests whose clients do not say, this part is traced.
  void set_sample(double sample) { sample_ = sample; }

  /// A request has come, for `route`.
  [[nodiscard]] std::shared_ptr<RequestSpan> begin(const HttpRequest& request,
                                                   std::string_view route,
                                                   Instant now);
  /// It has been answered.
  void end(const RequestSpan& request, int status, Instant now);

  /// As trace::Exporter has it.
  void flush(Duration patience, std::function<void()> done) {
    exporter_->flush(patience, std::move(done));
  }

 private:
  Tracer(std::unique_ptr<trace::Exporter> exporter, double sample, Rng rng)
      : exporter_(std::move(exporter)), sample_(sample), rng_(rng) {}

  std::unique_ptr<trace::Exporter> exporter_;
  double sample_;
  Rng rng_;
};

}  // namespace heddle::gateway
