#pragma once

#include "core/message_fields.h"
#include "core/worker_core.h"

/// As message_fields.h, for the events and commands of WorkerCore.
namespace heddle {

namespace core {

inline void fields(Fields& v, ModelOpened& x) {
  v.message(40, "ModelOpened");
  v(1, "model", x.model);
}

inline void fields(Fields& v, OpenFailed& x) {
  v.message(41, "OpenFailed");
  v(1, "model", x.model);
  v(2, "error", x.error);
}

inline void fields(Fields& v, ModelClosed& x) {
  v.message(42, "ModelClosed");
  v(1, "model", x.model);
}

inline void fields(Fields& v, GraphsKept& x) {
  v.message(43, "GraphsKept");
  v(1, "pages", x.pages);
}

inline void fields(Fields& v, CopyProgress& x) {
  v.message(44, "CopyProgress");
  v(1, "model", x.model);
  v(2, "bytes", x.bytes);
}

inline void fields(Fields& v, SequenceRefused& x) {
  v.message(45, "SequenceRefused");
  v(1, "sequence", x.sequence);
  v(2, "error", x.error);
}

inline void fields(Fields& v, SequenceReady& x) {
  v.message(46, "SequenceReady");
  v(1, "sequence", x.sequence);
}

inline void fields(Fields& v, SliceDone& x) {
  v.type("SliceDone");
  v(1, "sequence", x.sequence);
  v(2, "computed", x.computed);
  v(3, "token", x.token);
  v(4, "position", x.position);
  v(5, "finish", x.finish);
  v(6, "details", x.details);
}

inline void fields(Fields& v, KvHeld& x) {
  v.type("KvHeld");
  v(1, "model", x.model);
  v(2, "pages", x.pages);
  v(3, "guest_pages", x.guest_pages);
}

inline void fields(Fields& v, GuestsMoved& x) {
  v.message(128, "GuestsMoved");
  v(1, "sequence", x.sequence);
  v(2, "tokens", x.tokens);
  v(3, "counted", x.counted);
}

inline void fields(Fields& v, TakeGuestPages& x) {
  v.message(129, "TakeGuestPages");
  v(1, "model", x.model);
  v(2, "pages", x.pages);
}

inline void fields(Fields& v, ReturnGuestPages& x) {
  v.message(130, "ReturnGuestPages");
  v(1, "model", x.model);
  v(2, "count", x.count);
}

inline void fields(Fields& v, MoveOut& x) {
  v.message(131, "MoveOut");
  v(1, "sequence", x.sequence);
  v(2, "tokens", x.tokens);
}

inline void fields(Fields& v, MoveHome& x) {
  v.message(132, "MoveHome");
  v(1, "sequence", x.sequence);
}

inline void fields(Fields& v, PrefixTaken& x) {
  v.type("PrefixTaken");
  v(1, "sequence", x.sequence);
  v(2, "computed", x.computed);
}

inline void fields(Fields& v, PrefixesTaken& x) {
  v.message(47, "PrefixesTaken");
  v(1, "sequences", x.sequences);
}

inline void fields(Fields& v, KvCounted& x) {
  v.message(48, "KvCounted");
  v(1, "kv", x.kv);
  v(2, "cached_pages", x.cached_pages);
}

inline void fields(Fields& v, GuestTimes& x) {
  v.type("GuestTimes");
  v(1, "home", x.home);
  v(2, "positions", x.positions);
  v(3, "waited", x.waited);
}

inline void fields(Fields& v, StepDone& x) {
  v.message(49, "StepDone");
  v(1, "slices", x.slices);
  v(2, "starved", x.starved);
  v(3, "unready", x.unready);
  v(4, "counted", x.counted);
  v(5, "took", x.took);
  v(6, "guests", x.guests);
  v(7, "hosting", x.hosting);
  v(8, "in_pipe", x.in_pipe);
}

inline void fields(Fields& v, PipeJoined& x) {
  v.message(210, "PipeJoined");
  v(1, "model", x.model);
  v(2, "stage", x.stage);
  v(3, "shared", x.shared);
}

inline void fields(Fields& v, PipeShare& x) {
  v.type("PipeShare");
  v(1, "kv", x.kv);
  v(2, "pages", x.pages, kCount);
}

inline void fields(Fields& v, PipeReady& x) {
  v.message(211, "PipeReady");
  v(1, "model", x.model);
  v(2, "followers", x.followers);
}

inline void fields(Fields& v, PipeLeft& x) {
  v.message(212, "PipeLeft");
  v(1, "model", x.model);
}

inline void fields(Fields& v, PipeReturned& x) {
  v.message(213, "PipeReturned");
  v(1, "model", x.model);
  v(2, "slices", x.slices);
  v(3, "unready", x.unready);
  v(4, "refused", x.refused);
  v(5, "counted", x.counted);
}

inline void fields(Fields& v, ReservePipe& x) {
  v.message(214, "ReservePipe");
  v(1, "model", x.model);
  v(2, "pages", x.pages);
  v(3, "kv", x.kv);
}

inline void fields(Fields& v, GroupJoined& x) {
  v.message(230, "GroupJoined");
  v(1, "model", x.model);
  v(2, "leads", x.leads);
}

inline void fields(Fields& v, ShareAsked& x) {
  v.message(231, "ShareAsked");
  v(1, "model", x.model);
  v(2, "pages", x.pages, kCount);
}

inline void fields(Fields& v, ShareSet& x) {
  v.message(232, "ShareSet");
  v(1, "model", x.model);
  v(2, "pages", x.pages, kCount);
}

inline void fields(Fields& v, SizeShare& x) {
  v.message(233, "SizeShare");
  v(1, "model", x.model);
  v(2, "pages", x.pages, kCount);
}

inline void fields(Fields& v, LeaveRanks& x) {
  v.message(238, "LeaveRanks");
  v(1, "model", x.model);
}

inline void fields(Fields& v, RanksLeft& x) {
  v.message(239, "RanksLeft");
  v(1, "model", x.model);
}

inline void fields(Fields& v, GatherKv& x) {
  v.message(202, "GatherKv");
  v(1, "sequence", x.sequence);
  v(2, "into", x.into);
  v(3, "tokens", x.tokens);
}

inline void fields(Fields& v, EndGather& x) {
  v.message(203, "EndGather");
  v(1, "sequence", x.sequence);
}

inline void fields(Fields& v, KvGathered& x) {
  v.message(204, "KvGathered");
  v(1, "sequence", x.sequence);
  v(2, "asked", x.asked);
  v(3, "there", x.there);
  v(4, "usable", x.usable);
  v(5, "block_tokens", x.block_tokens);
  v(6, "failed", x.failed);
  v(7, "counted", x.counted);
}

inline void fields(Fields& v, FetchKv& x) {
  v.message(224, "FetchKv");
  v(1, "sequence", x.sequence);
  v(2, "from", x.from);
}

inline void fields(Fields& v, EndFetch& x) {
  v.message(225, "EndFetch");
  v(1, "sequence", x.sequence);
}

inline void fields(Fields& v, KvFetched& x) {
  v.message(226, "KvFetched");
  v(1, "sequence", x.sequence);
  v(2, "computed", x.computed, kCount);
  v(3, "done", x.done);
  v(4, "counted", x.counted);
}

inline void fields(Fields& v, EngineIdle& /*x*/) {
  v.message(50, "EngineIdle");
}

inline void fields(Fields& v, AdoptPages& x) {
  v.message(51, "AdoptPages");
  v(1, "pages", x.pages);
}

inline void fields(Fields& v, SurrenderPages& x) {
  v.message(52, "SurrenderPages");
  v(1, "model", x.model);
  v(2, "count", x.count);
}

inline void fields(Fields& v, OpenModel& x) {
  v.message(53, "OpenModel");
  v(1, "model", x.model);
  v(2, "source", x.source);
  v(3, "pages", x.pages);
  v(4, "image_bytes", x.image_bytes);
  v(5, "ready_bytes", x.ready_bytes);
  v(6, "part_pages", x.part_pages, kCount);
}

inline void fields(Fields& v, FitWorkspace& x) {
  v.message(54, "FitWorkspace");
  v(1, "pages", x.pages);
}

inline void fields(Fields& v, KeepGraphs& x) {
  v.message(55, "KeepGraphs");
  v(1, "pages", x.pages);
}

inline void fields(Fields& v, CloseModel& x) {
  v.message(56, "CloseModel");
  v(1, "model", x.model);
  v(2, "image", x.image);
}

inline void fields(Fields& v, LetGoWindow& x) {
  v.message(57, "LetGoWindow");
  v(1, "model", x.model);
}

inline void fields(Fields& v, SetImageReady& x) {
  v.message(58, "SetImageReady");
  v(1, "model", x.model);
  v(2, "bytes", x.bytes);
}

inline void fields(Fields& v, PrioritiseCopy& x) {
  v.message(59, "PrioritiseCopy");
  v(1, "model", x.model);
}

inline void fields(Fields& v, SetSourceReady& x) {
  v.message(60, "SetSourceReady");
  v(1, "model", x.model);
  v(2, "bytes", x.bytes);
}

inline void fields(Fields& v, AddSequence& x) {
  v.message(13, "AddSequence");
  v(1, "sequence", x.sequence);
  v(2, "model", x.model);
  v(3, "tokens", x.tokens);
  v(4, "prompt_tokens", x.prompt_tokens);
  v(5, "params", x.params);
  v(6, "cache_salt", x.cache_salt);
  v(7, "adapter", x.adapter);
}

inline void fields(Fields& v, TakePrefixes& x) {
  v.message(61, "TakePrefixes");
  v(1, "sequences", x.sequences);
  v(2, "computing", x.computing);
}

inline void fields(Fields& v, DropKept& x) {
  v.message(251, "DropKept");
  v(1, "model", x.model);
}

inline void fields(Fields& v, TrimCached& x) {
  v.message(62, "TrimCached");
  v(1, "keep", x.keep);
  v(2, "reason", x.reason);
}

inline void fields(Fields& v, PreemptSequence& x) {
  v.message(63, "PreemptSequence");
  v(1, "sequence", x.sequence);
}

inline void fields(Fields& v, RemoveSequence& x) {
  v.message(15, "RemoveSequence");
  v(1, "sequence", x.sequence);
}

inline void fields(Fields& v, RunStep& x) {
  v.message(14, "RunStep");
  v(1, "plan", x.plan);
}

inline void fields(Fields& v, Report& x) {
  v.message(64, "Report");
  v(1, "report", x.report);
}

}  // namespace core
}  // namespace heddle
