#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "api/error.h"
#include "api/responses.h"
#include "base/rng.h"
#include "base/time.h"
#include "config/config.h"
#include "config/path_patterns.h"
#include "core/serving.h"
#include "gateway/adapter_calls.h"
#include "gateway/batch_runner.h"
#include "gateway/catalog.h"
#include "gateway/client_watch.h"
#include "gateway/device_history.h"
#include "gateway/gateway_metrics.h"
#include "gateway/grammar_trials.h"
#include "gateway/http_exchange.h"
#include "gateway/model_names.h"
#include "gateway/peers.h"
#include "gateway/quotas.h"
#include "gateway/request_traces.h"
#include "gateway/response_store.h"
#include "gateway/running_request.h"
#include "gateway/task.h"
#include "gateway/text_pool.h"
#include "gateway/tracer.h"
#include "gateway/upstream.h"
#include "gateway/usage_log.h"

namespace heddle::gateway {

/// What the handlers share. Coroutines hold it, so it may outlive the gateway; `serving` is null
/// from then on. Loop thread.
struct Context {
  boost::asio::io_context& loop;
  core::Serving* serving;
  TextPool& pool;
  GrammarTrials& grammars;
  Catalog catalog;
  Peers peers{};
  ModelNames names{};
  config::PathPatterns ignored_paths{};  ///< Below /upstream/MODEL, that start no engine.
  bool list_aliases = false;
  RequestTraces traces;
  GatewayMetrics metrics;
  config::Limits limits;
  std::string version;
  std::string fingerprint;    ///< Of this process: equal seeds give equal answers within it.
  Duration comment_interval;  ///< Between comments in a stream that waits.
  std::size_t backlog_max;    ///< Tokens that may wait for a slow client.
  Rng rng;
  std::function<Instant()> now;
  std::int64_t started_s;  ///< Seconds since 1970.
  bool draining = false;
  std::uint64_t last_request = 0;
  std::unique_ptr<UpstreamPool> upstream;  ///< To external engines.
  bool keys_asked = false;                 ///< Whether clients have to show a key of ours.
  RunningRequests live{};
  ClientWatch clients{};
  ResponseStore responses{ResponseStore::Limits{}};
  Quotas quotas{};
  UsageLog usage{};
  std::unique_ptr<BatchRunner> batches{};  ///< Null: there are none here.
  AdapterCalls adapters{};
  std::map<DeviceId, std::string> devices{};  ///< Names; see device_name().
  std::unique_ptr<Tracer> tracer{};           ///< Null: requests are not traced.
  DeviceHistory device_history{};             ///< For the page.
  std::string openapi{};                      ///< The document of what is answered here.

  /// Today, for `usage`.
  [[nodiscard]] static std::int64_t usage_day();
};

/// Milliseconds since 1970.
[[nodiscard]] std::int64_t wall_clock_ms();
/// Names of the devices by id.
[[nodiscard]] std::map<DeviceId, std::string> device_names(const core::Serving& serving);
/// Where a model is: "cpu0"; of a sharded one, by rank, "cpu0+cpu1"; empty: nowhere.
[[nodiscard]] std::string places_of(const core::ModelStatus& model,
                                    const std::map<DeviceId, std::string>& names);
/// The name of one of them; empty for none. They are asked for once, as they stay what they are
/// while the server runs.
[[nodiscard]] std::string device_name(Context& context, std::optional<DeviceId> device);

/// Enters what a request has used, whatever way it ended.
void account_for(Context& context,
                 const Asker& asker,
                 const std::string& model,
                 const api::Usage& used);

/// What happened to a request, with names.
[[nodiscard]] std::vector<TraceIncident> name_incidents(
    Context& context, const std::vector<core::Incident>& incidents);

/// Answers with an error, its status and headers.
Task<void> respond_error(HttpExchange& http, api::ApiError error);
/// Answers with JSON.
Task<void> respond_json(HttpExchange& http, std::string json);

}  // namespace heddle::gateway
