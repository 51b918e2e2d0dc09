#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include "base/describe.h"
#include "base/json_line.h"
#include "core/codec.h"

/// The definitions of core/codec.h, for codec_*.cc: one for each core, as each takes a while to
/// compile.
namespace heddle::core {

template <class Event>
std::string event_line(Instant at, const Event& event) {
  std::string line = "{\"at\":";
  write_json_line(type_of<Instant>(), &at, line);
  line += ",\"event\":";
  write_json_line(type_of<Event>(), &event, line);
  line += '}';
  return line;
}

template <class Command>
std::string command_line(const Command& command) {
  std::string line = "{\"command\":";
  write_json_line(type_of<Command>(), &command, line);
  line += '}';
  return line;
}

template <class Event>
Result<TimedEvent<Event>> parse_event(std::string_view line) {
  TimedEvent<Event> event;
  JsonLineReader reader(line);
  reader.expect("{\"at\":");
  reader.read(type_of<Instant>(), &event.at);
  reader.expect(",\"event\":");
  reader.read(type_of<Event>(), &event.event);
  reader.expect("}");
  if (auto error = reader.finish()) {
    return std::move(*error);
  }
  return event;
}

template <class Command>
Result<Command> parse_command(std::string_view line) {
  Command command;
  JsonLineReader reader(line);
  reader.expect("{\"command\":");
  reader.read(type_of<Command>(), &command);
  reader.expect("}");
  if (auto error = reader.finish()) {
    return std::move(*error);
  }
  return command;
}

/// The lines of a log, in turn.
class Lines {
 public:
  explicit Lines(std::string_view log) : rest_(log) {}

  /// The next line without its end; empty when there is none.
  [[nodiscard]] std::string_view peek() const { return rest_.substr(0, rest_.find('\n')); }
  void next() {
    rest_.remove_prefix(std::min(peek().size() + 1, rest_.size()));
    ++number_;
  }
  [[nodiscard]] bool empty() const { return rest_.empty(); }
  [[nodiscard]] std::string where() const { return "line " + std::to_string(number_); }

 private:
  std::string_view rest_;
  std::int64_t number_ = 1;
};

template <class Event, class Command, class Core>
Result<std::int64_t> replay_log(Core& core, std::string_view log) {
  Lines lines(log);
  std::int64_t events = 0;
  while (!lines.empty()) {
    const Result<TimedEvent<Event>> event = parse_event<Event>(lines.peek());
    if (!event) {
      return Error{Code::kCorrupt, lines.where() + ": " + event.error().message};
    }
    lines.next();
    ++events;
    std::vector<Command> commands;
    core.step(event->at, event->event, commands);
    for (const Command& command : commands) {
      const std::string wanted = command_line(command);
      if (lines.peek() != wanted) {
        return Error{Code::kFailedPrecondition,
                     lines.where() + ": the log has " + std::string(lines.peek()) +
                         ", replay gives " + wanted};
      }
      lines.next();
    }
    if (lines.peek().starts_with("{\"command\"")) {
      return Error{Code::kFailedPrecondition,
                   lines.where() + ": the log has " + std::string(lines.peek()) +
                       ", replay gives no more commands"};
    }
  }
  return events;
}

}  // namespace heddle::core
