#pragma once

#include <concepts>
#include <type_traits>

#include "core/messages.h"

/// The fields of what cores hear and say, by name, for the event log. `fields(v, x)` calls
/// v.type(name of the type), then v(name, field) for each field in order; codec_test.cc counts
/// them.
namespace heddle::core {

template <class T, class U>
concept Like = std::same_as<std::remove_const_t<T>, U>;

template <class V>
void fields(V& v, Like<policy::KvGroup> auto& x) {
  v.type("KvGroup");
  v("tokens_per_block", x.tokens_per_block);
  v("blocks_per_page", x.blocks_per_page);
  v("window", x.window);
}

template <class V>
void fields(V& v, Like<policy::Footprint> auto& x) {
  v.type("Footprint");
  v("image_pages", x.image_pages);
  v("overhead_pages", x.overhead_pages);
  v("min_kv_pages", x.min_kv_pages);
  v("recording_pages", x.recording_pages);
  v("kv", x.kv);
}

template <class V>
void fields(V& v, Like<policy::StepSlice> auto& x) {
  v.type("StepSlice");
  v("sequence", x.sequence);
  v("tokens", x.tokens);
}

template <class V>
void fields(V& v, Like<policy::ModelBatch> auto& x) {
  v.type("ModelBatch");
  v("model", x.model);
  v("slices", x.slices);
}

template <class V>
void fields(V& v, Like<policy::StepPlan> auto& x) {
  v.type("StepPlan");
  v("batches", x.batches);
  v("predicted", x.predicted);
  v("stable_steps", x.stable_steps);
}

template <class V>
void fields(V& v, Like<ledger::Share> auto& x) {
  v.type("Share");
  v("reserved", x.reserved);
  v("held", x.held);
}

template <class V>
void fields(V& v, Like<ledger::PoolUsage> auto& x) {
  v.type("PoolUsage");
  v("total", x.total);
  v("free", x.free);
  v("by_kind", x.by_kind);
  v("version", x.version);
}

template <class V>
void fields(V& v, Like<spec::Grammar> auto& x) {
  v.type("Grammar");
  v("kind", x.kind);
  v("text", x.text);
  v("thought", x.thought);
}

template <class V>
void fields(V& v, Like<spec::TokenLogprob> auto& x) {
  v.type("TokenLogprob");
  v("token", x.token);
  v("logprob", x.logprob);
}

template <class V>
void fields(V& v, Like<spec::TokenDetails> auto& x) {
  v.type("TokenDetails");
  v("logprobs", x.logprobs);
  v("embedding", x.embedding);
  v("cached_tokens", x.cached_tokens);
}

template <class V>
void fields(V& v, Like<spec::SamplingParams> auto& x) {
  v.type("SamplingParams");
  v("temperature", x.temperature);
  v("top_p", x.top_p);
  v("top_k", x.top_k);
  v("min_p", x.min_p);
  v("presence_penalty", x.presence_penalty);
  v("frequency_penalty", x.frequency_penalty);
  v("repetition_penalty", x.repetition_penalty);
  v("logit_bias", x.logit_bias);
  v("seed", x.seed);
  v("choice", x.choice);
  v("max_tokens", x.max_tokens);
  v("ignore_eos", x.ignore_eos);
  v("stop_tokens", x.stop_tokens);
  v("logprobs", x.logprobs);
  v("grammar", x.grammar);
  v("pooling", x.pooling);
}

template <class V>
void fields(V& v, Like<Error> auto& x) {
  v.type("Error");
  v("code", x.code);
  v("message", x.message);
}

template <class V>
void fields(V& v, Like<TokenEvent> auto& x) {
  v.type("TokenEvent");
  v("request", x.request);
  v("choice", x.choice);
  v("position", x.position);
  v("token", x.token);
  v("finish", x.finish);
  v("details", x.details);
}

template <class V>
void fields(V& v, Like<Tick> auto& /*x*/) {
  v.type("Tick");
}

template <class V>
void fields(V& v, Like<WakeAt> auto& x) {
  v.type("WakeAt");
  v("at", x.at);
}

template <class V>
void fields(V& v, Like<GroupMember> auto& x) {
  v.type("GroupMember");
  v("device", x.device);
  v("epoch", x.epoch);
  v("model", x.model);
}

template <class V>
void fields(V& v, Like<FormGroup> auto& x) {
  v.type("FormGroup");
  v("members", x.members);
}

template <class V>
void fields(V& v, Like<Basis> auto& x) {
  v.type("Basis");
  v("epoch", x.epoch);
  v("version", x.version);
}

template <class V>
void fields(V& v, Like<LoadOn> auto& x) {
  v.type("LoadOn");
  v("device", x.device);
  v("model", x.model);
  v("basis", x.basis);
}

template <class V>
void fields(V& v, Like<EvictFrom> auto& x) {
  v.type("EvictFrom");
  v("device", x.device);
  v("model", x.model);
  v("basis", x.basis);
  v("mode", x.mode);
  v("last_used", x.last_used);
  v("free_pages", x.free_pages);
}

template <class V>
void fields(V& v, Like<LoadModel> auto& x) {
  v.type("LoadModel");
  v("model", x.model);
  v("basis", x.basis);
  v("source", x.source);
  v("pages", x.pages);
  v("image_bytes", x.image_bytes);
  v("ready_bytes", x.ready_bytes);
  v("footprint", x.footprint);
}

template <class V>
void fields(V& v, Like<LendPages> auto& x) {
  v.type("LendPages");
  v("model", x.model);
  v("basis", x.basis);
  v("count", x.count);
}

template <class V>
void fields(V& v, Like<GivePages> auto& x) {
  v.type("GivePages");
  v("pages", x.pages);
}

template <class V>
void fields(V& v, Like<ImageGone> auto& x) {
  v.type("ImageGone");
  v("model", x.model);
}

template <class V>
void fields(V& v, Like<EvictModel> auto& x) {
  v.type("EvictModel");
  v("model", x.model);
  v("basis", x.basis);
  v("mode", x.mode);
  v("pages", x.pages);
}

template <class V>
void fields(V& v, Like<ImageProgress> auto& x) {
  v.type("ImageProgress");
  v("model", x.model);
  v("bytes", x.bytes);
}

template <class V>
void fields(V& v, Like<SubmitChoice> auto& x) {
  v.type("SubmitChoice");
  v("generated", x.generated);
  v("params", x.params);
}

template <class V>
void fields(V& v, Like<Submit> auto& x) {
  v.type("Submit");
  v("request", x.request);
  v("model", x.model);
  v("prompt", x.prompt);
  v("choices", x.choices);
  v("age", x.age);
  v("due", x.due);
  v("priority", x.priority);
  v("client", x.client);
  v("cache_salt", x.cache_salt);
}

template <class V>
void fields(V& v, Like<CancelRequest> auto& x) {
  v.type("CancelRequest");
  v("request", x.request);
}

template <class V>
void fields(V& v, Like<RecallRequests> auto& x) {
  v.type("RecallRequests");
  v("model", x.model);
  v("most", x.most);
}

template <class V>
void fields(V& v, Like<FinishChoice> auto& x) {
  v.type("FinishChoice");
  v("request", x.request);
  v("choice", x.choice);
}

template <class V>
void fields(V& v, Like<NoPages> auto& /*x*/) {
  v.type("NoPages");
}

template <class V>
void fields(V& v, Like<ModelServing> auto& x) {
  v.type("ModelServing");
  v("model", x.model);
}

template <class V>
void fields(V& v, Like<LoadRefused> auto& x) {
  v.type("LoadRefused");
  v("model", x.model);
  v("version", x.version);
  v("reason", x.reason);
}

template <class V>
void fields(V& v, Like<LoadFailed> auto& x) {
  v.type("LoadFailed");
  v("model", x.model);
  v("version", x.version);
  v("reason", x.reason);
}

template <class V>
void fields(V& v, Like<EvictRefused> auto& x) {
  v.type("EvictRefused");
  v("model", x.model);
  v("version", x.version);
  v("reason", x.reason);
}

template <class V>
void fields(V& v, Like<ModelEvicted> auto& x) {
  v.type("ModelEvicted");
  v("model", x.model);
  v("exchanged", x.exchanged);
}

template <class V>
void fields(V& v, Like<PagesReturned> auto& x) {
  v.type("PagesReturned");
  v("model", x.model);
  v("pages", x.pages);
}

template <class V>
void fields(V& v, Like<ImageCopied> auto& x) {
  v.type("ImageCopied");
  v("model", x.model);
}

template <class V>
void fields(V& v, Like<TokensProduced> auto& x) {
  v.type("TokensProduced");
  v("tokens", x.tokens);
}

template <class V>
void fields(V& v, Like<RequestReturned> auto& x) {
  v.type("RequestReturned");
  v("request", x.request);
  v("recalled", x.recalled);
}

template <class V>
void fields(V& v, Like<RequestFailed> auto& x) {
  v.type("RequestFailed");
  v("request", x.request);
  v("error", x.error);
}

template <class V>
void fields(V& v, Like<ResidentReport> auto& x) {
  v.type("ResidentReport");
  v("model", x.model);
  v("residency", x.residency);
  v("kv_pages", x.kv_pages);
  v("sequences", x.sequences);
  v("sequences_admitted", x.sequences_admitted);
  v("complete", x.complete);
}

template <class V>
void fields(V& v, Like<DeviceReport> auto& x) {
  v.type("DeviceReport");
  v("version", x.version);
  v("usage", x.usage);
  v("models", x.models);
  v("pages_wanted", x.pages_wanted);
  v("wanted_by", x.wanted_by);
  v("short_sequences", x.short_sequences);
  v("short_pages", x.short_pages);
  v("short_model", x.short_model);
}

template <class V>
void fields(V& v, Like<WorkerSaid> auto& x) {
  v.type("WorkerSaid");
  v("device", x.device);
  v("epoch", x.epoch);
  v("report", x.report);
}

}  // namespace heddle::core
