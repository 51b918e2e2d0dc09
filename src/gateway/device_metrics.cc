#include <map>
#include <string>

#include "gateway/gateway_metrics.h"

namespace heddle::gateway {

void GatewayMetrics::count_up_to(const std::string& name,
                                 const std::string& help,
                                 const Labels& labels,
                                 std::uint64_t total) {
  std::uint64_t& before = published_[{name, labels}];
  // A total that fell began anew, as when a model was removed and added.
  const std::uint64_t more = total >= before ? total - before : total;
  metrics_.add(name, help, labels, static_cast<double>(more));
  before = total;
}

void GatewayMetrics::publish_prefixes(const core::DeviceStatus& device,
                                      const std::map<ModelId, std::string>& models) {
  for (const core::PrefixCounts& counts : device.prefixes) {
    const auto model = models.find(counts.model);
    if (model == models.end()) {
      continue;  // It was removed.
    }
    const Labels labels{{"model_name", model->second}, {"device", device.name}};
    for (const char* name :
         {"heddle_prefix_cache_queried_tokens_total", "vllm:prefix_cache_queries_total"}) {
      count_up_to(name,
                  "Tokens of sequences for which a cached prefix was sought.",
                  labels,
                  counts.queried_tokens);
    }
    for (const char* name :
         {"heddle_prefix_cache_hit_tokens_total", "vllm:prefix_cache_hits_total"}) {
      count_up_to(
          name, "Of these, tokens of cached prefixes that were found.", labels, counts.hit_tokens);
    }
    count_up_to("heddle_kv_store_returned_tokens_total",
                "Of these, tokens whose KV the host had kept.",
                labels,
                counts.host_tokens);
  }
  for (std::size_t i = 0; i < ledger::kDropReasons; ++i) {
    const auto reason = static_cast<ledger::DropReason>(i);
    count_up_to("heddle_prefix_cache_evicted_pages_total",
                "Pages of cached prefixes taken back, by what for.",
                {{"device", device.name}, {"reason", std::string(ledger::name(reason))}},
                device.dropped_pages.at(i));
  }
}

void GatewayMetrics::publish_experts(const core::DeviceStatus& device,
                                     const std::map<ModelId, std::string>& models) {
  for (const core::ExpertStatus& status : device.experts) {
    const auto model = models.find(status.model);
    if (model == models.end()) {
      continue;  // It was removed.
    }
    const Labels labels{{"model_name", model->second}, {"device", device.name}};
    metrics_.set("heddle_experts_resident",
                 "Experts of the model that are in the device's memory.",
                 labels,
                 static_cast<double>(status.resident));
    count_up_to("heddle_expert_hits_total",
                "Times that a layer took an expert that was in the device's memory.",
                labels,
                status.hits);
    count_up_to("heddle_expert_misses_total",
                "Times that it took one that had to be fetched from the host.",
                labels,
                status.misses);
    count_up_to(
        "heddle_expert_fetched_bytes_total", "Bytes of those.", labels, status.fetched_bytes);
  }
}

}  // namespace heddle::gateway
