#pragma once

#include "core/message_fields.h"
#include "core/serving.h"
#include "rpc/link_fields.h"

/// As core/message_fields.h, for what there is to see of a system. Instants are ages here
/// (remote::make_ages).
namespace heddle {

inline void fields(Fields& v, policy::Objectives& x) {
  v.type("Objectives");
  v(1, "ttft", x.ttft, kCount);
  v(2, "tpot", x.tpot, kCount);
}

namespace core {

inline void fields(Fields& v, DemandStatus& x) {
  v.type("DemandStatus");
  v(1, "expected_mean", x.expected_mean);
  v(2, "expected_peak", x.expected_peak);
  v(3, "error", x.error);
  v(4, "starts", x.starts);
  v(5, "wasted_bytes", x.wasted_bytes);
}

inline void fields(Fields& v, NotedDecision& x) {
  v.type("NotedDecision");
  v(1, "at", x.at, kCount);
  v(2, "kind", x.kind);
  v(3, "model", x.model);
  v(4, "device", x.device);
  v(5, "for_model", x.for_model);
  v(6, "why", x.why);
  v(7, "first_token", x.first_token);
  v(8, "first_token_was", x.first_token_was);
}

inline void fields(Fields& v, FetchStatus& x) {
  v.type("FetchStatus");
  v(1, "model", x.model);
  v(2, "from", x.from);
  v(3, "kind", x.kind);
  v(4, "active", x.active);
  v(5, "bytes", x.bytes);
  v(6, "total_bytes", x.total_bytes);
  v(7, "bytes_per_second", x.bytes_per_second);
  v(8, "fetched_bytes", x.fetched_bytes);
  v(9, "peer_bytes", x.peer_bytes);
}

inline void fields(Fields& v, ModelStatus& x) {
  v.type("ModelStatus");
  v(1, "id", x.id);
  v(2, "name", x.name);
  v(3, "residency", x.residency);
  v(4, "device", x.device);
  v(5, "peers", x.peers);
  v(6, "host_cached", x.host_cached);
  v(7, "image_bytes", x.image_bytes);
  v(8, "loaded_bytes", x.loaded_bytes);
  v(9, "kv_pages", x.kv_pages, kCount);
  v(10, "requests_running", x.requests_running, kCount);
  v(11, "requests_waiting", x.requests_waiting, kCount);
  v(12, "external", x.external);
  v(13, "loads", x.loads);
  v(14, "evictions", x.evictions);
  v(15, "recalled", x.recalled);
  v(16, "objectives", x.objectives);
  v(17, "demand", x.demand);
  v(18, "last_used", x.last_used, kCount);
  v(19, "failure", x.failure);
  v(20, "fetch", x.fetch);
  v(21, "kv_moved_tokens", x.kv_moved_tokens);
  v(22, "kv_again_tokens", x.kv_again_tokens);
  v(23, "step_backs", x.step_backs);
}

inline void fields(Fields& v, SuspendCost& x) {
  v.type("SuspendCost");
  v(1, "times", x.times);
  v(2, "out", x.out, kCount);
  v(3, "in", x.in, kCount);
  v(4, "held_pages", x.held_pages, kCount);
  v(5, "host_pages", x.host_pages, kCount);
  v(6, "insufficient", x.insufficient);
  v(7, "failures", x.failures);
}

inline void fields(Fields& v, EngineStatus& x) {
  v.type("EngineStatus");
  v(1, "model", x.model);
  v(2, "device", x.device);
  v(3, "state", x.state);
  v(4, "level", x.level);
  v(5, "since", x.since, kCount);
  v(6, "reserved_pages", x.reserved_pages, kCount);
  v(7, "held_pages", x.held_pages, kCount);
  v(8, "host_pages", x.host_pages, kCount);
  v(9, "starts", x.starts);
  v(10, "deaths", x.deaths);
  v(11, "hung", x.hung);
  v(12, "costs", x.costs);
  v(13, "trouble", x.trouble);
  v(14, "kv_limit_pages", x.kv_limit_pages, kCount);
  v(15, "kv_used_pages", x.kv_used_pages, kCount);
  v(16, "further", x.further);
}

inline void fields(Fields& v, ResidentStatus& x) {
  v.type("ResidentStatus");
  v(1, "model", x.model);
  v(2, "residency", x.residency);
  v(3, "external", x.external);
  v(4, "weights_pages", x.weights_pages, kCount);
  v(5, "kv_pages", x.kv_pages, kCount);
  v(6, "requests_running", x.requests_running, kCount);
  v(7, "staged", x.staged);
}

inline void fields(Fields& v, GuestStatus& x) {
  v.type("GuestStatus");
  v(1, "model", x.model);
  v(2, "hot", x.hot);
  v(3, "pages", x.pages, kCount);
  v(4, "in_use", x.in_use, kCount);
  v(5, "recalled", x.recalled, kCount);
}

inline void fields(Fields& v, DeviceStatus& x) {
  v.type("DeviceStatus");
  v(1, "id", x.id);
  v(2, "name", x.name);
  v(3, "up", x.up);
  v(4, "epoch", x.epoch);
  v(5, "restarts", x.restarts);
  v(6, "page_bytes", x.page_bytes);
  v(7, "usage", x.usage);
  v(8, "residents", x.residents);
  v(9, "guests", x.guests);
  v(10, "prefixes", x.prefixes);
  v(11, "dropped_pages", x.dropped_pages);
  v(12, "steps", x.steps);
  v(13, "late_steps", x.late_steps);
  v(14, "slow_steps", x.slow_steps);
  v(15, "overrun_steps", x.overrun_steps);
  v(16, "copied_bytes", x.copied_bytes);
  v(17, "peer_load_bytes", x.peer_load_bytes);
  v(18, "peer_assist_bytes", x.peer_assist_bytes);
  v(19, "kept_bytes", x.kept_bytes);
  v(20, "guest_busy", x.guest_busy, kCount);
  v(21, "guest_wait", x.guest_wait, kCount);
  v(22, "guest_layers", x.guest_layers);
  v(23, "guest_layers_alone", x.guest_layers_alone);
  v(24, "others_bytes", x.others_bytes);
  v(25, "trouble", x.trouble);
  v(26, "suspected", x.suspected);
  v(27, "hung", x.hung);
  v(28, "serving", x.serving, kCount);
  v(29, "switching", x.switching, kCount);
  v(30, "kv_store", x.kv_store);
  v(31, "adapters", x.adapters);
  v(32, "experts", x.experts);
}

inline void fields(Fields& v, HostEntry& x) {
  v.type("HostEntry");
  v(1, "id", x.id);
  v(2, "name", x.name);
  v(3, "address", x.address);
  v(4, "presence", x.presence);
  v(5, "since", x.since, kCount);
  v(6, "build", x.build);
  v(7, "isa", x.isa);
  v(8, "trouble", x.trouble);
}

}  // namespace core
}  // namespace heddle
