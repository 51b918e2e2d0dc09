#include "base/log.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <ctime>
#include <deque>
#include <memory>
#include <mutex>
#include <system_error>

#include <fmt/format.h>

#include "base/log_tail.h"

#include <spdlog/async.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace heddle::log {
namespace {

constexpr std::size_t kQueueLines = 8192;
constexpr std::size_t kTailLines = 1000;
constexpr std::size_t kTailLineBytes = 4096;
constexpr std::array<std::string_view, 4> kTextLevels = {"DEBUG", "INFO ", "WARN ", "ERROR"};
constexpr std::array<std::string_view, 4> kJsonLevels = {"debug", "info", "warning", "error"};

/// The one logger of the process and how it writes.
struct Sink {
  std::mutex mutex;  ///< Held while `options` changes; readers take it too, lines are rare.
  Options options;
  std::shared_ptr<spdlog::details::thread_pool> pool;
  std::shared_ptr<spdlog::logger> logger;
  std::deque<Line> lines;   ///< The last ones.
  std::uint64_t count = 0;  ///< Of all lines so far.
};

Sink& sink() {
  static Sink* const instance = new Sink();  // Never destroyed: threads may log while main() ends.
  return *instance;
}

void append_escaped(std::string& out, std::string_view text) {
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
}

void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  append_escaped(out, text);
  out += '"';
}

std::string number(double value) {
  return std::isfinite(value) ? fmt::format("{:.6g}", value) : std::string("null");
}

void append_value(std::string& out, const Field::Value& value, Format format) {
  if (const auto* text = std::get_if<std::string_view>(&value)) {
    const bool plain = format == Format::kText && !text->empty() &&
                       text->find_first_of(" \"=\\\n\r\t") == std::string_view::npos;
    if (plain) {
      out += *text;
    } else {
      append_quoted(out, *text);
    }
  } else if (const auto* real = std::get_if<double>(&value)) {
    out += number(*real);
  } else if (const auto* flag = std::get_if<bool>(&value)) {
    out += *flag ? "true" : "false";
  } else if (const auto* whole = std::get_if<std::int64_t>(&value)) {
    out += std::to_string(*whole);
  } else {
    out += std::to_string(std::get<std::uint64_t>(value));
  }
}

std::string timestamp(std::int64_t time_ms, char separator) {
  const std::time_t seconds = time_ms / 1000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}{}{:02}:{:02}:{:02}.{:03}",
                     parts.tm_year + 1900,
                     parts.tm_mon + 1,
                     parts.tm_mday,
                     separator,
                     parts.tm_hour,
                     parts.tm_min,
                     parts.tm_sec,
                     time_ms % 1000);
}

void keep(Sink& out, const std::string& text, std::initializer_list<Field> fields) {
  Line line{.text = text.substr(0, kTailLineBytes)};
  for (const Field& field : fields) {
    if (const auto* model = std::get_if<std::string_view>(&field.value);
        model != nullptr && field.key == "model") {
      line.model = *model;
    }
  }
  const std::lock_guard lock(out.mutex);
  line.number = ++out.count;
  out.lines.push_back(std::move(line));
  if (out.lines.size() > kTailLines) {
    out.lines.pop_front();
  }
}

void write(Level level, std::string_view message, std::initializer_list<Field> fields) {
  if (!enabled(level)) {
    return;
  }
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  Sink& out = sink();
  std::shared_ptr<spdlog::logger> logger;
  Options options;
  {
    const std::lock_guard lock(out.mutex);
    logger = out.logger;
    options = out.options;
  }
  const std::string line = format_line(level, message, fields, options, ms);
  keep(out, line, fields);
  if (logger) {
    logger->log(spdlog::level::info, line);
  } else {
    fmt::print(stderr, "{}\n", line);
  }
}

}  // namespace

std::string format_line(Level level,
                        std::string_view message,
                        std::initializer_list<Field> fields,
                        const Options& options,
                        std::int64_t time_ms) {
  std::string out;
  const auto index = static_cast<std::size_t>(level);
  if (options.format == Format::kJson) {
    out += "{\"time\":\"" + timestamp(time_ms, 'T') + "Z\",\"level\":\"";
    out += kJsonLevels.at(index);
    out += "\",\"message\":";
    append_quoted(out, message);
    if (!options.process.empty()) {
      out += ",\"process\":";
      append_quoted(out, options.process);
    }
    for (const Field& field : fields) {
      out += ',';
      append_quoted(out, field.key);
      out += ':';
      append_value(out, field.value, options.format);
    }
    out += '}';
    return out;
  }
  out += timestamp(time_ms, ' ');
  out += ' ';
  out += kTextLevels.at(index);
  out += ' ';
  if (!options.process.empty()) {
    out += "[" + options.process + "] ";
  }
  append_escaped(out, message);
  for (const Field& field : fields) {
    out += ' ';
    out += field.key;
    out += '=';
    append_value(out, field.value, options.format);
  }
  return out;
}

std::vector<Line> tail(std::uint64_t after) {
  Sink& out = sink();
  const std::lock_guard lock(out.mutex);
  const std::uint64_t news = out.count - std::min(after, out.count);
  const auto kept = std::min<std::uint64_t>(news, out.lines.size());
  return {out.lines.end() - static_cast<std::ptrdiff_t>(kept), out.lines.end()};
}

void configure(const Options& options) {
  Sink& out = sink();
  const std::lock_guard lock(out.mutex);
  out.options = options;
  if (!out.logger) {
    try {
      out.pool = std::make_shared<spdlog::details::thread_pool>(kQueueLines, 1);
    } catch (const std::system_error&) {
      return;  // No thread left: whoever logs writes.
    }
    out.logger =
        std::make_shared<spdlog::async_logger>("heddle",
                                               std::make_shared<spdlog::sinks::stderr_sink_mt>(),
                                               out.pool,
                                               spdlog::async_overflow_policy::overrun_oldest);
    out.logger->set_pattern("%v");
    out.logger->flush_on(spdlog::level::info);
  }
}

void flush() {
  Sink& out = sink();
  const std::lock_guard lock(out.mutex);
  // Joining the writer is the only way spdlog offers to know that the queue is empty; what it
  // writes with goes after it.
  out.pool.reset();
  out.logger.reset();
}

bool enabled(Level level) {
  Sink& out = sink();
  const std::lock_guard lock(out.mutex);
  return level >= out.options.level;
}

void debug(std::string_view message, std::initializer_list<Field> fields) {
  write(Level::kDebug, message, fields);
}
void info(std::string_view message, std::initializer_list<Field> fields) {
  write(Level::kInfo, message, fields);
}
void warning(std::string_view message, std::initializer_list<Field> fields) {
  write(Level::kWarning, message, fields);
}
void error(std::string_view message, std::initializer_list<Field> fields) {
  write(Level::kError, message, fields);
}

}  // namespace heddle::log
