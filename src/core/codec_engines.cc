#include "core/codec_impl.h"
#include "core/engine_fields.h"

namespace heddle::core {

template std::string event_line(Instant, const EnginesEvent&);
template std::string command_line(const EnginesCommand&);
template Result<TimedEvent<EnginesEvent>> parse_event(std::string_view);
template Result<EnginesCommand> parse_command(std::string_view);

Result<std::int64_t> replay(EnginesCore& core, std::string_view log) {
  return replay_log<EnginesEvent, EnginesCommand>(core, log);
}

}  // namespace heddle::core
