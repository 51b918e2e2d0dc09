#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/metrics.h"
#include "base/result.h"
#include "base/time.h"
#include "batches/book.h"
#include "config/config.h"
#include "core/serving.h"
#include "gateway/adapter_calls.h"
#include "gateway/model_text.h"
#include "gateway/usage_log.h"
#include "net/carried_connection.h"
#include "sandbox/sandbox.h"

namespace boost::asio {
class io_context;
}

namespace heddle::gateway {

class Quotas;
using namespace std::chrono_literals;

/// The OpenAI-compatible HTTP server in front of a core::Serving. Everything but templates and
/// tokenising happens on the one loop that it is given. Loop thread.
class Gateway {
 public:
  /// Reads the text part of a model; called on other threads. The usual one finds the directory of
  /// the model and calls open_model_text.
  using TextOpener =
      std::function<Result<std::shared_ptr<const ModelText>>(const config::ModelConfig& model)>;

  struct Options {
    TextOpener open_text{};                      ///< Must be set.
    std::shared_ptr<sandbox::Trier> grammars{};  ///< Tries each before it is used; must be set.
    /// Looks up a model's context length without reading its text part, on a thread of the pool; 0:
    /// not known. Empty: it is known once the text part is read.
    std::function<std::int64_t(const config::ModelConfig&)> read_context{};
    std::string version{};           ///< Of this program.
    std::function<Instant()> now{};  ///< The clock that `serving` has too; steady_now when empty.
    RequestId requests_after{};      ///< Requests are numbered after this.
    /// Keeps what keys have used, beyond this process: called on a thread of the pool every minute,
    /// and at the end on the loop, with what is new. Empty: it is kept by none.
    std::function<void(const std::vector<spec::KeyUsage>&)> keep_usage{};
    std::vector<spec::KeyUsage> past_usage{};  ///< That was kept earlier.
    /// Keeps files and batches of clients; null: there are none of these.
    std::shared_ptr<batches::Book> batches{};
    AdapterCalls adapters{};  ///< Empty: none come or go while this runs.
    net::Carry carry{};       ///< To external engines of other hosts; empty: there are none.
    std::size_t text_threads = 2;
    Duration comment_interval = 5s;   ///< Between comments in a stream that waits.
    std::size_t backlog_max = 16384;  ///< Tokens that may wait for a slow client.
    std::size_t traces_max = 1000;    ///< Requests whose trace is kept.
  };

  /// Begins to accept on `config.listen`, with TLS where it says so. `loop`, `serving` and
  /// `metrics` outlive the gateway. kUnavailable, naming it, when an address cannot be had;
  /// kInvalidArgument for a certificate that cannot be used.
  static Result<std::unique_ptr<Gateway>> start(boost::asio::io_context& loop,
                                                core::Serving& serving,
                                                Metrics& metrics,
                                                const config::Config& config,
                                                Options options);
  /// Closes everything at once.
  ~Gateway();
  Gateway(const Gateway&) = delete;
  Gateway& operator=(const Gateway&) = delete;

  /// The addresses that were bound, with the ports that were chosen.
  [[nodiscard]] const std::vector<config::ListenAddress>& addresses() const;

  /// Those of keys, for gateways that share them.
  [[nodiscard]] Quotas& quotas();

  /// Takes over models, keys, limits of requests and the certificate; to be called after `serving`
  /// has them. Requests that run are left alone, as are the addresses.
  void reload(const config::Config& config);

  /// Stops accepting; lets requests that run end, but after `patience` fails them with an error,
  /// and half a second later closes what is left. `drained` is called once, when the last
  /// connection has closed and the last spans of traces were sent, for which there is a second.
  void drain(Duration patience, std::function<void()> drained);

 private:
  class Impl;
  explicit Gateway(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::gateway
