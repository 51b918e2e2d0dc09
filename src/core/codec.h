#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "core/agent_core.h"
#include "core/engines_core.h"
#include "core/manager/manager_core.h"
#include "core/worker_core.h"

/// The event log: what a core heard, and what it wanted, as lines of JSON. A log that is replayed
/// through the same core gives the same commands, so an incident becomes a test.
///
///     {"at":1500000,"event":{"RequestArrived":{"request":1,"model":2,...}}}
///     {"command":{"Hold":{"request":1}}}
///
/// Written and read by the same build: it holds every field, in the order of its description
/// (core/message_fields.h and its like), and times in nanoseconds since the process began.
namespace heddle::core {

/// One line, without its end. Event: one of ManagerEvent, AgentEvent, WorkerEvent, EnginesEvent.
template <class Event>
[[nodiscard]] std::string event_line(Instant at, const Event& event);

/// One line, without its end. Command: one of ManagerCommand, AgentCommand, WorkerCommand,
/// EnginesCommand.
template <class Command>
[[nodiscard]] std::string command_line(const Command& command);

/// What one step of a core adds to its log: the event and its commands, each with its end of line.
template <class Event, class Command>
[[nodiscard]] std::string log_entry(Instant at,
                                    const Event& event,
                                    const std::vector<Command>& commands) {
  std::string lines = event_line(at, event) + "\n";
  for (const Command& command : commands) {
    lines += command_line(command) + "\n";
  }
  return lines;
}

template <class Event>
struct TimedEvent {
  Instant at{};
  Event event{};
};

/// The inverse of event_line: kCorrupt, with what was expected where, if it is not one.
template <class Event>
[[nodiscard]] Result<TimedEvent<Event>> parse_event(std::string_view line);

/// The inverse of command_line.
template <class Command>
[[nodiscard]] Result<Command> parse_command(std::string_view line);

/// A command for who reads it in another process, as docs/contracts/wire.md has it.
[[nodiscard]] std::string encode(const WorkerCommand& command);
/// The inverse of encode(): kCorrupt, with what was wrong where, if it is none. Trusts nothing.
[[nodiscard]] Result<WorkerCommand> decode_worker_command(std::string_view bytes);

/// Steps `core`, which is new, with the events of `log` (lines, each with its end) and compares
/// what it wants with the commands of the log. The number of events, or kFailedPrecondition with
/// the first line that differs and what came instead, or kCorrupt.
[[nodiscard]] Result<std::int64_t> replay(ManagerCore& core, std::string_view log);
[[nodiscard]] Result<std::int64_t> replay(AgentCore& core, std::string_view log);
[[nodiscard]] Result<std::int64_t> replay(WorkerCore& core, std::string_view log);
[[nodiscard]] Result<std::int64_t> replay(EnginesCore& core, std::string_view log);

}  // namespace heddle::core
