#include "core/agent_fields.h"
#include "core/codec_impl.h"

namespace heddle::core {

template std::string event_line(Instant, const AgentEvent&);
template std::string command_line(const AgentCommand&);
template Result<TimedEvent<AgentEvent>> parse_event(std::string_view);
template Result<AgentCommand> parse_command(std::string_view);

Result<std::int64_t> replay(AgentCore& core, std::string_view log) {
  return replay_log<AgentEvent, AgentCommand>(core, log);
}

}  // namespace heddle::core
