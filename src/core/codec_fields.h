#pragma once

#include "core/agent_core.h"
#include "core/agent_fields.h"
#include "core/manager/manager_core.h"
#include "core/message_fields.h"
#include "core/worker_core.h"

/// As message_fields.h, for the events and commands of the cores themselves.
namespace heddle::core {

template <class V>
void fields(V& v, Like<ModelOpened> auto& x) {
  v.type("ModelOpened");
  v("model", x.model);
}

template <class V>
void fields(V& v, Like<OpenFailed> auto& x) {
  v.type("OpenFailed");
  v("model", x.model);
  v("error", x.error);
}

template <class V>
void fields(V& v, Like<ModelClosed> auto& x) {
  v.type("ModelClosed");
  v("model", x.model);
}

template <class V>
void fields(V& v, Like<RecordingsKept> auto& x) {
  v.type("RecordingsKept");
  v("pages", x.pages);
}

template <class V>
void fields(V& v, Like<CopyProgress> auto& x) {
  v.type("CopyProgress");
  v("model", x.model);
  v("bytes", x.bytes);
}

template <class V>
void fields(V& v, Like<SequenceRefused> auto& x) {
  v.type("SequenceRefused");
  v("sequence", x.sequence);
  v("error", x.error);
}

template <class V>
void fields(V& v, Like<SequenceReady> auto& x) {
  v.type("SequenceReady");
  v("sequence", x.sequence);
}

template <class V>
void fields(V& v, Like<SliceDone> auto& x) {
  v.type("SliceDone");
  v("sequence", x.sequence);
  v("computed", x.computed);
  v("token", x.token);
  v("position", x.position);
  v("finish", x.finish);
  v("details", x.details);
}

template <class V>
void fields(V& v, Like<KvHeld> auto& x) {
  v.type("KvHeld");
  v("model", x.model);
  v("pages", x.pages);
}

template <class V>
void fields(V& v, Like<PrefixTaken> auto& x) {
  v.type("PrefixTaken");
  v("sequence", x.sequence);
  v("computed", x.computed);
}

template <class V>
void fields(V& v, Like<PrefixesTaken> auto& x) {
  v.type("PrefixesTaken");
  v("sequences", x.sequences);
}

template <class V>
void fields(V& v, Like<KvCounted> auto& x) {
  v.type("KvCounted");
  v("kv", x.kv);
  v("cached_pages", x.cached_pages);
}

template <class V>
void fields(V& v, Like<StepDone> auto& x) {
  v.type("StepDone");
  v("slices", x.slices);
  v("starved", x.starved);
  v("unready", x.unready);
  v("counted", x.counted);
  v("took", x.took);
}

template <class V>
void fields(V& v, Like<EngineIdle> auto& /*x*/) {
  v.type("EngineIdle");
}

template <class V>
void fields(V& v, Like<AdoptPages> auto& x) {
  v.type("AdoptPages");
  v("pages", x.pages);
}

template <class V>
void fields(V& v, Like<SurrenderPages> auto& x) {
  v.type("SurrenderPages");
  v("model", x.model);
  v("count", x.count);
}

template <class V>
void fields(V& v, Like<OpenModel> auto& x) {
  v.type("OpenModel");
  v("model", x.model);
  v("source", x.source);
  v("pages", x.pages);
  v("image_bytes", x.image_bytes);
  v("ready_bytes", x.ready_bytes);
}

template <class V>
void fields(V& v, Like<FitWorkspace> auto& x) {
  v.type("FitWorkspace");
  v("pages", x.pages);
}

template <class V>
void fields(V& v, Like<KeepRecordings> auto& x) {
  v.type("KeepRecordings");
  v("pages", x.pages);
}

template <class V>
void fields(V& v, Like<CloseModel> auto& x) {
  v.type("CloseModel");
  v("model", x.model);
  v("image", x.image);
}

template <class V>
void fields(V& v, Like<LetGoWindow> auto& x) {
  v.type("LetGoWindow");
  v("model", x.model);
}

template <class V>
void fields(V& v, Like<SetImageReady> auto& x) {
  v.type("SetImageReady");
  v("model", x.model);
  v("bytes", x.bytes);
}

template <class V>
void fields(V& v, Like<HastenCopy> auto& x) {
  v.type("HastenCopy");
  v("model", x.model);
}

template <class V>
void fields(V& v, Like<SetSourceReady> auto& x) {
  v.type("SetSourceReady");
  v("model", x.model);
  v("bytes", x.bytes);
}

template <class V>
void fields(V& v, Like<AddSequence> auto& x) {
  v.type("AddSequence");
  v("sequence", x.sequence);
  v("model", x.model);
  v("tokens", x.tokens);
  v("prompt_tokens", x.prompt_tokens);
  v("params", x.params);
  v("cache_salt", x.cache_salt);
}

template <class V>
void fields(V& v, Like<TakePrefixes> auto& x) {
  v.type("TakePrefixes");
  v("sequences", x.sequences);
}

template <class V>
void fields(V& v, Like<TrimCached> auto& x) {
  v.type("TrimCached");
  v("keep", x.keep);
  v("reason", x.reason);
}

template <class V>
void fields(V& v, Like<PreemptSequence> auto& x) {
  v.type("PreemptSequence");
  v("sequence", x.sequence);
}

template <class V>
void fields(V& v, Like<RemoveSequence> auto& x) {
  v.type("RemoveSequence");
  v("sequence", x.sequence);
}

template <class V>
void fields(V& v, Like<RunStep> auto& x) {
  v.type("RunStep");
  v("plan", x.plan);
}

template <class V>
void fields(V& v, Like<Report> auto& x) {
  v.type("Report");
  v("report", x.report);
}

template <class V>
void fields(V& v, Like<TellManager> auto& x) {
  v.type("TellManager");
  v("event", x.event);
}

template <class V>
void fields(V& v, Like<ForeignModel> auto& x) {
  v.type("ForeignModel");
  v("drain", x.drain);
}

template <class V>
void fields(V& v, Like<policy::WantedObjectives> auto& x) {
  v.type("WantedObjectives");
  v("ttft", x.ttft);
  v("tpot", x.tpot);
}

template <class V>
void fields(V& v, Like<GroupFormed> auto& x) {
  v.type("GroupFormed");
  v("device", x.device);
  v("epoch", x.epoch);
  v("model", x.model);
}

template <class V>
void fields(V& v, Like<ShardPlace> auto& x) {
  v.type("ShardPlace");
  v("model", x.model);
  v("device", x.device);
}

template <class V>
void fields(V& v, Like<ManagerModel> auto& x) {
  v.type("ManagerModel");
  v("id", x.id);
  v("name", x.name);
  v("image_bytes", x.image_bytes);
  v("context", x.context);
  v("pin", x.pin);
  v("min_residence", x.min_residence);
  v("slo", x.slo);
  v("batch", x.batch);
  v("footprints", x.footprints);
  v("foreign", x.foreign);
  v("displaces", x.displaces);
  v("groups", x.groups);
  v("part_of", x.part_of);
}

template <class V>
void fields(V& v, Like<ManagerDevice> auto& x) {
  v.type("ManagerDevice");
  v("id", x.id);
  v("name", x.name);
  v("pages", x.pages);
  v("page_bytes", x.page_bytes);
}

template <class V>
void fields(V& v, Like<policy::Calendar> auto& x) {
  v.type("Calendar");
  v("window", x.window);
  v("windows_per_day", x.windows_per_day);
  v("offset", x.offset);
}

template <class V>
void fields(V& v, Like<policy::Load> auto& x) {
  v.type("Load");
  v("mean", x.mean);
  v("peak", x.peak);
}

template <class V>
void fields(V& v, Like<PlannerOptions> auto& x) {
  v.type("PlannerOptions");
  v("prewarm", x.prewarm);
  v("forecast", x.forecast);
  v("value", x.value);
  v("pressure", x.pressure);
  v("replicas", x.replicas);
  v("share", x.share);
  v("evict", x.evict);
  v("period", x.period);
  v("calendar", x.calendar);
}

template <class V>
void fields(V& v, Like<ManagerOptions> auto& x) {
  v.type("ManagerOptions");
  v("queue_per_model", x.queue_per_model);
  v("queue_total", x.queue_total);
  v("drain_after", x.drain_after);
  v("load_attempts", x.load_attempts);
  v("load_retry_first", x.load_retry_first);
  v("load_cooldown", x.load_cooldown);
  v("planner", x.planner);
}

template <class V>
void fields(V& v, Like<Configure> auto& x) {
  v.type("Configure");
  v("options", x.options);
  v("models", x.models);
  v("devices", x.devices);
}

template <class V>
void fields(V& v, Like<RequestArrived> auto& x) {
  v.type("RequestArrived");
  v("request", x.request);
  v("model", x.model);
  v("priority", x.priority);
  v("prompt_tokens", x.prompt_tokens);
  v("max_tokens", x.max_tokens);
  v("open_ended", x.open_ended);
  v("deadline", x.deadline);
}

template <class V>
void fields(V& v, Like<RequestFinished> auto& x) {
  v.type("RequestFinished");
  v("request", x.request);
  v("ttft", x.ttft);
  v("tpot", x.tpot);
}

template <class V>
void fields(V& v, Like<RequestCancelled> auto& x) {
  v.type("RequestCancelled");
  v("request", x.request);
}

template <class V>
void fields(V& v, Like<AdminLoad> auto& x) {
  v.type("AdminLoad");
  v("ticket", x.ticket);
  v("model", x.model);
}

template <class V>
void fields(V& v, Like<AdminUnload> auto& x) {
  v.type("AdminUnload");
  v("ticket", x.ticket);
  v("model", x.model);
  v("why", x.why);
}

template <class V>
void fields(V& v, Like<WorkerUp> auto& x) {
  v.type("WorkerUp");
  v("device", x.device);
  v("epoch", x.epoch);
}

template <class V>
void fields(V& v, Like<WorkerDown> auto& x) {
  v.type("WorkerDown");
  v("device", x.device);
  v("epoch", x.epoch);
  v("killed", x.killed);
  v("advanced", x.advanced);
}

template <class V>
void fields(V& v, Like<ImageFailed> auto& x) {
  v.type("ImageFailed");
  v("device", x.device);
  v("epoch", x.epoch);
  v("model", x.model);
  v("reason", x.reason);
}

template <class V>
void fields(V& v, Like<ImageState> auto& x) {
  v.type("ImageState");
  v("model", x.model);
  v("bytes", x.bytes);
  v("host_cached", x.host_cached);
}

template <class V>
void fields(V& v, Like<EngineSaid> auto& x) {
  v.type("EngineSaid");
  v("device", x.device);
  v("model", x.model);
  v("news", x.news);
  v("held_pages", x.held_pages);
  v("swap_out", x.swap_out);
  v("swap_in", x.swap_in);
  v("reason", x.reason);
}

template <class V>
void fields(V& v, Like<RequestUnanswered> auto& x) {
  v.type("RequestUnanswered");
  v("request", x.request);
}

template <class V>
void fields(V& v, Like<DrainManager> auto& x) {
  v.type("DrainManager");
  v("deadline", x.deadline);
}

template <class V>
void fields(V& v, Like<LoadRemembered> auto& x) {
  v.type("LoadRemembered");
  v("model", x.model);
  v("windows", x.windows);
}

template <class V>
void fields(V& v, Like<Decision> auto& x) {
  v.type("Decision");
  v("kind", x.kind);
  v("model", x.model);
  v("device", x.device);
  v("for_model", x.for_model);
  v("why", x.why);
}

template <class V>
void fields(V& v, Like<LoadMeasured> auto& x) {
  v.type("LoadMeasured");
  v("model", x.model);
  v("window", x.window);
  v("load", x.load);
}

template <class V>
void fields(V& v, Like<Dispatch> auto& x) {
  v.type("Dispatch");
  v("request", x.request);
  v("device", x.device);
  v("epoch", x.epoch);
  v("tokens", x.tokens);
  v("due", x.due);
}

template <class V>
void fields(V& v, Like<Hold> auto& x) {
  v.type("Hold");
  v("request", x.request);
}

template <class V>
void fields(V& v, Like<TellWorker> auto& x) {
  v.type("TellWorker");
  v("device", x.device);
  v("epoch", x.epoch);
  v("message", x.message);
}

template <class V>
void fields(V& v, Like<FailRequest> auto& x) {
  v.type("FailRequest");
  v("request", x.request);
  v("error", x.error);
}

template <class V>
void fields(V& v, Like<AdminDone> auto& x) {
  v.type("AdminDone");
  v("ticket", x.ticket);
  v("error", x.error);
}

template <class V>
void fields(V& v, Like<Drained> auto& /*x*/) {
  v.type("Drained");
}

template <class V>
void fields(V& v, Like<PagesBacked> auto& x) {
  v.type("PagesBacked");
  v("device", x.device);
  v("model", x.model);
  v("pages", x.pages);
}

template <class V>
void fields(V& v, Like<GrantLoan> auto& x) {
  v.type("GrantLoan");
  v("device", x.device);
  v("model", x.model);
  v("pages", x.pages);
}

template <class V>
void fields(V& v, Like<RefuseLoan> auto& x) {
  v.type("RefuseLoan");
  v("model", x.model);
  v("reason", x.reason);
}

template <class V>
void fields(V& v, Like<EndLoan> auto& x) {
  v.type("EndLoan");
  v("model", x.model);
}

template <class V>
void fields(V& v, Like<BackPages> auto& x) {
  v.type("BackPages");
  v("device", x.device);
  v("model", x.model);
  v("pages", x.pages);
}

template <class V>
void fields(V& v, Like<Borrow> auto& x) {
  v.type("Borrow");
  v("device", x.device);
  v("model", x.model);
  v("basis", x.basis);
  v("pages", x.pages);
}

template <class V>
void fields(V& v, Like<Repay> auto& x) {
  v.type("Repay");
  v("device", x.device);
  v("model", x.model);
  v("pages", x.pages);
}

}  // namespace heddle::core
