#include "gateway/device_handlers.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/steady_timer.hpp>

#include "base/time.h"
#include "core/serving.h"
#include "gateway/device_history.h"
#include "gateway/handlers.h"
#include "spec/json_writer.h"

namespace heddle::gateway {

namespace asio = boost::asio;

namespace {

void write_pool(spec::JsonWriter& json, const ledger::PoolUsage& usage) {
  json.key("pages_total").integer(usage.total).key("pages_free").integer(usage.free);
  json.key("pages").begin_object();
  for (std::size_t i = 0; i < ledger::kLeaseKinds; ++i) {
    const auto kind = static_cast<ledger::LeaseKind>(i);
    json.key(ledger::name(kind)).begin_object();
    json.key("reserved").integer(usage.of(kind).reserved);
    json.key("held").integer(usage.of(kind).held).end_object();
  }
  json.end_object();
}

/// KV that the host keeps for the device.
void write_kv_store(spec::JsonWriter& json, const core::DeviceStatus& device) {
  const core::KvStoreCounts& kept = device.kv_store;
  std::uint64_t host_tokens = 0;
  for (const core::PrefixCounts& counts : device.prefixes) {
    host_tokens += counts.host_tokens;
  }
  json.key("kv_store").begin_object();
  json.key("pages").integer(kept.pages).key("held").integer(kept.held);
  json.key("held_bytes").integer(static_cast<std::uint64_t>(kept.held) * device.page_bytes);
  json.key("kept_pages").integer(kept.kept_pages).key("kept_blocks").integer(kept.kept_blocks);
  json.key("returned_pages").integer(kept.returned_pages);
  json.key("displaced_pages").integer(kept.displaced_pages);
  json.key("returned_tokens").integer(host_tokens);
  json.key("declined_tokens").integer(kept.declined_tokens).end_object();
}

/// Whose the pages are.
void write_residents(spec::JsonWriter& json, const core::DeviceStatus& device) {
  json.key("models").begin_array();
  for (const core::ResidentStatus& resident : device.residents) {
    json.begin_object().key("model").string(resident.model);
    json.key("residency").string(residency_name(resident.residency));
    json.key("external").boolean(resident.external);
    json.key("foreign").boolean(resident.external);  // Old name.
    json.key("staged").boolean(resident.staged);
    json.key("weights_pages").integer(resident.weights_pages);
    json.key("kv_pages").integer(resident.kv_pages);
    json.key("requests_running").integer(resident.requests_running).end_object();
  }
  json.end_array();
}

/// The adapters whose weights are on the device.
void write_adapters(spec::JsonWriter& json,
                    const core::DeviceStatus& device,
                    const Catalog& catalog) {
  json.key("adapters").begin_array();
  for (const core::AdapterStatus& adapter : device.adapters) {
    const std::shared_ptr<CatalogModel> base = catalog.find(adapter.model);
    json.begin_object().key("model").string(base ? base->config.id : "");
    json.key("name").string(adapter.name).key("pages").integer(adapter.pages);
    json.key("sequences").integer(adapter.sequences);
    json.key("loads").integer(adapter.loads).end_object();
  }
  json.end_array();
}

/// Experts that take turns in the device's memory.
void write_experts(spec::JsonWriter& json,
                   const core::DeviceStatus& device,
                   const Catalog& catalog) {
  json.key("experts").begin_array();
  for (const core::ExpertStatus& status : device.experts) {
    const std::shared_ptr<CatalogModel> model = catalog.find(status.model);
    json.begin_object().key("model").string(model ? model->config.id : "");
    json.key("experts").integer(status.experts).key("resident").integer(status.resident);
    json.key("hits").integer(status.hits).key("misses").integer(status.misses);
    json.key("fetched_bytes").integer(status.fetched_bytes).end_object();
  }
  json.end_array();
}

/// Whose KV is on pages that the device lends.
void write_guests(spec::JsonWriter& json,
                  const core::DeviceStatus& device,
                  const std::map<DeviceId, std::string>& names) {
  json.key("guests").begin_array();
  for (const core::GuestStatus& guest : device.guests) {
    const auto hot = names.find(guest.hot);
    json.begin_object().key("model").string(guest.model);
    json.key("device").string(hot == names.end() ? "" : hot->second);
    json.key("pages").integer(guest.pages).key("in_use").integer(guest.in_use);
    json.key("recalled").integer(guest.recalled).end_object();
  }
  json.end_array();
}

/// The part that a device has of a model which is on several.
struct Part {
  std::string model{};
  std::int64_t index = 0;  ///< Rank, or stage.
  std::int64_t parts = 0;
  bool shard = false;  ///< Else the stage of a pipeline.
};

std::vector<Part> parts_on(DeviceId device,
                           const std::vector<core::ModelStatus>& models,
                           const Catalog& catalog) {
  std::vector<Part> parts;
  for (const core::ModelStatus& model : models) {
    std::vector<DeviceId> ranks = model.external ? std::vector<DeviceId>() : model.peers;
    if (!ranks.empty()) {
      ranks.insert(ranks.begin(), *model.device);
    }
    const auto rank = std::find(ranks.begin(), ranks.end(), device) - ranks.begin();
    if (rank >= std::ssize(ranks)) {
      continue;
    }
    const std::shared_ptr<CatalogModel> known = catalog.find(model.id);
    parts.push_back({.model = model.name,
                     .index = rank,
                     .parts = std::ssize(ranks),
                     .shard = known == nullptr || known->config.tensor_parallel > 1});
  }
  return parts;
}

void write_shard(spec::JsonWriter& json, const Part& part) {
  json.begin_object().key("model").string(part.model);
  json.key("rank").integer(part.index).key("ranks").integer(part.parts).end_object();
}

/// The device's stage of a pipeline, if it has one; its shards, of which `shard` is the first.
void write_parts(spec::JsonWriter& json, const std::vector<Part>& parts) {
  std::vector<Part> shards;
  for (const Part& part : parts) {
    if (part.shard) {
      shards.push_back(part);
      continue;
    }
    json.key("stage").begin_object().key("model").string(part.model);
    json.key("stage").integer(part.index).key("stages").integer(part.parts).end_object();
  }
  if (shards.empty()) {
    return;
  }
  json.key("shard");
  write_shard(json, shards.front());
  json.key("shards").begin_array();
  for (const Part& shard : shards) {
    write_shard(json, shard);
  }
  json.end_array();
}

/// Memory of the devices and of the host, as it is now.
std::string devices_json(const Context& context) {
  const std::vector<core::ModelStatus> models = context.serving->models();
  const std::map<DeviceId, std::string> names = device_names(*context.serving);
  spec::JsonWriter json;
  json.begin_object().key("devices").begin_array();
  for (const core::DeviceStatus& device : context.serving->devices()) {
    json.begin_object().key("name").string(device.name).key("up").boolean(device.up);
    if (!device.trouble.empty()) {
      json.key("trouble").string(device.trouble);
    }
    json.key("restarts").integer(device.restarts).key("page_bytes").integer(device.page_bytes);
    json.key("serving_s").number(to_seconds(device.serving));
    json.key("switching_s").number(to_seconds(device.switching));
    json.key("steps").integer(device.steps).key("late_steps").integer(device.late_steps);
    json.key("slow_steps").integer(device.slow_steps);
    json.key("overrun_steps").integer(device.overrun_steps);
    json.key("copied_bytes").integer(device.copied_bytes);
    json.key("peer_load_bytes").integer(device.peer_load_bytes);
    json.key("detoured_bytes").integer(device.peer_load_bytes);  // Old name.
    json.key("peer_assist_bytes").integer(device.peer_assist_bytes);
    json.key("relayed_bytes").integer(device.peer_assist_bytes);  // Old name.
    json.key("kept_bytes").integer(device.kept_bytes);
    if (device.others_bytes) {
      json.key("others_bytes").integer(*device.others_bytes);
    }
    write_pool(json, device.usage);
    write_kv_store(json, device);
    write_residents(json, device);
    write_adapters(json, device, context.catalog);
    write_experts(json, device, context.catalog);
    write_guests(json, device, names);
    write_parts(json, parts_on(device.id, models, context.catalog));
    json.end_object();
  }
  json.end_array().key("host").begin_object();
  write_pool(json, context.serving->host_usage());
  json.end_object().end_object();
  return std::move(json).take();
}

}  // namespace

Task<void> devices(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  co_await respond_json(http, devices_json(*context));
}

Task<void> device_history(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  co_await respond_json(http, context->device_history.json(context->now()));
}

Task<void> keep_device_history(std::shared_ptr<Context> context) {
  asio::steady_timer timer(context->loop);
  while (context->serving != nullptr) {
    context->device_history.keep(context->now(), devices_json(*context));
    timer.expires_after(kDeviceHistoryPeriod);
    co_await timer.async_wait(kAwait);
  }
}

}  // namespace heddle::gateway
