#include "core/codec_impl.h"
#include "core/manager_fields.h"

namespace heddle::core {

template std::string event_line(Instant, const ManagerEvent&);
template std::string command_line(const ManagerCommand&);
template Result<TimedEvent<ManagerEvent>> parse_event(std::string_view);
template Result<ManagerCommand> parse_command(std::string_view);

Result<std::int64_t> replay(ManagerCore& core, std::string_view log) {
  return replay_log<ManagerEvent, ManagerCommand>(core, log);
}

}  // namespace heddle::core
