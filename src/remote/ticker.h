#pragma once

#include <functional>
#include <memory>

#include <boost/asio/any_io_executor.hpp>

#include "base/time.h"

namespace heddle::remote {

struct TickerOptions {
  Duration most = std::chrono::seconds(1);          ///< From one call to the next, at most.
  Duration least = std::chrono::milliseconds(100);  ///< And at least, however much changes.
};

/// When to say again what there is to see: once in a while, and soon after it has changed. Loop
/// thread.
class Ticker {
 public:
  /// Calls `act` on the loop, never from within a call, until it is destroyed; `act` may do that.
  Ticker(const boost::asio::any_io_executor& executor,
         std::function<void()> act,
         const TickerOptions& options = {});
  ~Ticker();
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;

  /// Something has changed.
  void soon();

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace heddle::remote
