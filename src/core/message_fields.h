#pragma once

#include "base/describe.h"
#include "core/messages.h"

/// What cores and workers say to each other, described (base/describe.h): each field by its number
/// and name. The numbers of messages and fields are for ever; docs/contracts/wire.md has the rules,
/// docs/contracts/wire_numbers.txt all that are taken. codec_test.cc counts the fields.
namespace heddle {

inline void fields(Fields& v, policy::KvGroup& x) {
  v.type("KvGroup");
  v(1, "tokens_per_block", x.tokens_per_block);
  v(2, "blocks_per_page", x.blocks_per_page);
  v(3, "window", x.window, kCount);
  v.require(x, "blocks that hold something", [](const policy::KvGroup& group) {
    return group.tokens_per_block > 0 && group.blocks_per_page > 0;
  });
}

inline void fields(Fields& v, policy::Footprint& x) {
  v.type("Footprint");
  v(1, "image_pages", x.image_pages, kCount);
  v(2, "overhead_pages", x.overhead_pages, kCount);
  v(3, "min_kv_pages", x.min_kv_pages, kCount);
  v(4, "graph_pages", x.graph_pages, kCount);
  v(5, "kv", x.kv);
}

inline void fields(Fields& v, policy::StepSlice& x) {
  v.type("StepSlice");
  v(1, "sequence", x.sequence);
  v(2, "tokens", x.tokens);
}

inline void fields(Fields& v, policy::ModelBatch& x) {
  v.type("ModelBatch");
  v(1, "model", x.model);
  v(2, "slices", x.slices);
}

inline void fields(Fields& v, policy::StepPlan& x) {
  v.type("StepPlan");
  v(1, "batches", x.batches);
  v(2, "predicted", x.predicted);
  v(3, "stable_steps", x.stable_steps);
}

inline void fields(Fields& v, ledger::Share& x) {
  v.type("Share");
  v(1, "reserved", x.reserved, kCount);
  v(2, "held", x.held, kCount);
}

inline void fields(Fields& v, ledger::PoolUsage& x) {
  v.type("PoolUsage");
  v(1, "total", x.total, kCount);
  v(2, "free", x.free, kCount);
  v(3, "by_kind", x.by_kind);
  v(4, "version", x.version);
}

inline void fields(Fields& v, spec::Grammar& x) {
  v.type("Grammar");
  v(1, "kind", x.kind);
  v(2, "text", x.text);
  v(3, "thought", x.thought);
}

inline void fields(Fields& v, spec::TokenLogprob& x) {
  v.type("TokenLogprob");
  v(1, "token", x.token);
  v(2, "logprob", x.logprob);
}

inline void fields(Fields& v, spec::PromptToken& x) {
  v.type("PromptToken");
  v(1, "logprobs", x.logprobs);
}

inline void fields(Fields& v, spec::TokenDetails& x) {
  v.type("TokenDetails");
  v(1, "logprobs", x.logprobs);
  v(2, "embedding", x.embedding);
  v(3, "cached_tokens", x.cached_tokens, kCount);
  v(4, "prompt", x.prompt);
}

inline void fields(Fields& v, spec::BadWord& x) {
  v.type("BadWord");
  v(1, "tokens", x.tokens);
}

inline void fields(Fields& v, spec::SamplingParams& x) {
  v.type("SamplingParams");
  v(1, "temperature", x.temperature);
  v(2, "top_p", x.top_p);
  v(3, "top_k", x.top_k);
  v(4, "min_p", x.min_p);
  v(5, "presence_penalty", x.presence_penalty);
  v(6, "frequency_penalty", x.frequency_penalty);
  v(7, "repetition_penalty", x.repetition_penalty);
  v(8, "logit_bias", x.logit_bias);
  v(9, "seed", x.seed);
  v(10, "choice", x.choice);
  v(11, "max_tokens", x.max_tokens, kCount);
  v(12, "ignore_eos", x.ignore_eos);
  v(13, "stop_tokens", x.stop_tokens);
  v(14, "logprobs", x.logprobs);
  v(15, "grammar", x.grammar);
  v(16, "pooling", x.pooling);
  v(17, "prompt_logprobs", x.prompt_logprobs);
  v(18, "min_tokens", x.min_tokens, kCount);
  v(19, "bad_words", x.bad_words);
  v(58, "in_one_pass", x.in_one_pass);
  v(59, "second_text", x.second_text, kCount);
}

inline void fields(Fields& v, Error& x) {
  v.type("Error");
  v(1, "code", x.code);
  v(2, "message", x.message);
}

namespace core {

inline void fields(Fields& v, TokenEvent& x) {
  v.type("TokenEvent");
  v(1, "request", x.request);
  v(2, "choice", x.choice);
  v(3, "position", x.position, kCount);
  v(4, "token", x.token);
  v(5, "finish", x.finish);
  v(6, "details", x.details);
  v(7, "preempted", x.preempted);
}

inline void fields(Fields& v, Tick& /*x*/) {
  v.message(16, "Tick");
}

inline void fields(Fields& v, WakeAt& x) {
  v.message(17, "WakeAt");
  v(1, "at", x.at);
}

inline void fields(Fields& v, GroupMember& x) {
  v.type("GroupMember");
  v(1, "device", x.device);
  v(2, "epoch", x.epoch);
  v(3, "model", x.model);
}

inline void fields(Fields& v, GroupId& x) {
  v.type("GroupId");
  v(1, "term", x.term);
  v(2, "number", x.number);
}

inline void fields(Fields& v, GroupHost& x) {
  v.type("GroupHost");
  v(1, "id", x.id);
  v(2, "name", x.name);
  v(3, "address", x.address);
  v(4, "port", x.port);
}

inline void fields(Fields& v, FormGroup& x) {
  v.message(18, "FormGroup");
  v(1, "members", x.members);
  v(2, "group", x.group);
  v(3, "hosts", x.hosts);
}

inline void fields(Fields& v, Basis& x) {
  v.type("Basis");
  v(1, "epoch", x.epoch);
  v(2, "version", x.version);
}

inline void fields(Fields& v, LoadOn& x) {
  v.message(19, "LoadOn");
  v(1, "device", x.device);
  v(2, "model", x.model);
  v(3, "basis", x.basis);
  v(4, "early", x.early);
  v(5, "due_in", x.due_in, kCount);
  v(6, "peers", x.peers);
}

inline void fields(Fields& v, EvictFrom& x) {
  v.message(20, "EvictFrom");
  v(1, "device", x.device);
  v(2, "model", x.model);
  v(3, "basis", x.basis);
  v(4, "mode", x.mode);
  v(6, "free_pages", x.free_pages, kCount);
  v(7, "idle", x.idle, kCount);
}

inline void fields(Fields& v, Weave& x) {
  v.message(123, "Weave");
  v(1, "host", x.host);
  v(2, "basis", x.basis);
  v(3, "hot", x.hot);
  v(4, "hot_epoch", x.hot_epoch);
  v(5, "model", x.model);
  v(6, "pages", x.pages, kCount);
}

inline void fields(Fields& v, Unweave& x) {
  v.message(124, "Unweave");
  v(1, "host", x.host);
  v(2, "model", x.model);
  v(3, "pages", x.pages, kCount);
}

inline void fields(Fields& v, LendGuests& x) {
  v.message(125, "LendGuests");
  v(1, "model", x.model);
  v(2, "pages", x.pages);
}

inline void fields(Fields& v, RecallGuests& x) {
  v.message(126, "RecallGuests");
  v(1, "model", x.model);
  v(2, "count", x.count, kCount);
}

inline void fields(Fields& v, GuestsReturned& x) {
  v.message(127, "GuestsReturned");
  v(1, "model", x.model);
  v(2, "pages", x.pages);
  v(3, "failure", x.failure);
}

inline void fields(Fields& v, GuestsShared& x) {
  v.message(141, "GuestsShared");
  v(1, "model", x.model);
  v(2, "pages", x.pages);
  v(3, "failure", x.failure);
}

inline void fields(Fields& v, LoadModel& x) {
  v.message(21, "LoadModel");
  v(1, "model", x.model);
  v(2, "basis", x.basis);
  v(3, "source", x.source);
  v(4, "pages", x.pages);
  v(5, "image_bytes", x.image_bytes);
  v(6, "ready_bytes", x.ready_bytes);
  v(7, "footprint", x.footprint);
}

inline void fields(Fields& v, LendPages& x) {
  v.message(22, "LendPages");
  v(1, "model", x.model);
  v(2, "basis", x.basis);
  v(3, "count", x.count, kCount);
}

inline void fields(Fields& v, GivePages& x) {
  v.message(23, "GivePages");
  v(1, "pages", x.pages);
}

inline void fields(Fields& v, ImageGone& x) {
  v.message(24, "ImageGone");
  v(1, "model", x.model);
}

inline void fields(Fields& v, ForgetKv& x) {
  v.message(250, "ForgetKv");
  v(1, "model", x.model);
}

inline void fields(Fields& v, EvictModel& x) {
  v.message(25, "EvictModel");
  v(1, "model", x.model);
  v(2, "basis", x.basis);
  v(3, "mode", x.mode);
  v(4, "pages", x.pages);
}

inline void fields(Fields& v, ImageProgress& x) {
  v.message(12, "ImageProgress");
  v(1, "model", x.model);
  v(2, "bytes", x.bytes);
}

inline void fields(Fields& v, SubmitChoice& x) {
  v.type("SubmitChoice");
  v(1, "generated", x.generated);
  v(2, "params", x.params);
}

inline void fields(Fields& v, KvSource& x) {
  v.type("KvSource");
  v(1, "device", x.device);
  v(2, "model", x.model);
  v(3, "host", x.host);
}

inline void fields(Fields& v, Submit& x) {
  v.message(11, "Submit");
  v(1, "request", x.request);
  v(2, "model", x.model);
  v(3, "prompt", x.prompt);
  v(4, "choices", x.choices);
  v(5, "age", x.age, kCount);
  v(6, "due", x.due);
  v(7, "priority", x.priority);
  v(8, "client", x.client);
  v(9, "cache_salt", x.cache_salt);
  v(10, "kv", x.kv);
  v(11, "adapter", x.adapter);
}

inline void fields(Fields& v, CancelRequest& x) {
  v.message(26, "CancelRequest");
  v(1, "request", x.request);
}

inline void fields(Fields& v, RecallRequests& x) {
  v.message(27, "RecallRequests");
  v(1, "model", x.model);
  v(2, "most", x.most, kCount);
  v(3, "begun", x.begun);
}

inline void fields(Fields& v, Gather& x) {
  v.message(199, "Gather");
  v(1, "model", x.model);
  v(2, "into", x.into);
}

inline void fields(Fields& v, FinishChoice& x) {
  v.message(28, "FinishChoice");
  v(1, "request", x.request);
  v(2, "choice", x.choice);
}

inline void fields(Fields& v, FitShare& x) {
  v.message(229, "FitShare");
  v(1, "model", x.model);
  v(2, "idle", x.idle);
}

inline void fields(Fields& v, StepBack& x) {
  v.message(236, "StepBack");
  v(1, "model", x.model);
}

inline void fields(Fields& v, SteppedBack& x) {
  v.message(237, "SteppedBack");
  v(1, "model", x.model);
}

inline void fields(Fields& v, NoPages& x) {
  v.message(29, "NoPages");
  v(1, "model", x.model);
}

inline void fields(Fields& v, ModelServing& x) {
  v.message(30, "ModelServing");
  v(1, "model", x.model);
}

inline void fields(Fields& v, LoadRefused& x) {
  v.message(31, "LoadRefused");
  v(1, "model", x.model);
  v(2, "version", x.version);
  v(3, "reason", x.reason);
}

inline void fields(Fields& v, LoadFailed& x) {
  v.message(32, "LoadFailed");
  v(1, "model", x.model);
  v(2, "version", x.version);
  v(3, "reason", x.reason);
}

inline void fields(Fields& v, EvictRefused& x) {
  v.message(33, "EvictRefused");
  v(1, "model", x.model);
  v(2, "version", x.version);
  v(3, "reason", x.reason);
}

inline void fields(Fields& v, ModelEvicted& x) {
  v.message(34, "ModelEvicted");
  v(1, "model", x.model);
  v(2, "exchanged", x.exchanged);
}

inline void fields(Fields& v, PagesReturned& x) {
  v.message(35, "PagesReturned");
  v(1, "model", x.model);
  v(2, "pages", x.pages);
}

inline void fields(Fields& v, ImageCopied& x) {
  v.message(36, "ImageCopied");
  v(1, "model", x.model);
}

inline void fields(Fields& v, TokensProduced& x) {
  v.message(9, "TokensProduced");
  v(1, "tokens", x.tokens);
}

inline void fields(Fields& v, RequestReturned& x) {
  v.message(37, "RequestReturned");
  v(1, "request", x.request);
  v(2, "recalled", x.recalled);
}

inline void fields(Fields& v, KvMoved& x) {
  v.message(200, "KvMoved");
  v(1, "model", x.model);
  v(2, "tokens", x.tokens);
  v(3, "computed", x.computed);
  v(4, "request", x.request);
}

inline void fields(Fields& v, RequestFailed& x) {
  v.message(38, "RequestFailed");
  v(1, "request", x.request);
  v(2, "error", x.error);
}

inline void fields(Fields& v, ResidentReport& x) {
  v.type("ResidentReport");
  v(1, "model", x.model);
  v(2, "residency", x.residency);
  v(3, "kv_pages", x.kv_pages, kCount);
  v(4, "sequences", x.sequences, kCount);
  v(5, "sequences_admitted", x.sequences_admitted, kCount);
  v(6, "complete", x.complete);
  v(7, "lent_pages", x.lent_pages, kCount);
  v(8, "guest_pages", x.guest_pages, kCount);
  v(9, "attention", x.attention);
  v(10, "guest_loss", x.guest_loss);
  v(11, "reading", x.reading);
  v(12, "late", x.late, kCount);
  v(13, "adapters", x.adapters);
}

inline void fields(Fields& v, DeviceReport& x) {
  v.message(10, "DeviceReport");
  v(1, "version", x.version);
  v(2, "usage", x.usage);
  v(3, "models", x.models);
  v(4, "pages_wanted", x.pages_wanted, kCount);
  v(5, "wanted_by", x.wanted_by);
  v(6, "short_sequences", x.short_sequences, kCount);
  v(7, "short_pages", x.short_pages, kCount);
  v(8, "short_model", x.short_model);
  v(9, "step", x.step);
}

inline void fields(Fields& v, WorkerSaid& x) {
  v.message(39, "WorkerSaid");
  v(1, "device", x.device);
  v(2, "epoch", x.epoch);
  v(3, "report", x.report);
}

}  // namespace core
}  // namespace heddle
