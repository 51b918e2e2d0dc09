#pragma once

#include "core/agent_core.h"
#include "core/message_fields.h"

/// As message_fields.h, for the events and commands of an agent.
namespace heddle::core {

template <class V>
void fields(V& v, Like<AgentModel> auto& x) {
  v.type("AgentModel");
  v("id", x.id);
  v("image_bytes", x.image_bytes);
  v("footprint", x.footprint);
  v("gpu_footprint", x.gpu_footprint);
}

template <class V>
void fields(V& v, Like<StartAgent> auto& /*x*/) {
  v.type("StartAgent");
}

template <class V>
void fields(V& v, Like<AgentModels> auto& x) {
  v.type("AgentModels");
  v("models", x.models);
}

template <class V>
void fields(V& v, Like<WorkerConnected> auto& x) {
  v.type("WorkerConnected");
  v("device", x.device);
  v("epoch", x.epoch);
}

template <class V>
void fields(V& v, Like<WorkerExited> auto& x) {
  v.type("WorkerExited");
  v("device", x.device);
  v("epoch", x.epoch);
  v("killed", x.killed);
}

template <class V>
void fields(V& v, Like<WorkerHung> auto& x) {
  v.type("WorkerHung");
  v("device", x.device);
  v("epoch", x.epoch);
  v("stopped", x.stopped);
  v("reason", x.reason);
}

template <class V>
void fields(V& v, Like<ReadProgress> auto& x) {
  v.type("ReadProgress");
  v("model", x.model);
  v("bytes", x.bytes);
}

template <class V>
void fields(V& v, Like<ReadEnded> auto& x) {
  v.type("ReadEnded");
  v("model", x.model);
  v("error", x.error);
}

template <class V>
void fields(V& v, Like<StopAgent> auto& /*x*/) {
  v.type("StopAgent");
}

template <class V>
void fields(V& v, Like<SpawnWorker> auto& x) {
  v.type("SpawnWorker");
  v("device", x.device);
  v("epoch", x.epoch);
  v("pages", x.pages);
}

template <class V>
void fields(V& v, Like<KillWorker> auto& x) {
  v.type("KillWorker");
  v("device", x.device);
  v("epoch", x.epoch);
  v("reason", x.reason);
}

template <class V>
void fields(V& v, Like<SendWorker> auto& x) {
  v.type("SendWorker");
  v("device", x.device);
  v("epoch", x.epoch);
  v("message", x.message);
}

template <class V>
void fields(V& v, Like<StartRead> auto& x) {
  v.type("StartRead");
  v("model", x.model);
  v("pages", x.pages);
}

template <class V>
void fields(V& v, Like<CancelRead> auto& x) {
  v.type("CancelRead");
  v("model", x.model);
}

template <class V>
void fields(V& v, Like<ConnectGroup> auto& x) {
  v.type("ConnectGroup");
  v("members", x.members);
}

}  // namespace heddle::core
