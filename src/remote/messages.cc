#include "remote/messages.h"

#include <algorithm>

#include "base/wire.h"
#include "remote/remote_fields.h"

namespace heddle::remote {

namespace {

/// The longest name of a file [bytes].
constexpr std::size_t kFileNameMost = 255;

/// Whether the variant holds one of these.
template <class... Allowed, class Variant>
bool is_one_of(const Variant& variant) {
  return (std::holds_alternative<Allowed>(variant) || ...);
}

bool passes(const core::TellWorker& tell, const ToHost* /*direction*/) {
  return is_one_of<core::RecallRequests,
                   core::Gather,
                   core::FitShare,
                   core::StepBack,
                   core::NoPages>(tell.message);
}
bool passes(const core::TellWorker& tell, const GatewayToHost* /*direction*/) {
  return is_one_of<core::Submit, core::FinishChoice, core::CancelRequest>(tell.message);
}
bool passes(const core::WorkerSaid& said, const FromHost* /*direction*/) {
  return is_one_of<core::ModelServing,
                   core::LoadRefused,
                   core::LoadFailed,
                   core::EvictRefused,
                   core::ModelEvicted,
                   core::SteppedBack,
                   core::KvMoved,
                   core::DeviceReport>(said.report);
}
bool passes(const core::WorkerSaid& said, const HostToGateway* /*direction*/) {
  return is_one_of<core::TokensProduced, core::RequestReturned, core::RequestFailed>(said.report);
}
bool passes(const core::WorkerSaid& said, const GatewayToManager* /*direction*/) {
  return is_one_of<core::RequestReturned, core::RequestFailed>(said.report);
}

/// What a message holds of a worker's: the description allows all of them.
std::string held(const core::TellWorker& tell) {
  const Type& type = type_of<core::WorkerMessage>();
  return std::string(type.alternatives[type.chosen(&tell.message).alternative]->name);
}
std::string held(const core::WorkerSaid& said) {
  const Type& type = type_of<core::WorkerReport>();
  return std::string(type.alternatives[type.chosen(&said.report).alternative]->name);
}

template <class Envelope, class Message>
Result<Message> decode_with(std::string_view bytes, const std::string& direction) {
  Result<Message> message = wire::decode<Message>(bytes);
  if (!message) {
    return message;
  }
  const auto* const envelope = std::get_if<Envelope>(&*message);
  if (envelope != nullptr && !passes(*envelope, static_cast<const Message*>(nullptr))) {
    return Error{Code::kCorrupt,
                 "message " + std::string(type_of<Envelope>().name) + ": a " + held(*envelope) +
                     " does not go " + direction};
  }
  return message;
}

/// What is no older than a nanosecond is that old, as 0 means never.
Instant age_of(Instant at, Instant now) {
  return Instant{std::max(now - at, Duration(1))};
}
Instant instant_of(Instant age, Instant now) {
  const Instant at{now - age};
  return at == Instant{} ? Instant{Duration(1)} : at;
}

template <class Change>
void change_instant(Instant& at, const Change& change) {
  if (at != Instant{}) {
    at = change(at);
  }
}
template <class Change>
void for_each_instant(HostStatus& status, const Change& change) {
  for (core::EngineStatus& engine : status.engines) {
    change_instant(engine.since, change);
  }
}
template <class Change>
void for_each_instant(Status& status, const Change& change) {
  for (core::ModelStatus& model : status.models) {
    change_instant(model.last_used, change);
  }
  for (core::EngineStatus& engine : status.engines) {
    change_instant(engine.since, change);
  }
  for (core::NotedDecision& decision : status.decisions) {
    change_instant(decision.at, change);
  }
  for (core::HostEntry& host : status.hosts) {
    change_instant(host.since, change);
  }
}

}  // namespace

std::string encode(const ToHost& message) {
  return wire::encode(message);
}
std::string encode(const FromHost& message) {
  return wire::encode(message);
}
std::string encode(const GatewayToHost& message) {
  return wire::encode(message);
}
std::string encode(const HostToGateway& message) {
  return wire::encode(message);
}
std::string encode(const GatewayToManager& message) {
  return wire::encode(message);
}
std::string encode(const ManagerToGateway& message) {
  return wire::encode(message);
}

Result<ToHost> decode_to_host(std::string_view bytes) {
  return decode_with<core::TellWorker, ToHost>(bytes, "from a manager to a host");
}
Result<FromHost> decode_from_host(std::string_view bytes) {
  return decode_with<core::WorkerSaid, FromHost>(bytes, "from a host to a manager");
}
Result<GatewayToHost> decode_gateway_to_host(std::string_view bytes) {
  return decode_with<core::TellWorker, GatewayToHost>(bytes, "from a gateway to a host");
}
Result<HostToGateway> decode_host_to_gateway(std::string_view bytes) {
  return decode_with<core::WorkerSaid, HostToGateway>(bytes, "from a host to a gateway");
}
Result<GatewayToManager> decode_gateway_to_manager(std::string_view bytes) {
  return decode_with<core::WorkerSaid, GatewayToManager>(bytes, "from a gateway to a manager");
}
Result<ManagerToGateway> decode_manager_to_gateway(std::string_view bytes) {
  return wire::decode<ManagerToGateway>(bytes);
}

bool is_file_name(std::string_view name) {
  return !name.empty() && name.size() <= kFileNameMost && name.front() != '.' &&
         name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

void make_ages(HostStatus& status, Instant now) {
  for_each_instant(status, [now](Instant at) { return age_of(at, now); });
}
void make_ages(Status& status, Instant now) {
  for_each_instant(status, [now](Instant at) { return age_of(at, now); });
}
void make_instants(HostStatus& status, Instant now) {
  for_each_instant(status, [now](Instant age) { return instant_of(age, now); });
}
void make_instants(Status& status, Instant now) {
  for_each_instant(status, [now](Instant age) { return instant_of(age, now); });
}

}  // namespace heddle::remote
