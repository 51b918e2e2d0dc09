#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/metrics.h"
#include "core/serving.h"
#include "gateway/catalog.h"
#include "gateway/kv_use.h"
#include "gateway/request_traces.h"

namespace heddle::gateway {

/// What the gateway counts, under the names that dashboards know from vLLM where the meaning is the
/// same, and what it reads from the system behind when somebody scrapes. Loop thread.
class GatewayMetrics {
 public:
  explicit GatewayMetrics(Metrics& metrics) : metrics_(metrics) {}

  /// An HTTP request to `route` was answered.
  void answered(std::string_view route, int status);
  /// A step brought further tokens of a request, `gap` after the ones before.
  void token_gap(const std::string& model, Duration gap);
  /// A request to the system behind has ended. `reason` is stop, length, abort or error.
  void ended(const std::string& model, const TracePart& part, std::string_view reason);

  /// Forgets a model that was removed.
  void forget(const std::string& model) {
    of_model_.erase(model);
    kv_blocks_.erase(model);
    metrics_.forget("model_name", model);
  }

  /// Publishes models and devices as they are now.
  void publish(const core::ServingStatus& serving);
  /// Publishes how much KV the models could have, of those whose files the catalog has read.
  void publish_kv_blocks(const core::ServingStatus& serving, const Catalog& catalog);

  [[nodiscard]] std::string expose() { return metrics_.expose(); }

 private:
  /// Of one model, at 0 from when it is first told of; reasons are found as they come.
  struct ModelSeries {
    std::map<std::string, Metrics::Counter, std::less<>> ended{};  ///< By reason.
    Metrics::Counter prompt_tokens{};
    Metrics::Counter generation_tokens{};
    Metrics::Histogram token_gap{};
    Metrics::Histogram first_token{};
    Metrics::Histogram whole{};
    Metrics::Histogram queue{};
    Metrics::Histogram prefill{};
    Metrics::Histogram decode{};
    Metrics::Histogram per_token{};
    Metrics::Histogram prompt_size{};
    Metrics::Histogram answer_size{};
    Metrics::Histogram queue_phase{};
    Metrics::Histogram load_phase{};
    Metrics::Histogram prefill_phase{};
  };

  /// A model's series; whoever is not known yet gets them all, at 0.
  ModelSeries& of_model(const std::string& model);
  void count_up_to(const std::string& name,
                   const std::string& help,
                   const Labels& labels,
                   std::uint64_t total);
  void publish_model(const core::ModelStatus& model, const std::string& device);
  void publish_counts(const core::ModelStatus& model);
  void publish_kv_use(const std::vector<core::ModelStatus>& models,
                      const std::vector<core::DeviceStatus>& devices);
  void set_kv_blocks(const std::string& model, const KvBlocks& blocks);
  void publish_device(const core::DeviceStatus& device);
  void publish_hangs(const core::DeviceStatus& device);
  void publish_links(const core::DeviceStatus& device);
  void publish_kv_store(const core::DeviceStatus& device);
  void publish_prefixes(const core::DeviceStatus& device,
                        const std::map<ModelId, std::string>& models);
  void publish_experts(const core::DeviceStatus& device,
                       const std::map<ModelId, std::string>& models);
  void publish_engine(const core::EngineStatus& engine,
                      const std::string& model,
                      std::uint64_t page_bytes);
  void publish_pool(const std::string& device, const ledger::PoolUsage& usage);

  Metrics& metrics_;
  std::map<std::string, ModelSeries> of_model_{};
  std::map<std::string, std::map<int, Metrics::Counter>, std::less<>> answered_{};  ///< By route.
  /// What counters that others keep had reached when they were last published.
  std::map<std::pair<std::string, Labels>, std::uint64_t> published_{};
  std::map<std::string, KvBlocks> kv_blocks_{};  ///< As published, by model.
};

/// The name of a state as in metric labels and listings: "absent", "loading", "warm", "serving",
/// "draining".
[[nodiscard]] std::string_view residency_name(core::Residency residency);

}  // namespace heddle::gateway
