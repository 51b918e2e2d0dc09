#include "cluster/file_log.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <random>
#include <utility>

#include "base/base64.h"
#include "spec/json_fields.h"
#include "spec/json_writer.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace heddle::cluster {

namespace {

constexpr std::size_t kLogLineMax = 2 * kValueMax + 1024;
constexpr std::uint64_t kRewriteBytes = 4U << 20U;  ///< Shorter files stay as they are.
constexpr std::uint64_t kFileMax = 256U << 20U;
constexpr std::size_t kChangesMax = 4096;
constexpr std::size_t kReadStep = 64U << 10U;
constexpr std::int64_t kLifeMax = 1'000'000'000;  // [ms]
constexpr std::int64_t kRevisionMax = std::int64_t{1} << 62U;
constexpr std::string_view kStoreLetters = "0123456789abcdef";
constexpr std::size_t kStoreLength = 16;

Error log_failure(const std::string& what, const std::string& path) {
  return {Code::kUnavailable, what + " " + path + ": " + std::strerror(errno)};
}

std::string new_store_id() {
  std::random_device chance;
  std::string id;
  for (std::size_t i = 0; i < kStoreLength; ++i) {
    id += kStoreLetters[chance() % kStoreLetters.size()];
  }
  return id;
}

Result<void> write_whole(int fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno != EINTR) {
      return log_failure("write", path);
    }
    text.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(written, 0)));
  }
  return {};
}

}  // namespace

Result<LogLine> parse_log_line(std::string_view text) {
  const Result<spec::Json> json = spec::parse_json(text, "line");
  if (!json) {
    return json.error();
  }
  spec::JsonFields fields(*json, "line: ");
  LogLine line;
  line.record.revision = static_cast<Revision>(fields.integer("revision", {1, kRevisionMax}));
  line.record.key = fields.text("key");
  line.removed = fields.boolean("removed", false);
  line.life = std::chrono::milliseconds(fields.integer("life_ms", {0, kLifeMax}, 0));
  std::optional<std::string> value = from_base64(fields.text("value"));
  if (!fields.ok()) {
    return Error{Code::kCorrupt, fields.status().error().message};
  }
  if (!value) {
    return Error{Code::kCorrupt, "line: value is no base64"};
  }
  line.record.value = std::move(*value);
  const Result<void> checked = check_record(line.record.key, line.record.value);
  return checked ? Result<LogLine>(std::move(line))
                 : Error{Code::kCorrupt, checked.error().message};
}

std::string write_log_line(const LogLine& line) {
  spec::JsonWriter json;
  json.begin_object().key("revision").integer(line.record.revision);
  json.key("key").string(line.record.key);
  if (line.removed) {
    json.key("removed").boolean(true);
  } else {
    json.key("value").string(to_base64(line.record.value));
  }
  if (line.life > Duration::zero()) {
    const auto life = std::chrono::ceil<std::chrono::milliseconds>(line.life).count();
    json.key("life_ms").integer(std::min<std::int64_t>(life, kLifeMax));
  }
  return std::move(json.end_object()).take();
}

Result<LogHead> parse_log_head(std::string_view text) {
  const Result<spec::Json> json = spec::parse_json(text, "first line");
  if (!json) {
    return json.error();
  }
  spec::JsonFields fields(*json, "first line: ");
  LogHead head{.store = fields.text("heddle_registry"),
               .base = static_cast<Revision>(fields.integer("revision", {0, kRevisionMax}))};
  if (head.store.size() != kStoreLength ||
      head.store.find_first_not_of(kStoreLetters) != std::string::npos) {
    fields.reject("heddle_registry", "right are 16 digits of base 16");
  }
  return fields.ok() ? Result<LogHead>(std::move(head))
                     : Error{Code::kCorrupt, fields.status().error().message};
}

