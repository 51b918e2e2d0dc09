#include "core/codec.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <ranges>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "core/codec_fields.h"
#include "core/engine_fields.h"

namespace heddle::core {
namespace {

template <class T, template <class...> class Template>
inline constexpr bool is_a = false;
template <template <class...> class Template, class... Args>
inline constexpr bool is_a<Template<Args...>, Template> = true;

template <class T>
concept IdType = requires(const T& id) {
  { id.value() } -> std::same_as<std::uint64_t>;
};

/// Asks a type for its name.
struct TypeName {
  std::string_view name{};
  void type(std::string_view type) { name = type; }
  template <class T>
  void operator()(std::string_view /*field*/, const T& /*value*/) {}
};

template <class T>
std::string_view type_name() {
  TypeName visitor;
  const T value{};
  fields(visitor, value);
  return visitor.name;
}

// ---- Writing ----

class Writer {
 public:
  explicit Writer(std::string& out) : out_(out) {}

  void type(std::string_view /*name*/) {}
  template <class T>
  void operator()(std::string_view field, const T& value) {
    out_ += first_ ? "\"" : ",\"";
    first_ = false;
    out_ += field;
    out_ += "\":";
    write(value);
  }

  template <class T>
  void write(const T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      out_ += value ? "true" : "false";
    } else if constexpr (std::is_enum_v<T>) {
      write(static_cast<std::int64_t>(value));
    } else if constexpr (std::is_arithmetic_v<T>) {
      std::array<char, 32> digits{};
      const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
      out_.append(digits.data(), end);
    } else if constexpr (std::is_same_v<T, Duration>) {
      write(value.count());
    } else if constexpr (std::is_same_v<T, Instant>) {
      write(value.time_since_epoch());
    } else if constexpr (IdType<T>) {
      write(value.value());
    } else if constexpr (std::is_same_v<T, std::string>) {
      write_string(value);
    } else if constexpr (is_a<T, std::optional>) {
      value ? write(*value) : void(out_ += "null");
    } else if constexpr (is_a<T, std::variant>) {
      write_variant(value);
    } else if constexpr (is_a<T, std::pair>) {
      out_ += '[';
      write(value.first);
      out_ += ',';
      write(value.second);
      out_ += ']';
    } else if constexpr (std::ranges::range<T>) {
      write_list(value);
    } else {
      out_ += '{';
      Writer inner(out_);
      fields(inner, value);
      out_ += '}';
    }
  }

 private:
  template <class T>
  void write_list(const T& list) {
    char before = '[';
    for (const auto& element : list) {
      out_ += before;
      before = ',';
      write(element);
    }
    out_ += before == '[' ? "[]" : "]";
  }

  template <class T>
  void write_variant(const T& value) {
    std::visit(
        [&](const auto& concrete) {
          using Concrete = std::remove_cvref_t<decltype(concrete)>;
          if constexpr (is_a<Concrete, std::variant>) {
            this->write(concrete);  // A variant within one: its alternatives are named as if here.
          } else {
            out_ += "{\"";
            out_ += type_name<Concrete>();
            out_ += "\":";
            this->write(concrete);
            out_ += '}';
          }
        },
        value);
  }

  void write_string(std::string_view text) {
    constexpr std::string_view kHex = "0123456789abcdef";
    out_ += '"';
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte < 0x20 || c == '"' || c == '\\') {
        out_ += "\\u00";
        out_ += kHex[byte >> 4U];
        out_ += kHex[byte & 15U];
      } else {
        out_ += c;
      }
    }
    out_ += '"';
  }

  std::string& out_;
  bool first_ = true;
};

// ---- Reading ----

