#pragma once

#include "core/engines_core.h"
#include "core/manager_fields.h"

/// As message_fields.h, for the events and commands of EnginesCore.
namespace heddle {

namespace core {

inline void fields(Fields& v, HostedEngine& x) {
  v.type("HostedEngine");
  v(1, "model", x.model);
  v(2, "device", x.device);
  v(3, "pages", x.pages);
  v(4, "levels", x.levels);
  v(5, "kv_least", x.kv_least);
  v(6, "further", x.further);
}

inline void fields(Fields& v, EngineDevice& x) {
  v.type("EngineDevice");
  v(1, "id", x.id);
  v(2, "pages", x.pages);
}

inline void fields(Fields& v, ConfigureEngines& x) {
  v.message(110, "ConfigureEngines");
  v(1, "engines", x.engines);
  v(2, "devices", x.devices);
  v(3, "host_pages", x.host_pages);
}

inline void fields(Fields& v, LoanGranted& x) {
  v.message(111, "LoanGranted");
  v(1, "model", x.model);
}

inline void fields(Fields& v, LoanRefused& x) {
  v.message(112, "LoanRefused");
  v(1, "model", x.model);
  v(2, "reason", x.reason);
}

inline void fields(Fields& v, LoanRepaid& x) {
  v.message(113, "LoanRepaid");
  v(1, "model", x.model);
}

inline void fields(Fields& v, EngineStarted& x) {
  v.message(114, "EngineStarted");
  v(1, "model", x.model);
  v(2, "life", x.life);
  v(3, "held_pages", x.held_pages);
  v(4, "error", x.error);
}

inline void fields(Fields& v, EngineSuspended& x) {
  v.message(115, "EngineSuspended");
  v(1, "model", x.model);
  v(2, "life", x.life);
  v(3, "level", x.level);
  v(4, "held_pages", x.held_pages);
  v(5, "host_pages", x.host_pages);
  v(6, "error", x.error);
}

inline void fields(Fields& v, EngineResumed& x) {
  v.message(116, "EngineResumed");
  v(1, "model", x.model);
  v(2, "life", x.life);
  v(3, "held_pages", x.held_pages);
  v(4, "error", x.error);
}

inline void fields(Fields& v, EngineExited& x) {
  v.message(117, "EngineExited");
  v(1, "model", x.model);
  v(2, "life", x.life);
  v(3, "how", x.how);
}

inline void fields(Fields& v, EngineMeasured& x) {
  v.message(118, "EngineMeasured");
  v(1, "model", x.model);
  v(2, "life", x.life);
  v(3, "held_pages", x.held_pages);
}

inline void fields(Fields& v, KvSeen& x) {
  v.message(242, "KvSeen");
  v(1, "model", x.model);
  v(2, "life", x.life);
  v(3, "used_pages", x.used_pages);
  v(4, "busy", x.busy);
  v(5, "error", x.error);
}

inline void fields(Fields& v, SetKvLimit& x) {
  v.message(243, "SetKvLimit");
  v(1, "model", x.model);
  v(2, "life", x.life);
  v(3, "pages", x.pages);
}

inline void fields(Fields& v, NudgeEngine& x) {
  v.message(244, "NudgeEngine");
  v(1, "model", x.model);
  v(2, "life", x.life);
}

inline void fields(Fields& v, StartEngine& x) {
  v.message(119, "StartEngine");
  v(1, "model", x.model);
  v(2, "life", x.life);
}

inline void fields(Fields& v, SuspendEngine& x) {
  v.message(120, "SuspendEngine");
  v(1, "model", x.model);
  v(2, "life", x.life);
  v(3, "level", x.level);
}

inline void fields(Fields& v, ResumeEngine& x) {
  v.message(121, "ResumeEngine");
  v(1, "model", x.model);
  v(2, "life", x.life);
}

inline void fields(Fields& v, StopEngine& x) {
  v.message(122, "StopEngine");
  v(1, "model", x.model);
  v(2, "life", x.life);
}

}  // namespace core
}  // namespace heddle