std::string write_log_head(const LogHead& head) {
  spec::JsonWriter json;
  json.begin_object().key("heddle_registry").string(head.store);
  json.key("revision").integer(head.base).end_object();
  return std::move(json).take();
}

Result<FileLog> FileLog::open(std::string directory) {
  std::error_code failure;
  std::filesystem::create_directories(directory, failure);
  if (failure || !std::filesystem::is_directory(directory, failure)) {
    return Error{Code::kInvalidArgument,
                 "make directory " + directory + ": " +
                     (failure ? failure.message() : std::string("another kind of file is there"))};
  }
  return FileLog(std::move(directory));
}

Result<void> FileLog::read() {
  for (;;) {
    if (file_) {
      const bool was_replaced = replaced();  // Before the rest is read, which is then its last.
      if (const Result<void> rest = read_rest(); !rest) {
        return rest;
      }
      if (!was_replaced) {
        return {};
      }
    }
    const Result<bool> opened = reopen();
    if (!opened) {
      return opened.error();
    }
    if (!*opened) {
      return {};
    }
  }
}

bool FileLog::replaced() const {
  struct stat there{};
  struct stat here{};
  const bool same = ::stat(path().c_str(), &there) == 0 && ::fstat(file_.get(), &here) == 0 &&
                    there.st_ino == here.st_ino && there.st_dev == here.st_dev;
  return !same || static_cast<std::uint64_t>(here.st_size) < offset_;
}

/// Whether there is a file. What was known stays where the new file begins with just that.
Result<bool> FileLog::reopen() {
  Descriptor file(::open(path().c_str(), O_RDWR | O_APPEND | O_CLOEXEC));
  if (!file && errno != ENOENT) {
    return log_failure("open", path());
  }
  const bool had_one = static_cast<bool>(file_);
  const Revision before = revision_;
  const std::string store = head_.store;
  file_ = std::move(file);
  offset_ = 0;
  lines_ = 0;
  records_.clear();
  live_bytes_ = 0;
  if (file_) {
    if (const Result<void> rest = read_rest(); !rest) {
      return rest.error();
    }
  }
  const bool goes_on = file_ && head_.store == store && head_.base <= before && before <= revision_;
  if (had_one && !goes_on) {
    ++breaks_;
    known_after_ = file_ ? std::max(head_.base, revision_) : 0;
    revision_ = file_ ? revision_ : 0;
    changes_.clear();
  }
  return static_cast<bool>(file_);
}

Result<void> FileLog::read_rest() {
  std::string text;
  for (;;) {
    const std::size_t had = text.size();
    text.resize(had + kReadStep);
    const ssize_t got =
        ::pread(file_.get(), text.data() + had, kReadStep, static_cast<off_t>(offset_ + had));
    text.resize(had + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0) {
      return log_failure("read", path());
    }
    if (text.size() > kFileMax) {
      return Error{Code::kCorrupt, path() + " has more than 256 MiB"};
    }
    if (got == 0) {
      break;
    }
  }
  std::string_view rest = text;
  for (std::size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
    if (const Result<void> taken = take(rest.substr(0, end)); !taken) {
      return Error{taken.error().code,
                   path() + ":" + std::to_string(lines_ + 1) + ": " + taken.error().message +
                       "; stop all who use it, and cut the file before this line"};
    }
    ++lines_;
    offset_ += end + 1;
    rest.remove_prefix(end + 1);
  }
  if (rest.size() > kLogLineMax) {
    return Error{Code::kCorrupt,
                 path() + ":" + std::to_string(lines_ + 1) + ": a line of more than " +
                     std::to_string(kLogLineMax) + " bytes"};
  }
  return {};
}