/// Reads what Writer writes, and nothing else. After the first mismatch everything reads as empty.
class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text), size_(text.size()) {}

  void type(std::string_view /*name*/) {}
  template <class T>
  void operator()(std::string_view field, T& value) {
    if (!first_) {
      expect(",");
    }
    first_ = false;
    expect("\"");
    expect(field);
    expect("\":");
    read(value);
  }

  void expect(std::string_view literal) {
    if (!accept(literal)) {
      fail(literal);
    }
  }

  template <class T>
  void read(T& value) {
    if (error_) {
      return;
    }
    if constexpr (std::is_same_v<T, bool>) {
      value = accept("true");
      if (!value) {
        expect("false");
      }
    } else if constexpr (std::is_enum_v<T>) {
      std::underlying_type_t<T> number{};
      read(number);
      value = static_cast<T>(number);
    } else if constexpr (std::is_arithmetic_v<T>) {
      read_number(value);
    } else if constexpr (std::is_same_v<T, Duration>) {
      Duration::rep count = 0;
      read(count);
      value = Duration{count};
    } else if constexpr (std::is_same_v<T, Instant>) {
      Duration since{};
      read(since);
      value = Instant{since};
    } else if constexpr (IdType<T>) {
      std::uint64_t number = 0;
      read(number);
      value = T(number);
    } else if constexpr (std::is_same_v<T, std::string>) {
      read_string(value);
    } else if constexpr (is_a<T, std::optional>) {
      if (!accept("null")) {
        read(value.emplace());
      }
    } else if constexpr (is_a<T, std::variant>) {
      read_variant(value);
    } else if constexpr (is_a<T, std::pair>) {
      expect("[");
      read(value.first);
      expect(",");
      read(value.second);
      expect("]");
    } else if constexpr (std::ranges::range<T>) {
      read_list(value);
    } else {
      expect("{");
      const bool outer = std::exchange(first_, true);
      fields(*this, value);
      first_ = outer;
      expect("}");
    }
  }

  /// What went wrong, if anything, everything having been read.
  [[nodiscard]] std::optional<Error> finish() {
    if (!error_ && !rest_.empty()) {
      fail("the end");
    }
    return error_;
  }

 private:
  bool accept(std::string_view literal) {
    if (error_ || !rest_.starts_with(literal)) {
      return false;
    }
    rest_.remove_prefix(literal.size());
    return true;
  }

  void fail(std::string_view expected) {
    if (!error_) {
      error_ =
          Error{Code::kCorrupt,
                "event log, column " + std::to_string(size_ - rest_.size() + 1) + ": expected " +
                    std::string(expected) + ", found '" + std::string(rest_.substr(0, 20)) + "'"};
    }
  }

  template <class T>
  void read_number(T& value) {
    const auto [end, status] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (status != std::errc{}) {
      fail("a number");
      return;
    }
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
  }

  void read_string(std::string& value) {
    expect("\"");
    while (!error_ && !accept("\"")) {
      if (rest_.empty()) {
        fail("\"");
      } else if (accept("\\u")) {
        unsigned byte = 0;
        const char* const end = rest_.data() + std::min<std::size_t>(4, rest_.size());
        if (std::from_chars(rest_.data(), end, byte, 16).ptr != rest_.data() + 4) {
          fail("four hexadecimal digits");
          return;
        }
        value += static_cast<char>(byte);
        rest_.remove_prefix(4);
      } else {
        value += rest_.front();
        rest_.remove_prefix(1);
      }
    }
  }

  template <class T>
  void read_list(T& list) {
    if constexpr (requires { list.clear(); }) {
      list.clear();  // Of what it holds by default.
    }
    expect("[");
    std::size_t count = 0;
    while (!error_ && !accept("]")) {
      if (count > 0) {
        expect(",");
      }
      read_element(list, count++);
    }
  }
  template <class T>
  void read_element(std::vector<T>& list, std::size_t /*index*/) {
    read(list.emplace_back());
  }
  template <class T, std::size_t N>
  void read_element(std::array<T, N>& list, std::size_t index) {
    if (index >= N) {
      fail("]");
      return;
    }
    read(list[index]);
  }
  template <class K, class T>
  void read_element(std::map<K, T>& list, std::size_t /*index*/) {
    std::pair<K, T> entry;
    read(entry);
    list.insert(std::move(entry));
  }

  template <class T>
  void read_variant(T& value) {
    expect("{\"");
    const std::string_view name = rest_.substr(0, std::min(rest_.find('"'), rest_.size()));
    if (error_) {
      return;
    }
    if (!choose(value, name)) {
      fail("the name of an event or a command");
      return;
    }
    rest_.remove_prefix(name.size());
    expect("\":");
    read_alternative(value);
    expect("}");
  }
  template <class T>
  void read_alternative(T& value) {
    std::visit(
        [&](auto& concrete) {
          if constexpr (is_a<std::remove_cvref_t<decltype(concrete)>, std::variant>) {
            this->read_alternative(concrete);
          } else {
            this->read(concrete);
          }
        },
        value);
  }
  /// Makes `value` an empty alternative of that name; false if it has none.
  template <class... Alternatives>
  static bool choose(std::variant<Alternatives...>& value, std::string_view name) {
    return (try_alternative<Alternatives>(value, name) || ...);
  }
  template <class Alternative, class Variant>
  static bool try_alternative(Variant& value, std::string_view name) {
    Alternative alternative{};
    if constexpr (is_a<Alternative, std::variant>) {
      if (!choose(alternative, name)) {
        return false;
      }
    } else if (type_name<Alternative>() != name) {
      return false;
    }
    value = std::move(alternative);
    return true;
  }

  std::string_view rest_;
  std::size_t size_;
  bool first_ = true;
  std::optional<Error> error_{};
};

