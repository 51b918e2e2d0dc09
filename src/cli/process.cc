#include "cli/process.h"

#include <csignal>
#include <optional>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/descriptor_limit.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/units.h"
#include "cli/last_resort.h"
#include "cli/terminal.h"

namespace heddle::cli {

namespace asio = boost::asio;

namespace {

/// Beyond the patience: until what has not ended is ended, for clients and engines to take their
/// leave; and until nobody is waited for.
constexpr Duration kParting = std::chrono::milliseconds(400);
constexpr Duration kLastResort = std::chrono::milliseconds(900);

/// What signals do to a service. Loop thread.
class Watch {
 public:
  /// `last_resort` outlives it: the end of the service may be what hangs.
  Watch(asio::io_context& loop, Duration patience, LastResort& last_resort)
      : loop_(loop), patience_(patience), signals_(loop), last_resort_(last_resort), timer_(loop) {}

  Result<void> begin(Service& service) {
    service_ = &service;
    for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
      boost::system::error_code failure;
      signals_.add(signal, failure);
      if (failure) {
        return Error{.code = Code::kUnavailable, .message = "watch signals: " + failure.message()};
      }
    }
    wait();
    return {};
  }

 private:
  void wait() {
    signals_.async_wait([this](const boost::system::error_code& stopped, int signal) {
      if (stopped) {
        return;
      }
      if (signal == SIGHUP) {
        service_->reload();
      } else if (ending_) {
        log::warning("ends at once, as it was told twice");
        loop_.stop();
        return;
      } else {
        end();
      }
      wait();
    });
  }

  /// Lets what runs end, until the deadline. Then all that is left is ended at once, whatever it
  /// waits for.
  void end() {
    ending_ = true;
    last_resort_.arm(patience_ + kLastResort);
    timer_.expires_after(patience_ + kParting);
    timer_.async_wait([this](const boost::system::error_code& stopped) {
      if (!stopped) {
        log::warning("ends at once, as not all has ended in time");
        loop_.stop();
      }
    });
    log::info("shutting down; a second signal ends at once",
              {{"patience", format_duration(patience_)}});
    service_->end(patience_, [this] {
      signals_.cancel();
      timer_.cancel();
      loop_.stop();
    });
  }

  asio::io_context& loop_;
  Duration patience_;
  asio::signal_set signals_;
  LastResort& last_resort_;
  asio::steady_timer timer_;
  Service* service_ = nullptr;
  bool ending_ = false;
};

}  // namespace

int run_process(const ProcessSetup& setup) {
  asio::io_context loop(1);
  LastResort last_resort;
  Watch watch(loop, setup.patience, last_resort);
  std::unique_ptr<Service> service;
  const Result<void> started = with_threads(setup.what, [&]() -> Result<void> {
    if (const Result<void> possible = try_threads(setup.threads); !possible) {
      return possible.error();
    }
    log::configure({.level = setup.log_level, .format = setup.log_format});
    (void)raise_descriptor_limit();  // Where it is too low, whoever needs more says so.
    Result<std::unique_ptr<Service>> begun = setup.start(loop);
    if (!begun) {
      return begun.error();
    }
    service = std::move(*begun);
    return watch.begin(*service);
  });
  if (!started) {
    log::flush();
    return fail(started.error());
  }
  loop.run();
  log::flush();
  return 0;
}

}  // namespace heddle::cli
