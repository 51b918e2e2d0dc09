#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include <boost/asio/io_context.hpp>

#include "core/serving.h"
#include "gateway/running_request.h"
#include "gateway/signal.h"

namespace heddle::gateway {

/// Collects what happens to a request that is forwarded to an engine until its coroutine comes to
/// look. What cannot wait for that, as the coroutine may be in an exchange with the engine,
/// interrupts. Loop thread.
class ExternalInbox final : public core::ExternalSink, public RunningRequest {
 public:
  explicit ExternalInbox(boost::asio::io_context& loop) : signal(loop) {}

  void on_waiting(Duration since) override {
    waiting_ = since;
    signal.notify();
  }
  void on_ready(const core::EngineRoute& route) override {
    route_ = route;
    signal.notify();
  }
  void on_lost(const Error& /*error*/) override {
    ++losses_;
    route_.reset();
    interrupt();
  }
  void on_error(const Error& error) override {
    over_ = true;
    fail(error);
  }
  void fail(Error error) override {
    if (!error_) {
      error_ = std::move(error);
    }
    interrupt();
  }

  /// Calls the coroutine away from what it waits for.
  void interrupt() {
    if (on_interrupt_) {
      on_interrupt_();
    }
    signal.notify();
  }
  /// `act` ends an exchange at once; a null one takes the former back.
  void on_interrupt(std::function<void()> act) { on_interrupt_ = std::move(act); }

  /// How long the engine had been starting or resuming when that was last told.
  [[nodiscard]] const std::optional<Duration>& waiting() const { return waiting_; }
  /// Whether the engine runs.
  [[nodiscard]] bool ready() const { return route_.has_value(); }
  /// Where; once for each on_ready.
  [[nodiscard]] core::EngineRoute take_route() { return *std::exchange(route_, {}); }
  /// How many engines died with the request.
  [[nodiscard]] std::uint64_t losses() const { return losses_; }
  /// Why the request failed, if it has.
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }
  /// Whether the system behind has done with it.
  [[nodiscard]] bool over() const { return over_; }

  /// Told of everything above.
  Signal signal;

 private:
  std::optional<Duration> waiting_{};
  std::optional<core::EngineRoute> route_{};
  std::optional<Error> error_{};
  std::uint64_t losses_ = 0;
  bool over_ = false;
  std::function<void()> on_interrupt_{};
};

}  // namespace heddle::gateway
