#pragma once

#include "core/codec_fields.h"
#include "core/engines_core.h"

/// As codec_fields.h, for the events and commands of EnginesCore.
namespace heddle::core {

template <class V>
void fields(V& v, Like<Engine> auto& x) {
  v.type("Engine");
  v("model", x.model);
  v("device", x.device);
  v("pages", x.pages);
  v("levels", x.levels);
}

template <class V>
void fields(V& v, Like<EngineDevice> auto& x) {
  v.type("EngineDevice");
  v("id", x.id);
  v("pages", x.pages);
}

template <class V>
void fields(V& v, Like<ConfigureEngines> auto& x) {
  v.type("ConfigureEngines");
  v("engines", x.engines);
  v("devices", x.devices);
  v("host_pages", x.host_pages);
}

template <class V>
void fields(V& v, Like<LoanGranted> auto& x) {
  v.type("LoanGranted");
  v("model", x.model);
}

template <class V>
void fields(V& v, Like<LoanRefused> auto& x) {
  v.type("LoanRefused");
  v("model", x.model);
  v("reason", x.reason);
}

template <class V>
void fields(V& v, Like<LoanRepaid> auto& x) {
  v.type("LoanRepaid");
  v("model", x.model);
}

template <class V>
void fields(V& v, Like<EngineStarted> auto& x) {
  v.type("EngineStarted");
  v("model", x.model);
  v("life", x.life);
  v("held_pages", x.held_pages);
  v("error", x.error);
}

template <class V>
void fields(V& v, Like<EngineSuspended> auto& x) {
  v.type("EngineSuspended");
  v("model", x.model);
  v("life", x.life);
  v("level", x.level);
  v("held_pages", x.held_pages);
  v("host_pages", x.host_pages);
  v("error", x.error);
}

template <class V>
void fields(V& v, Like<EngineResumed> auto& x) {
  v.type("EngineResumed");
  v("model", x.model);
  v("life", x.life);
  v("held_pages", x.held_pages);
  v("error", x.error);
}

template <class V>
void fields(V& v, Like<EngineExited> auto& x) {
  v.type("EngineExited");
  v("model", x.model);
  v("life", x.life);
  v("how", x.how);
}

template <class V>
void fields(V& v, Like<EngineMeasured> auto& x) {
  v.type("EngineMeasured");
  v("model", x.model);
  v("life", x.life);
  v("held_pages", x.held_pages);
}

template <class V>
void fields(V& v, Like<StartEngine> auto& x) {
  v.type("StartEngine");
  v("model", x.model);
  v("life", x.life);
}

template <class V>
void fields(V& v, Like<SuspendEngine> auto& x) {
  v.type("SuspendEngine");
  v("model", x.model);
  v("life", x.life);
  v("level", x.level);
}

template <class V>
void fields(V& v, Like<ResumeEngine> auto& x) {
  v.type("ResumeEngine");
  v("model", x.model);
  v("life", x.life);
}

template <class V>
void fields(V& v, Like<StopEngine> auto& x) {
  v.type("StopEngine");
  v("model", x.model);
  v("life", x.life);
}

}  // namespace heddle::core