// ---- Replay ----

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

}  // namespace

template <class Event>
std::string event_line(Instant at, const Event& event) {
  std::string line = "{\"at\":";
  Writer writer(line);
  writer.write(at);
  line += ",\"event\":";
  writer.write(event);
  line += '}';
  return line;
}

template <class Command>
std::string command_line(const Command& command) {
  std::string line = "{\"command\":";
  Writer(line).write(command);
  line += '}';
  return line;
}

template <class Event>
Result<TimedEvent<Event>> parse_event(std::string_view line) {
  TimedEvent<Event> event;
  Reader reader(line);
  reader.expect("{\"at\":");
  reader.read(event.at);
  reader.expect(",\"event\":");
  reader.read(event.event);
  reader.expect("}");
  if (auto error = reader.finish()) {
    return std::move(*error);
  }
  return event;
}

template <class Command>
Result<Command> parse_command(std::string_view line) {
  Command command;
  Reader reader(line);
  reader.expect("{\"command\":");
  reader.read(command);
  reader.expect("}");
  if (auto error = reader.finish()) {
    return std::move(*error);
  }
  return command;
}

template std::string event_line(Instant, const ManagerEvent&);
template std::string event_line(Instant, const AgentEvent&);
template std::string event_line(Instant, const WorkerEvent&);
template std::string event_line(Instant, const EnginesEvent&);
template std::string command_line(const ManagerCommand&);
template std::string command_line(const AgentCommand&);
template std::string command_line(const WorkerCommand&);
template std::string command_line(const EnginesCommand&);
template Result<TimedEvent<ManagerEvent>> parse_event(std::string_view);
template Result<TimedEvent<AgentEvent>> parse_event(std::string_view);
template Result<TimedEvent<WorkerEvent>> parse_event(std::string_view);
template Result<TimedEvent<EnginesEvent>> parse_event(std::string_view);
template Result<ManagerCommand> parse_command(std::string_view);
template Result<AgentCommand> parse_command(std::string_view);
template Result<WorkerCommand> parse_command(std::string_view);
template Result<EnginesCommand> parse_command(std::string_view);

Result<std::int64_t> replay(ManagerCore& core, std::string_view log) {
  return replay_log<ManagerEvent, ManagerCommand>(core, log);
}
Result<std::int64_t> replay(AgentCore& core, std::string_view log) {
  return replay_log<AgentEvent, AgentCommand>(core, log);
}
Result<std::int64_t> replay(WorkerCore& core, std::string_view log) {
  return replay_log<WorkerEvent, WorkerCommand>(core, log);
}
Result<std::int64_t> replay(EnginesCore& core, std::string_view log) {
  return replay_log<EnginesEvent, EnginesCommand>(core, log);
}

}  // namespace heddle::core
