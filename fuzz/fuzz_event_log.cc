// Lines of the cores' event logs. What is understood can be written again and is then understood in
// the same way; a log that makes no sense is told from one that does, and ends no process.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "core/codec.h"

using namespace heddle;

namespace {

template <class Event>
void read_event(std::string_view line) {
  const auto read = core::parse_event<Event>(line);
  if (read) {
    const std::string again = core::event_line(read->at, read->event);
    const auto same = core::parse_event<Event>(again);
    HEDDLE_CHECK(same && core::event_line(same->at, same->event) == again);
  } else {
    HEDDLE_CHECK(!read.error().message.empty());
  }
}

template <class Command>
void read_command(std::string_view line) {
  const auto read = core::parse_command<Command>(line);
  if (read) {
    const std::string again = core::command_line(*read);
    const auto same = core::parse_command<Command>(again);
    HEDDLE_CHECK(same && core::command_line(*same) == again);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  read_event<core::ManagerEvent>(line);
  read_event<core::AgentEvent>(line);
  read_event<core::WorkerEvent>(line);
  read_command<core::ManagerCommand>(line);
  read_command<core::AgentCommand>(line);
  read_command<core::WorkerCommand>(line);
  return 0;
}
