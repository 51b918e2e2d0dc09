#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

namespace heddle::log {

enum class Level : std::uint8_t { kDebug, kInfo, kWarning, kError };
enum class Format : std::uint8_t {
  kText,  ///< `2026-11-21 08:47:01.123 INFO  model loaded model=adder ms=3.2`
  kJson,  ///< One object a line: time, level, message, then the fields.
};

/// One named value of a log line. Strings are borrowed for the duration of the call.
struct Field {
  using Value = std::variant<std::string_view, std::int64_t, std::uint64_t, double, bool>;

  template <class T>
  Field(std::string_view name, const T& v) : key(name), value(convert(v)) {}

  std::string_view key;
  Value value;

 private:
  template <class T>
  static Value convert(const T& v) {
    if constexpr (std::is_same_v<T, bool>) {
      return v;
    } else if constexpr (std::is_floating_point_v<T>) {
      return static_cast<double>(v);
    } else if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) {
      return static_cast<std::int64_t>(v);
    } else if constexpr (std::is_integral_v<T>) {
      return static_cast<std::uint64_t>(v);
    } else if constexpr (requires { v.value(); }) {
      return static_cast<std::uint64_t>(v.value());  // Ids.
    } else {
      return std::string_view(v);
    }
  }
};

struct Options {
  Level level = Level::kInfo;
  Format format = Format::kText;
  std::string process{};  ///< Put in every line where not empty: "worker 0".
};

/// Sets how this process logs. Lines go to stderr from a thread of their own; when they come faster
/// than stderr takes them the oldest are dropped, so that logging never holds up serving. Where no
/// thread can be started, whoever logs writes. Called once, first thing in main(); before it, lines
/// are text at level info. This one process-wide object is the exception to passing everything as
/// an argument.
void configure(const Options& options);
/// Waits until all lines so far are written. For the end of main().
void flush();

/// Whether lines of this level are written, for callers whose fields are costly to make.
[[nodiscard]] bool enabled(Level level);

void debug(std::string_view message, std::initializer_list<Field> fields = {});
void info(std::string_view message, std::initializer_list<Field> fields = {});
void warning(std::string_view message, std::initializer_list<Field> fields = {});
void error(std::string_view message, std::initializer_list<Field> fields = {});

/// The line without its end, as it would be written at `time_ms` [ms since 1970, UTC]. Pure; for
/// tests and for whoever shows logs elsewhere.
[[nodiscard]] std::string format_line(Level level,
                                      std::string_view message,
                                      std::initializer_list<Field> fields,
                                      const Options& options,
                                      std::int64_t time_ms);

}  // namespace heddle::log
