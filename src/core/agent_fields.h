#pragma once

#include "core/agent_core.h"
#include "core/manager_fields.h"

/// As message_fields.h, for the events and commands of AgentCore.
namespace heddle {

namespace core {

inline void fields(Fields& v, PagesBacked& x) {
  v.message(65, "PagesBacked");
  v(1, "device", x.device);
  v(2, "model", x.model);
  v(3, "pages", x.pages);
}

inline void fields(Fields& v, GrantLoan& x) {
  v.message(66, "GrantLoan");
  v(1, "device", x.device);
  v(2, "model", x.model);
  v(3, "pages", x.pages);
}

inline void fields(Fields& v, RefuseLoan& x) {
  v.message(67, "RefuseLoan");
  v(1, "model", x.model);
  v(2, "reason", x.reason);
}

inline void fields(Fields& v, EndLoan& x) {
  v.message(68, "EndLoan");
  v(1, "model", x.model);
}

inline void fields(Fields& v, BackPages& x) {
  v.message(69, "BackPages");
  v(1, "device", x.device);
  v(2, "model", x.model);
  v(3, "pages", x.pages);
}

inline void fields(Fields& v, AgentModel& x) {
  v.type("AgentModel");
  v(1, "id", x.id);
  v(2, "image_bytes", x.image_bytes);
  v(3, "footprint", x.footprint);
  v(4, "gpu_footprint", x.gpu_footprint);
  v(5, "fetched", x.fetched);
  v(6, "host_pages", x.host_pages, kCount);
}

inline void fields(Fields& v, StartAgent& /*x*/) {
  v.message(70, "StartAgent");
}

inline void fields(Fields& v, AgentModels& x) {
  v.message(71, "AgentModels");
  v(1, "models", x.models);
}

inline void fields(Fields& v, WorkerConnected& x) {
  v.message(72, "WorkerConnected");
  v(1, "device", x.device);
  v(2, "epoch", x.epoch);
}

inline void fields(Fields& v, WorkerExited& x) {
  v.message(73, "WorkerExited");
  v(1, "device", x.device);
  v(2, "epoch", x.epoch);
  v(3, "killed", x.killed);
}

inline void fields(Fields& v, WorkerHung& x) {
  v.message(74, "WorkerHung");
  v(1, "device", x.device);
  v(2, "epoch", x.epoch);
  v(3, "stopped", x.stopped);
  v(4, "reason", x.reason);
}

inline void fields(Fields& v, ReadProgress& x) {
  v.message(75, "ReadProgress");
  v(1, "model", x.model);
  v(2, "bytes", x.bytes);
}

inline void fields(Fields& v, ReadEnded& x) {
  v.message(76, "ReadEnded");
  v(1, "model", x.model);
  v(2, "error", x.error);
}

inline void fields(Fields& v, ImageSpoilt& x) {
  v.message(198, "ImageSpoilt");
  v(1, "model", x.model);
  v(2, "error", x.error);
}

inline void fields(Fields& v, ForgetOrders& /*x*/) {
  v.message(190, "ForgetOrders");
}

inline void fields(Fields& v, StopAgent& /*x*/) {
  v.message(77, "StopAgent");
}

inline void fields(Fields& v, SpawnWorker& x) {
  v.message(78, "SpawnWorker");
  v(1, "device", x.device);
  v(2, "epoch", x.epoch);
  v(3, "pages", x.pages);
}

inline void fields(Fields& v, KillWorker& x) {
  v.message(79, "KillWorker");
  v(1, "device", x.device);
  v(2, "epoch", x.epoch);
  v(3, "reason", x.reason);
}

inline void fields(Fields& v, SendWorker& x) {
  v.message(80, "SendWorker");
  v(1, "device", x.device);
  v(2, "epoch", x.epoch);
  v(3, "message", x.message);
}

inline void fields(Fields& v, StartRead& x) {
  v.message(81, "StartRead");
  v(1, "model", x.model);
  v(2, "pages", x.pages);
  v(3, "early", x.early);
  v(4, "due_in", x.due_in, kCount);
  v(5, "peers", x.peers);
}

inline void fields(Fields& v, CancelRead& x) {
  v.message(82, "CancelRead");
  v(1, "model", x.model);
}

inline void fields(Fields& v, ConnectGuests& x) {
  v.message(134, "ConnectGuests");
  v(1, "host", x.host);
  v(2, "host_epoch", x.host_epoch);
  v(3, "hot", x.hot);
  v(4, "hot_epoch", x.hot_epoch);
  v(5, "model", x.model);
  v(6, "pages", x.pages);
}

inline void fields(Fields& v, LeaseGuests& x) {
  v.message(135, "LeaseGuests");
  v(1, "host", x.host);
  v(2, "host_epoch", x.host_epoch);
  v(3, "model", x.model);
  v(4, "pages", x.pages);
}

inline void fields(Fields& v, DisconnectGuests& x) {
  v.message(136, "DisconnectGuests");
  v(1, "hot", x.hot);
  v(2, "hot_epoch", x.hot_epoch);
  v(3, "model", x.model);
}

inline void fields(Fields& v, ShareMemory& x) {
  v.message(142, "ShareMemory");
  v(1, "host", x.host);
  v(2, "host_epoch", x.host_epoch);
  v(3, "model", x.model);
  v(4, "pages", x.pages);
}

inline void fields(Fields& v, PassMemory& x) {
  v.message(143, "PassMemory");
  v(1, "host", x.host);
  v(2, "hot", x.hot);
  v(3, "hot_epoch", x.hot_epoch);
  v(4, "model", x.model);
  v(5, "pages", x.pages);
}

inline void fields(Fields& v, ConnectGroup& x) {
  v.message(83, "ConnectGroup");
  v(1, "members", x.members);
  v(2, "group", x.group);
  v(3, "hosts", x.hosts);
}

inline void fields(Fields& v, GroupLinked& x) {
  v.message(218, "GroupLinked");
  v(1, "group", x.group);
}

inline void fields(Fields& v, GroupCut& x) {
  v.message(219, "GroupCut");
  v(1, "group", x.group);
  v(2, "reason", x.reason);
}

inline void fields(Fields& v, LeaveGroup& x) {
  v.message(220, "LeaveGroup");
  v(1, "group", x.group);
}

}  // namespace core
}  // namespace heddle
