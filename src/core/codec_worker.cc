#include "base/wire.h"
#include "core/codec_impl.h"
#include "core/worker_fields.h"

namespace heddle::core {

template std::string event_line(Instant, const WorkerEvent&);
template std::string command_line(const WorkerCommand&);
template Result<TimedEvent<WorkerEvent>> parse_event(std::string_view);
template Result<WorkerCommand> parse_command(std::string_view);

Result<std::int64_t> replay(WorkerCore& core, std::string_view log) {
  return replay_log<WorkerEvent, WorkerCommand>(core, log);
}

std::string encode(const WorkerCommand& command) {
  return wire::encode(command);
}
Result<WorkerCommand> decode_worker_command(std::string_view bytes) {
  return wire::decode<WorkerCommand>(bytes);
}

}  // namespace heddle::core