Result<void> FileLog::take(std::string_view text) {
  if (lines_ == 0) {
    Result<LogHead> head = parse_log_head(text);
    if (!head) {
      return head.error();
    }
    const bool first = head_.store.empty();
    head_ = std::move(*head);
    if (first || head_.base > revision_) {
      known_after_ = head_.base;
      changes_.clear();
    }
    revision_ = head_.base;
    return {};
  }
  Result<LogLine> line = parse_log_line(text);
  if (!line) {
    return line.error();
  }
  const Revision revision = line->record.revision;
  const bool is_change = revision > head_.base;
  if (is_change && revision <= revision_) {
    return Error{Code::kCorrupt,
                 "revision " + std::to_string(revision) + " after " + std::to_string(revision_)};
  }
  revision_ = std::max(revision_, revision);
  if (const auto old = records_.find(line->record.key); old != records_.end()) {
    live_bytes_ -= 2 * old->second.record.value.size() + old->first.size();
    records_.erase(old);
  }
  if (!line->removed) {
    live_bytes_ += 2 * line->record.value.size() + line->record.key.size();
    records_[line->record.key] = *line;
  }
  const Revision newest = changes_.empty() ? known_after_ : changes_.back().record.revision;
  if (is_change && revision > newest) {
    changes_.push_back(std::move(*line));
  }
  if (changes_.size() > 2 * kChangesMax) {
    known_after_ = changes_[kChangesMax - 1].record.revision;
    changes_.erase(changes_.begin(), changes_.begin() + kChangesMax);
  }
  return {};
}

std::optional<std::vector<LogLine>> FileLog::changes_after(Revision after) const {
  if (after < known_after_ || after > revision_) {
    return std::nullopt;
  }
  const auto first = std::ranges::upper_bound(
      changes_, after, {}, [](const LogLine& each) { return each.record.revision; });
  return std::vector<LogLine>(first, changes_.end());
}

Result<std::optional<Descriptor>> FileLog::lock() {
  const std::string lock_path = directory_ + "/lock";
  Descriptor held(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!held) {
    return log_failure("open", lock_path);
  }
  if (::flock(held.get(), LOCK_EX | LOCK_NB) != 0) {
    return errno == EWOULDBLOCK ? Result<std::optional<Descriptor>>(std::nullopt)
                                : log_failure("lock", lock_path);
  }
  if (const Result<void> all = read(); !all) {
    return all.error();
  }
  if (!file_ || lines_ == 0) {
    head_ = {.store = new_store_id(), .base = 0};
    if (const Result<void> made = rewrite(); !made) {
      return made.error();
    }
  }
  // What was not ended; nobody else writes now.
  if (::ftruncate(file_.get(), static_cast<off_t>(offset_)) != 0) {
    return log_failure("cut", path());
  }
  return std::optional<Descriptor>(std::move(held));
}

Result<Revision> FileLog::append(LogLine line) {
  line.record.revision = revision_ + 1;
  if (line.removed) {
    line.record.value.clear();
  }
  if (offset_ > kRewriteBytes && offset_ > 2 * live_bytes_) {
    head_.base = revision_;
    if (const Result<void> made = rewrite(); !made) {
      return made.error();
    }
  }
  if (const Result<void> done = write_whole(file_.get(), write_log_line(line) + '\n', path());
      !done) {
    return done.error();
  }
  if (const Result<void> all = read_rest(); !all) {
    return all.error();
  }
  return line.record.revision;
}

/// Puts a file with the head and the records in place of the present one.
Result<void> FileLog::rewrite() {
  const std::string fresh = path() + ".new";
  Descriptor file(::open(fresh.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600));
  if (!file) {
    return log_failure("make", fresh);
  }
  std::string text = write_log_head(head_) + '\n';
  for (const auto& [key, line] : records_) {
    text += write_log_line(line) + '\n';
  }
  if (const Result<void> done = write_whole(file.get(), text, fresh); !done) {
    return done;
  }
  if (::rename(fresh.c_str(), path().c_str()) != 0) {
    return log_failure("rename", fresh);
  }
  file_ = std::move(file);
  offset_ = text.size();
  lines_ = records_.size() + 1;
  return {};
}

}  // namespace heddle::cluster
