#pragma once

#include "core/manager/manager_core.h"
#include "core/message_fields.h"

/// As message_fields.h, for the events and commands of ManagerCore.
namespace heddle {

inline void fields(Fields& v, policy::WantedObjectives& x) {
  v.type("WantedObjectives");
  v(1, "ttft", x.ttft);
  v(2, "tpot", x.tpot);
}

inline void fields(Fields& v, policy::Calendar& x) {
  v.type("Calendar");
  v(1, "window", x.window);
  v(2, "windows_per_day", x.windows_per_day);
  v(3, "offset", x.offset);
}

inline void fields(Fields& v, policy::Load& x) {
  v.type("Load");
  v(1, "mean", x.mean);
  v(2, "peak", x.peak);
}

namespace core {

inline void fields(Fields& v, TellManager& x) {
  v.message(84, "TellManager");
  v(1, "event", x.event);
}

inline void fields(Fields& v, ExternalModel& x) {
  v.type("ExternalModel");
  v(1, "drain", x.drain);
  v(2, "further", x.further);
}

inline void fields(Fields& v, GroupFormed& x) {
  v.message(85, "GroupFormed");
  v(1, "device", x.device);
  v(2, "epoch", x.epoch);
  v(3, "model", x.model);
  v(4, "members", x.members);
}

inline void fields(Fields& v, ShardPlace& x) {
  v.type("ShardPlace");
  v(1, "model", x.model);
  v(2, "device", x.device);
}

inline void fields(Fields& v, ManagerModel& x) {
  v.type("ManagerModel");
  v(1, "id", x.id);
  v(2, "name", x.name);
  v(3, "image_bytes", x.image_bytes);
  v(4, "context", x.context);
  v(5, "pin", x.pin);
  v(6, "min_residence", x.min_residence);
  v(7, "slo", x.slo);
  v(8, "batch", x.batch);
  v(9, "footprints", x.footprints);
  v(10, "external", x.external);
  v(11, "displaces", x.displaces);
  v(12, "groups", x.groups);
  v(13, "part_of", x.part_of);
  v(14, "fetched", x.fetched);
  v(15, "cut_of", x.cut_of);
  v(16, "stages", x.stages);
  v(18, "shares", x.shares);
  v(17, "on_kinds", x.on_kinds);
}

inline void fields(Fields& v, ManagerDevice& x) {
  v.type("ManagerDevice");
  v(1, "id", x.id);
  v(2, "name", x.name);
  v(3, "pages", x.pages, kCount);
  v(4, "page_bytes", x.page_bytes);
  v(5, "in_host_memory", x.in_host_memory);
  v(6, "kind", x.kind);
}

inline void fields(Fields& v, PlannerOptions& x) {
  v.type("PlannerOptions");
  v(1, "prewarm", x.prewarm);
  v(2, "forecast", x.forecast);
  v(3, "value", x.value);
  v(4, "pressure", x.pressure);
  v(5, "replicas", x.replicas);
  v(6, "share", x.share);
  v(7, "evict", x.evict);
  v(8, "period", x.period);
  v(9, "calendar", x.calendar);
  v(10, "weave", x.weave);
  v(11, "weave_share", x.weave_share);
}

inline void fields(Fields& v, ManagerOptions& x) {
  v.type("ManagerOptions");
  v(1, "queue_per_model", x.queue_per_model);
  v(2, "queue_total", x.queue_total);
  v(3, "drain_after", x.drain_after);
  v(4, "load_attempts", x.load_attempts);
  v(5, "load_retry_first", x.load_retry_first);
  v(6, "load_cooldown", x.load_cooldown);
  v(7, "planner", x.planner);
  v(8, "turn", x.turn, kCount);
}

inline void fields(Fields& v, Configure& x) {
  v.message(86, "Configure");
  v(1, "options", x.options);
  v(2, "models", x.models);
  v(3, "devices", x.devices);
  v(4, "networks", x.networks);
}

inline void fields(Fields& v, RequestArrived& x) {
  v.message(87, "RequestArrived");
  v(1, "request", x.request);
  v(2, "model", x.model);
  v(3, "priority", x.priority);
  v(4, "prompt_tokens", x.prompt_tokens, kCount);
  v(5, "max_tokens", x.max_tokens, kCount);
  v(6, "open_ended", x.open_ended);
  v(8, "patience", x.patience);
  v(9, "adapter", x.adapter);
}

inline void fields(Fields& v, RequestFinished& x) {
  v.message(88, "RequestFinished");
  v(1, "request", x.request);
  v(2, "ttft", x.ttft, kCount);
  v(3, "tpot", x.tpot, kCount);
  v(4, "model", x.model);
  v(5, "prompt_tokens", x.prompt_tokens, kCount);
  v(6, "answer_tokens", x.answer_tokens, kCount);
}

inline void fields(Fields& v, RequestCancelled& x) {
  v.message(89, "RequestCancelled");
  v(1, "request", x.request);
}

inline void fields(Fields& v, AdminLoad& x) {
  v.message(90, "AdminLoad");
  v(1, "ticket", x.ticket);
  v(2, "model", x.model);
}

inline void fields(Fields& v, AdminUnload& x) {
  v.message(91, "AdminUnload");
  v(1, "ticket", x.ticket);
  v(2, "model", x.model);
  v(3, "why", x.why);
}

inline void fields(Fields& v, WorkerUp& x) {
  v.message(92, "WorkerUp");
  v(1, "device", x.device);
  v(2, "epoch", x.epoch);
}

inline void fields(Fields& v, WorkerDown& x) {
  v.message(93, "WorkerDown");
  v(1, "device", x.device);
  v(2, "epoch", x.epoch);
  v(3, "killed", x.killed);
}

inline void fields(Fields& v, WorkerFound& x) {
  v.message(146, "WorkerFound");
  v(1, "device", x.device);
  v(2, "epoch", x.epoch);
  v(3, "report", x.report);
}

inline void fields(Fields& v, HostLost& x) {
  v.message(147, "HostLost");
  v(1, "host", x.host);
}

inline void fields(Fields& v, HostLeaving& x) {
  v.message(191, "HostLeaving");
  v(1, "host", x.host);
  v(2, "leaving", x.leaving);
}

inline void fields(Fields& v, Unfinished& x) {
  v.type("Unfinished");
  v(1, "request", x.request);
  v(2, "age", x.age, kCount);
  v(3, "device", x.device);
  v(4, "epoch", x.epoch);
}

inline void fields(Fields& v, FrontState& x) {
  v.message(148, "FrontState");
  v(1, "front", x.front);
  v(2, "requests", x.requests);
}

inline void fields(Fields& v, Settled& x) {
  v.message(149, "Settled");
  v(1, "settled", x.settled);
}

inline void fields(Fields& v, PlaceLost& x) {
  v.message(145, "PlaceLost");
  v(1, "device", x.device);
  v(2, "epoch", x.epoch);
  v(3, "requests", x.requests);
  v(4, "advanced", x.advanced);
}

inline void fields(Fields& v, ImageFailed& x) {
  v.message(94, "ImageFailed");
  v(1, "device", x.device);
  v(2, "epoch", x.epoch);
  v(3, "model", x.model);
  v(4, "reason", x.reason);
}

inline void fields(Fields& v, ImageState& x) {
  v.message(95, "ImageState");
  v(1, "model", x.model);
  v(2, "bytes", x.bytes);
  v(3, "host_cached", x.host_cached);
  v(4, "host", x.host);
}

inline void fields(Fields& v, GuestState& x) {
  v.message(133, "GuestState");
  v(1, "device", x.device);
  v(2, "model", x.model);
  v(3, "pages", x.pages, kCount);
  v(4, "refused", x.refused);
}

inline void fields(Fields& v, GuestPeers& x) {
  v.message(144, "GuestPeers");
  v(1, "pairs", x.pairs);
}

inline void fields(Fields& v, EngineSaid& x) {
  v.message(96, "EngineSaid");
  v(1, "device", x.device);
  v(2, "model", x.model);
  v(3, "news", x.news);
  v(4, "held_pages", x.held_pages, kCount);
  v(5, "swap_out", x.swap_out, kCount);
  v(6, "swap_in", x.swap_in, kCount);
  v(7, "reason", x.reason);
}

inline void fields(Fields& v, EngineKv& x) {
  v.message(240, "EngineKv");
  v(1, "device", x.device);
  v(2, "model", x.model);
  v(3, "firm_pages", x.firm_pages, kCount);
  v(4, "fixed_pages", x.fixed_pages, kCount);
  v(5, "least_pages", x.least_pages, kCount);
  v(6, "limit_pages", x.limit_pages, kCount);
  v(7, "wanted_pages", x.wanted_pages, kCount);
  v(8, "used_pages", x.used_pages, kCount);
  v(9, "deaf", x.deaf);
}

inline void fields(Fields& v, LimitKv& x) {
  v.message(241, "LimitKv");
  v(1, "device", x.device);
  v(2, "model", x.model);
  v(3, "basis", x.basis);
  v(4, "pages", x.pages, kCount);
}

inline void fields(Fields& v, RequestUnanswered& x) {
  v.message(97, "RequestUnanswered");
  v(1, "request", x.request);
  v(2, "cut", x.cut);
}

inline void fields(Fields& v, DrainManager& x) {
  v.message(98, "DrainManager");
  v(1, "deadline", x.deadline);
}

inline void fields(Fields& v, LoadRemembered& x) {
  v.message(99, "LoadRemembered");
  v(1, "model", x.model);
  v(2, "windows", x.windows);
}

inline void fields(Fields& v, Decision& x) {
  v.message(100, "Decision");
  v(1, "kind", x.kind);
  v(2, "model", x.model);
  v(3, "device", x.device);
  v(4, "for_model", x.for_model);
  v(5, "why", x.why);
  v(6, "first_token", x.first_token);
}

inline void fields(Fields& v, LoadMeasured& x) {
  v.message(101, "LoadMeasured");
  v(1, "model", x.model);
  v(2, "window", x.window);
  v(3, "load", x.load);
}

inline void fields(Fields& v, PlanMeasured& x) {
  v.message(234, "PlanMeasured");
  v(1, "model", x.model);
  v(2, "device", x.device);
  v(3, "kind", x.kind);
  v(4, "predicted", x.predicted);
  v(5, "took", x.took);
}

inline void fields(Fields& v, Dispatch& x) {
  v.message(102, "Dispatch");
  v(1, "request", x.request);
  v(2, "device", x.device);
  v(3, "epoch", x.epoch);
  v(4, "tokens", x.tokens, kCount);
  v(6, "due", x.due);
  v(7, "as", x.as);
  v(8, "kv", x.kv);
}

inline void fields(Fields& v, Hold& x) {
  v.message(103, "Hold");
  v(1, "request", x.request);
}

inline void fields(Fields& v, TellWorker& x) {
  v.message(104, "TellWorker");
  v(1, "device", x.device);
  v(2, "epoch", x.epoch);
  v(3, "message", x.message);
}

inline void fields(Fields& v, FailRequest& x) {
  v.message(105, "FailRequest");
  v(1, "request", x.request);
  v(2, "error", x.error);
}

inline void fields(Fields& v, AdminDone& x) {
  v.message(106, "AdminDone");
  v(1, "ticket", x.ticket);
  v(2, "error", x.error);
}

inline void fields(Fields& v, Drained& /*x*/) {
  v.message(107, "Drained");
}

inline void fields(Fields& v, Borrow& x) {
  v.message(108, "Borrow");
  v(1, "device", x.device);
  v(2, "model", x.model);
  v(3, "basis", x.basis);
  v(4, "pages", x.pages);
}

inline void fields(Fields& v, Repay& x) {
  v.message(109, "Repay");
  v(1, "device", x.device);
  v(2, "model", x.model);
  v(3, "pages", x.pages);
}

}  // namespace core
}  // namespace heddle
