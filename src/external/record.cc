#include "external/record.h"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/descriptor.h"
#include "base/log.h"
#include "external/proc.h"
#include "external/process_set.h"
#include "external/run_program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

namespace heddle::external {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kSuffix = ".engine";

std::string to_text(const ProcessName& process) {
  return std::to_string(process.pid) + " " + std::to_string(process.start_time);
}

/// Lines "key value". Marks are ours, and no path of a control group or name of a model has an end
/// of line in it.
std::string to_text(const Record& record) {
  return "model " + record.model + "\nowner " + to_text(record.owner) + "\nleader " +
         to_text(record.leader) + "\nmark " + record.mark + "\ncgroup " + record.cgroup +
         "\nruntime " + record.runtime + "\nend\n";
}

ProcessName process_from_text(const std::string& text) {
  ProcessName process;
  const char* const last = text.data() + text.size();
  const auto [space, error] = std::from_chars(text.data(), last, process.pid);
  if (error == std::errc() && space != last) {
    std::from_chars(space + 1, last, process.start_time);
  }
  return process;
}

std::optional<Record> from_text(const std::string& text) {
  Record record;
  bool whole = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    const std::size_t space = std::min(line.find(' '), line.size());
    const std::string key = line.substr(0, space);
    const std::string value = space < line.size() ? line.substr(space + 1) : "";
    if (key == "model") {
      record.model = value;
    } else if (key == "owner") {
      record.owner = process_from_text(value);
    } else if (key == "leader") {
      record.leader = process_from_text(value);
    } else if (key == "mark") {
      record.mark = value;
    } else if (key == "cgroup" && fs::path(value).filename().string().starts_with("heddle-")) {
      record.cgroup = value;
    } else if (key == "runtime") {
      record.runtime = value;
    } else if (key == "end") {
      whole = true;
    }
  }
  return whole && !record.mark.empty() ? std::optional(record) : std::nullopt;
}

bool runs(const ProcessName& process) {
  return process.pid > 0 && name_process(process.pid) == process;
}

Result<void> end(const Record& record, Duration patience) {
  if (record.runtime.empty()) {
    return end_leftover(record.cgroup, record.mark, patience);
  }
  const auto removed = run_program({record.runtime, "rm", "-f", record.mark}, patience);
  return removed ? Result<void>() : Result<void>(removed.error());
}

/// Nobody else can have put anything there: what is in it is done.
Result<void> check_private(const std::string& path) {
  struct stat facts{};
  if (::lstat(path.c_str(), &facts) != 0) {
    return Error{Code::kUnavailable, "look at " + path + ": " + std::strerror(errno)};
  }
  constexpr mode_t kWritableByOthers = 022;
  if (facts.st_uid != ::geteuid() || (facts.st_mode & kWritableByOthers) != 0 ||
      !(S_ISDIR(facts.st_mode) || S_ISREG(facts.st_mode))) {
    return Error{Code::kFailedPrecondition,
                 path + " could have been written by somebody else; it is not used"};
  }
  return {};
}

std::vector<fs::path> record_files(const std::string& directory) {
  std::vector<fs::path> files;
  if (!check_private(directory)) {
    return files;
  }
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() == kSuffix && check_private(entry->path().string())) {
      files.push_back(entry->path());
    }
  }
  return files;
}

}  // namespace

ProcessName name_process(pid_t pid) {
  const std::optional<ProcessFacts> facts = process_facts(pid);
  return facts && facts->state != 'Z' ? ProcessName{.pid = pid, .start_time = facts->start_time}
                                      : ProcessName();
}

Result<RecordFile> RecordFile::write(const std::string& directory, const Record& record) {
  std::error_code error;
  const bool made = fs::create_directories(directory, error);
  if (made) {
    fs::permissions(directory, fs::perms::owner_all, error);
  }
  if (const Result<void> ours = check_private(directory); !ours) {
    return ours.error();
  }
  RecordFile file(directory + "/" + record.mark + std::string(kSuffix));
  if (const Result<void> written = file.rewrite(record); !written) {
    return written.error();
  }
  return file;
}

Result<void> RecordFile::rewrite(const Record& record) const {
  constexpr mode_t kMode = 0600;
  const Descriptor file(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kMode));
  const std::string text = to_text(record);
  if (!file || ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return Error{Code::kUnavailable, "write " + path_ + ": " + std::strerror(errno)};
  }
  return {};
}

RecordFile::~RecordFile() {
  if (!path_.empty()) {
    (void)::unlink(path_.c_str());
  }
}

std::vector<Record> read_records(const std::string& directory) {
  std::vector<Record> records;
  for (const fs::path& path : record_files(directory)) {
    if (std::optional<Record> record = from_text(read_small_file(path.string()))) {
      records.push_back(std::move(*record));
    }
  }
  return records;
}

Result<std::size_t> end_leftovers(const std::string& directory, Duration patience) {
  std::size_t count = 0;
  Result<void> outcome;
  for (const fs::path& path : record_files(directory)) {
    const std::optional<Record> record = from_text(read_small_file(path.string()));
    if (record) {
      if (runs(record->owner)) {
        continue;  // Its own, or that of somebody who shares the directory.
      }
      log::warning("an engine of an earlier run is ended",
                   {{"model", record->model}, {"pid", record->leader.pid}});
      if (runs(record->leader)) {
        (void)::kill(record->leader.pid, SIGKILL);
      }
      if (const Result<void> ended = end(*record, patience); !ended) {
        outcome = ended;
        continue;  // The next start tries again.
      }
      ++count;
    }
    (void)::unlink(path.c_str());
  }
  if (!outcome) {
    return outcome.error();
  }
  return count;
}

}  // namespace heddle::external
