#include "gateway/gateway_metrics.h"

#include <algorithm>
#include <array>

#include "gateway/context.h"

namespace heddle::gateway {

namespace {

constexpr std::array kResidencies{core::Residency::kAbsent,
                                  core::Residency::kLoading,
                                  core::Residency::kWarm,
                                  core::Residency::kServing,
                                  core::Residency::kDraining};
/// With `device` of all models there, with `model_name` of a model wherever it is.
constexpr const char* kKvUsage = "Of the pages that KV could have, those that it has; 1 means all.";

}  // namespace

std::string_view residency_name(core::Residency residency) {
  switch (residency) {
    case core::Residency::kAbsent:
      return "absent";
    case core::Residency::kLoading:
      return "loading";
    case core::Residency::kWarm:
      return "warm";
    case core::Residency::kServing:
      return "serving";
    case core::Residency::kDraining:
      return "draining";
  }
  return "?";
}

void GatewayMetrics::answered(std::string_view route, int status) {
  auto by_status = answered_.find(route);
  if (by_status == answered_.end()) {
    by_status = answered_.try_emplace(std::string(route)).first;
  }
  Metrics::Counter& series = by_status->second[status];
  if (!series) {
    series = metrics_.counter("heddle_http_requests_total",
                              "HTTP requests answered.",
                              {{"route", by_status->first}, {"status", std::to_string(status)}});
  }
  series.add();
}

namespace {

/// As vLLM labels what it tells of a model. It numbers the engines of a process: here there is one.
Labels vllm_labels(const std::string& model) {
  return {{"model_name", model}, {"engine", "0"}};
}

/// Bounds of counts of tokens: 1, 2, 5, 10, ... to a million.
const std::vector<double>& token_bounds() {
  static const std::vector<double> bounds = [] {
    std::vector<double> all;
    for (double decade = 1; decade < 1e6; decade *= 10) {
      all.insert(all.end(), {decade, 2 * decade, 5 * decade});
    }
    all.push_back(1e6);
    return all;
  }();
  return bounds;
}

}  // namespace

GatewayMetrics::ModelSeries& GatewayMetrics::of_model(const std::string& model) {
  const auto [at, is_new] = of_model_.try_emplace(model);
  ModelSeries& series = at->second;
  if (!is_new) {
    return series;
  }
  const auto counter = [&](const char* name, const char* help) {
    return metrics_.counter(name, help, vllm_labels(model));
  };
  const auto histogram = [&](const char* name, const char* help) {
    return metrics_.histogram(name, help, vllm_labels(model), latency_bounds());
  };
  const auto phase = [&](const char* label) {
    return metrics_.histogram("heddle_time_to_first_token_phase_seconds",
                              "Time to first token, by what it was spent on.",
                              {{"model_name", model}, {"phase", label}},
                              latency_bounds());
  };
  series.prompt_tokens = counter("vllm:prompt_tokens_total", "Prompt tokens.");
  series.generation_tokens = counter("vllm:generation_tokens_total", "Generated tokens.");
  series.token_gap = histogram("vllm:inter_token_latency_seconds",
                               "Time between the steps that brought tokens of a request.");
  series.first_token = histogram("vllm:time_to_first_token_seconds", "Time to first token.");
  series.whole = histogram("vllm:e2e_request_latency_seconds", "From arrival to the last token.");
  series.queue = histogram("vllm:request_queue_time_seconds", "From arrival to a worker.");
  series.prefill =
      histogram("vllm:request_prefill_time_seconds", "From a request's worker to its first token.");
  series.decode =
      histogram("vllm:request_decode_time_seconds", "From a request's first token to its last.");
  series.per_token = histogram("vllm:request_time_per_output_token_seconds",
                               "The mean of a request from one token to the next.");
  series.prompt_size = metrics_.histogram("vllm:request_prompt_tokens",
                                          "Prompt tokens of a request.",
                                          vllm_labels(model),
                                          token_bounds());
  series.answer_size = metrics_.histogram("vllm:request_generation_tokens",
                                          "Generated tokens of a request.",
                                          vllm_labels(model),
                                          token_bounds());
  series.queue_phase = phase("queue");
  series.load_phase = phase("load");
  series.prefill_phase = phase("prefill");
  return series;
}

void GatewayMetrics::token_gap(const std::string& model, Duration gap) {
  of_model(model).token_gap.observe(to_seconds(gap));
}

void GatewayMetrics::ended(const std::string& model,
                           const TracePart& part,
                           std::string_view reason) {
  ModelSeries& series = of_model(model);
  auto why = series.ended.find(reason);
  if (why == series.ended.end()) {
    const std::string text(reason);
    Labels labels = vllm_labels(model);
    labels.emplace("finished_reason", text);
    const auto counter =
        metrics_.counter("vllm:request_success_total", "Requests ended, by reason.", labels);
    why = series.ended.emplace(text, counter).first;
  }
  why->second.add();
  series.prompt_tokens.add(static_cast<double>(part.prompt_tokens));
  series.generation_tokens.add(static_cast<double>(part.completion_tokens));
  if (part.restarts > 0) {
    metrics_.add("heddle_request_restarts_total",
                 "Times that a request was started again because its worker died.",
                 {{"model_name", model}},
                 part.restarts);
  }

  const auto span = [](Metrics::Histogram& of, Instant from, Instant to) {
    if (from != Instant{} && to != Instant{}) {
      of.observe(to_seconds(to - from));
    }
  };
  const core::RequestTimes& times = part.times;
  span(series.first_token, times.arrived, times.first_token);
  span(series.whole, times.arrived, times.finished);
  span(series.queue, times.arrived, times.dispatched);
  span(series.prefill, times.dispatched, times.first_token);
  if (times.first_token != Instant{}) {
    series.prompt_size.observe(static_cast<double>(part.prompt_tokens));
    series.answer_size.observe(static_cast<double>(part.completion_tokens));
    span(series.decode, times.first_token, times.finished);
    if (part.completion_tokens > 1 && times.finished != Instant{}) {
      series.per_token.observe(to_seconds(times.finished - times.first_token) /
                               static_cast<double>(part.completion_tokens - 1));
    }
  }
  const bool loaded = times.load_began != Instant{};
  span(series.queue_phase, times.arrived, loaded ? times.load_began : times.dispatched);
  span(series.load_phase, times.load_began, times.dispatched);
  span(series.prefill_phase, times.dispatched, times.first_token);
}

void GatewayMetrics::publish_model(const core::ModelStatus& model, const std::string& device) {
  of_model(model.name);  // What nobody used yet stands at 0, so that rates have where to begin.
  const Labels labels{{"model_name", model.name}};
  metrics_.set("vllm:num_requests_running",
               "Requests that a worker has.",
               vllm_labels(model.name),
               static_cast<double>(model.requests_running));
  metrics_.set("vllm:num_requests_waiting",
               "Requests that wait for their model.",
               vllm_labels(model.name),
               static_cast<double>(model.requests_waiting));
  for (const core::Residency state : kResidencies) {
    metrics_.set("heddle_model_state",
                 "1 for the state that the model is in.",
                 {{"model_name", model.name}, {"state", std::string(residency_name(state))}},
                 state == model.residency ? 1 : 0);
  }
  metrics_.set("heddle_model_host_cached",
               "Whether the model's weights are complete in host memory.",
               labels,
               model.host_cached ? 1 : 0);
  metrics_.set("heddle_model_image_bytes",
               "Size of the model's weights.",
               labels,
               static_cast<double>(model.image_bytes));
  metrics_.set("heddle_model_kv_pages",
               "Pages that hold the model's KV.",
               {{"model_name", model.name}, {"device", device}},
               static_cast<double>(model.kv_pages));
  metrics_.set("heddle_model_load_failed",
               "Whether the last try to load the model failed.",
               labels,
               model.failure ? 1 : 0);
  for (const auto& [objective, span] :
       {std::pair("ttft", model.objectives.ttft), std::pair("tpot", model.objectives.tpot)}) {
    if (span > Duration{}) {  // One that cannot be loaded has none.
      metrics_.set("heddle_model_objective_seconds",
                   "What the requests that come now are to get: time to first token (ttft), and "
                   "from one token to the next (tpot).",
                   {{"model_name", model.name}, {"objective", objective}},
                   to_seconds(span));
    }
  }
}

/// What is counted of a model since it was configured.
void GatewayMetrics::publish_counts(const core::ModelStatus& model) {
  const Labels labels{{"model_name", model.name}};
  count_up_to("vllm:num_preemptions_total",
              "Requests called back from where they waited for memory, to wait elsewhere.",
              vllm_labels(model.name),
              model.recalled);
  if (model.fetch) {
    const core::FetchStatus& fetch = *model.fetch;
    for (const auto& [kind, bytes] :
         {std::pair(fetch.kind, fetch.fetched_bytes - fetch.peer_bytes),
          std::pair(std::string(core::kPeerSource), fetch.peer_bytes)}) {
      count_up_to("heddle_fetch_bytes_total",
                  "Bytes of models that have come over the network.",
                  {{"model", model.name}, {"source_kind", kind}},
                  bytes);
    }
  }
  for (std::size_t i = 0; i < core::kLoadReasons; ++i) {
    const auto reason = static_cast<core::LoadReason>(i);
    count_up_to("heddle_model_loads_total",
                "Times that the model was loaded, by reason.",
                {{"model_name", model.name}, {"reason", std::string(core::name(reason))}},
                model.loads[i]);
  }
  for (std::size_t i = 0; i < core::kStartKinds; ++i) {
    const auto kind = static_cast<core::StartKind>(i);
    count_up_to("heddle_model_starts_total",
                "First requests of a model that had none, by what they found.",
                {{"model_name", model.name}, {"kind", std::string(core::name(kind))}},
                model.demand.starts[i]);
  }
  count_up_to("heddle_prewarm_wasted_bytes_total",
              "Weights that were loaded by forecast and evicted before anybody asked for them.",
              labels,
              model.demand.wasted_bytes);
  count_up_to(
      "heddle_group_step_backs_total", "Groups that left shards behind.", labels, model.step_backs);
  count_up_to("heddle_request_recalls_total",
              "Requests that waited for memory on a device and were called back to another.",
              labels,
              model.recalled);
  count_up_to("heddle_kv_moved_tokens_total",
              "Tokens of requests whose KV moved from the stages of the model to the whole of it.",
              labels,
              model.kv_moved_tokens);
  count_up_to("heddle_kv_computed_again_tokens_total",
              "Tokens of such requests that the whole model computed again.",
              labels,
              model.kv_again_tokens);
  for (std::size_t i = 0; i < core::kEvictionReasons; ++i) {
    const auto reason = static_cast<core::EvictionReason>(i);
    count_up_to("heddle_model_evictions_total",
                "Times that the model was evicted, by reason.",
                {{"model_name", model.name}, {"reason", std::string(core::name(reason))}},
                model.evictions[i]);
  }
}

void GatewayMetrics::publish_pool(const std::string& device, const ledger::PoolUsage& usage) {
  for (std::size_t i = 0; i < ledger::kLeaseKinds; ++i) {
    const auto kind = static_cast<ledger::LeaseKind>(i);
    const Labels labels{{"device", device}, {"kind", std::string(ledger::name(kind))}};
    metrics_.set("heddle_pages_reserved",
                 "Pages reserved, by kind of lease.",
                 labels,
                 static_cast<double>(usage.of(kind).reserved));
    metrics_.set("heddle_pages_held",
                 "Pages in use, by kind of lease.",
                 labels,
                 static_cast<double>(usage.of(kind).held));
  }
  const Labels labels{{"device", device}};
  metrics_.set("heddle_pages_total", "Pages there are.", labels, static_cast<double>(usage.total));
  metrics_.set(
      "heddle_pages_free", "Pages reserved by nobody.", labels, static_cast<double>(usage.free));
  const double kv = static_cast<double>(usage.of(ledger::LeaseKind::kKvOwn).held);
  const double room =
      kv + static_cast<double>(usage.free + usage.of(ledger::LeaseKind::kKvCached).held);
  metrics_.set("vllm:kv_cache_usage_perc", kKvUsage, labels, room > 0 ? kv / room : 0);
}

/// KV that the host keeps for a device.
void GatewayMetrics::publish_kv_store(const core::DeviceStatus& device) {
  const core::KvStoreCounts& kept = device.kv_store;
  for (const auto& [state, pages] :
       {std::pair("held", kept.held), std::pair("total", kept.pages)}) {
    metrics_.set("heddle_kv_store_bytes",
                 "Host memory for KV that the device let go of, and what of it has some.",
                 {{"device", device.name}, {"state", state}},
                 static_cast<double>(static_cast<std::uint64_t>(pages) * device.page_bytes));
  }
  for (const auto& [what, pages] : {std::pair("kept", kept.kept_pages),
                                    std::pair("returned", kept.returned_pages),
                                    std::pair("displaced", kept.displaced_pages)}) {
    count_up_to("heddle_kv_store_pages_total",
                "Pages of KV that the host took, gave back to the device, and gave up for others.",
                {{"device", device.name}, {"what", what}},
                pages);
  }
}

void GatewayMetrics::publish_engine(const core::EngineStatus& engine,
                                    const std::string& model,
                                    std::uint64_t page_bytes) {
  const auto labels = [&model](const char* key, std::string_view value) {
    return Labels{{"model_name", model}, {key, std::string(value)}};
  };
  for (std::size_t i = 0; i < core::kEngineStates; ++i) {
    const auto state = static_cast<core::EngineState>(i);
    metrics_.set("heddle_engine_state",
                 "1 for the state that the model's engine is in.",
                 labels("state", core::name(state)),
                 state == engine.state ? 1 : 0);
  }
  const auto bytes = [&](const char* where, std::int64_t pages) {
    metrics_.set("heddle_engine_bytes",
                 "Memory that the model's engine holds, by where.",
                 labels("where", where),
                 static_cast<double>(pages) * static_cast<double>(page_bytes));
  };
  bytes("device", engine.held_pages * (1 + std::ssize(engine.further)));
  bytes("host", engine.host_pages);
  if (engine.kv_limit_pages > 0) {
    bytes("kv_limit", engine.kv_limit_pages);
    bytes("kv", engine.kv_used_pages);
  }
  const Labels plain{{"model_name", model}};
  count_up_to("heddle_engine_starts_total", "Times that it was started.", plain, engine.starts);
  count_up_to("heddle_engine_deaths_total", "Times that it ended unasked.", plain, engine.deaths);
  count_up_to("heddle_engine_hung_total",
              "Of these, times that it was ended as it hung.",
              plain,
              engine.hung);
  for (std::size_t i = 0; i < engine.costs.size(); ++i) {
    const core::SuspendCost& cost = engine.costs.at(i);
    const std::string level(spec::name(static_cast<spec::SuspendLevel>(i)));
    count_up_to("heddle_engine_swaps_total",
                "Times that it was suspended, by level.",
                labels("level", level),
                cost.times);
    count_up_to("heddle_engine_escalations_total",
                "Times that a level freed too little or failed, and the next one was taken.",
                labels("level", level),
                cost.insufficient + cost.failures);
    if (cost.times == 0) {
      continue;
    }
    for (const auto& [direction, span] : {std::pair("out", cost.out), std::pair("in", cost.in)}) {
      metrics_.set("heddle_engine_swap_seconds",
                   "What suspending it and resuming it take by this level; means.",
                   {{"model_name", model}, {"direction", direction}, {"level", level}},
                   to_seconds(span));
    }
  }
}

/// What came over which way, and, of a GPU, what is not ours.
void GatewayMetrics::publish_links(const core::DeviceStatus& device) {
  for (const auto& [way, bytes] : {std::pair("own", device.copied_bytes - device.peer_load_bytes),
                                   std::pair("peer", device.peer_load_bytes)}) {
    count_up_to("heddle_worker_copied_bytes_total",
                "Bytes of images that were copied to the device, over its own link to the host or "
                "over other GPUs'.",
                {{"device", device.name}, {"link", way}},
                bytes);
  }
  count_up_to("heddle_worker_peer_assist_bytes_total",
              "Bytes of images that were copied over the device's link for other GPUs.",
              {{"device", device.name}},
              device.peer_assist_bytes);
  count_up_to("heddle_worker_relayed_bytes_total",  // Old name.
              "The same as heddle_worker_peer_assist_bytes_total, by the old name.",
              {{"device", device.name}},
              device.peer_assist_bytes);
  metrics_.set("heddle_worker_kept_bytes",
               "Bytes of images that stay mapped for models that are not on the device now.",
               {{"device", device.name}},
               static_cast<double>(device.kept_bytes));
  for (const auto& [side, time] :
       {std::pair("host", device.guest_busy), std::pair("hot", device.guest_wait)}) {
    metrics_.set("heddle_worker_guest_seconds",
                 "Time for attention over guests since the worker started: as their host, running "
                 "it; as the hot side, waiting for it.",
                 {{"device", device.name}, {"side", side}},
                 to_seconds(time));
  }
  for (const auto& [by, layers] :
       {std::pair("host", device.guest_layers), std::pair("alone", device.guest_layers_alone)}) {
    count_up_to(
        "heddle_worker_guest_layers_total",
        "Layers with guests elsewhere, by whether their host ran attention over them or the "
        "device did so alone.",
        {{"device", device.name}, {"by", by}},
        layers);
  }
  if (device.others_bytes) {
    metrics_.set("heddle_device_others_bytes",
                 "Memory of the GPU that processes hold which are not heddle's.",
                 {{"device", device.name}},
                 static_cast<double>(*device.others_bytes));
  }
}

void GatewayMetrics::publish_hangs(const core::DeviceStatus& device) {
  count_up_to("heddle_worker_suspected_total",
              "Times that the device's worker was suspected of hanging.",
              {{"device", device.name}},
              device.suspected);
  for (std::size_t i = 0; i < device.hung.size(); ++i) {
    const auto reason = static_cast<policy::HangReason>(i);
    count_up_to("heddle_worker_hung_total",
                "Times that the device's worker was ended for hanging, by how.",
                {{"device", device.name}, {"reason", std::string(policy::name(reason))}},
                device.hung.at(i));
  }
}

/// Each model has one series of each name, so that a reader who takes the first that fits has it.
void GatewayMetrics::publish_kv_use(const std::vector<core::ModelStatus>& models,
                                    const std::vector<core::DeviceStatus>& devices) {
  const std::map<std::string, KvUse> use = kv_use(devices);
  for (const core::ModelStatus& model : models) {
    if (!model.external) {
      const auto used = use.find(model.name);
      metrics_.set("vllm:kv_cache_usage_perc",
                   kKvUsage,
                   vllm_labels(model.name),
                   used == use.end() ? 0 : used->second.fraction());
    }
  }
}

void GatewayMetrics::publish_kv_blocks(const core::ServingStatus& serving, const Catalog& catalog) {
  const std::vector<core::DeviceStatus> devices = serving.devices();
  for (const core::ModelStatus& model : serving.models()) {
    const std::shared_ptr<CatalogModel> known = catalog.find(model.id);
    const auto device = std::ranges::find_if(
        devices, [&model](const core::DeviceStatus& each) { return each.id == model.device; });
    if (known == nullptr || known->text == nullptr || device == devices.end()) {
      continue;
    }
    const auto ranks = static_cast<std::uint64_t>(known->config.block());
    const spec::DType dtype = spec::kv_dtype(known->config.kv, known->config.dtype);
    const std::uint64_t token_bytes = known->text->kv_token_bytes(dtype) / ranks;
    if (const std::optional<KvBlocks> blocks = kv_blocks(
            token_bytes, model.image_bytes / ranks, device->page_bytes, device->usage.total)) {
      set_kv_blocks(model.name, *blocks);
    }
  }
}

void GatewayMetrics::set_kv_blocks(const std::string& model, const KvBlocks& blocks) {
  constexpr const char* kName = "vllm:cache_config_info";
  const auto labels = [&model](const KvBlocks& of) {
    return Labels{{"model_name", model},
                  {"block_size", std::to_string(of.tokens)},
                  {"num_gpu_blocks", std::to_string(of.count)}};
  };
  const auto before = kv_blocks_.find(model);
  if (before != kv_blocks_.end() && before->second != blocks) {
    metrics_.forget_gauge(kName, labels(before->second));
  }
  kv_blocks_[model] = blocks;
  metrics_.set(kName,
               "1; block_size: tokens of a page, num_gpu_blocks: pages that the model's KV could "
               "have where it is, or was last.",
               labels(blocks),
               1);
}

void GatewayMetrics::publish_device(const core::DeviceStatus& device) {
  const Labels labels{{"device", device.name}};
  metrics_.set("heddle_device_up", "Whether the device's worker runs.", labels, device.up ? 1 : 0);
  metrics_.set("heddle_device_page_bytes",
               "Size of a page.",
               labels,
               static_cast<double>(device.page_bytes));
  count_up_to("heddle_worker_restarts_total",
              "Times that the device's worker was started again.",
              labels,
              device.restarts);
  publish_hangs(device);
  count_up_to("heddle_worker_steps_total", "Steps of the engine.", labels, device.steps);
  count_up_to("heddle_worker_late_steps_total",
              "Steps that took longer than the device's pace allows.",
              labels,
              device.late_steps);
  count_up_to("heddle_worker_slow_steps_total",
              "Steps that took 1.2 times as long as the device's pace says, or longer.",
              labels,
              device.slow_steps);
  count_up_to(
      "heddle_worker_overrun_steps_total",
      "Of the slow steps, those that worked or waited for a core for so long; the others were "
      "woken late by the machine.",
      labels,
      device.overrun_steps);
  for (const auto& [state, span] :
       {std::pair("serving", device.serving), std::pair("switching", device.switching)}) {
    metrics_.set("heddle_device_time_seconds",
                 "Time for which there were requests for models of the device, by whether some "
                 "ran or none did for models being swapped.",
                 {{"device", device.name}, {"state", state}},
                 to_seconds(span));
  }
  publish_links(device);
  publish_pool(device.name, device.usage);
}

void GatewayMetrics::publish(const core::ServingStatus& serving) {
  const std::vector<core::ModelStatus> models = serving.models();
  const std::vector<core::DeviceStatus> devices = serving.devices();
  std::map<ModelId, std::string> model_names;
  for (const core::ModelStatus& model : models) {
    model_names[model.id] = model.name;
  }
  std::map<DeviceId, std::string> names;
  std::map<DeviceId, std::uint64_t> page_bytes;
  for (const core::DeviceStatus& device : devices) {
    names[device.id] = device.name;
    page_bytes[device.id] = device.page_bytes;
    publish_device(device);
    publish_prefixes(device, model_names);
    publish_experts(device, model_names);
    publish_kv_store(device);
  }
  publish_pool("host", serving.host_usage());
  publish_kv_use(models, devices);
  for (const core::EngineStatus& engine : serving.engines()) {
    if (const auto model = model_names.find(engine.model); model != model_names.end()) {
      publish_engine(engine, model->second, page_bytes[engine.device]);
    }
  }
  for (const core::ModelStatus& model : models) {
    publish_model(model, places_of(model, names));
    publish_counts(model);
  }
}

}  // namespace heddle::gateway
