#include "external/proc.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/descriptor.h"
#include "external/process_set.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

namespace heddle::external {

std::string read_small_file(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  if (!file) {
    return text;
  }
  constexpr std::size_t kChunk = 4096;
  for (;;) {
    const std::size_t had = text.size();
    text.resize(had + kChunk);
    const ssize_t got = ::read(file.get(), text.data() + had, kChunk);
    text.resize(had + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got <= 0) {
      return text;
    }
  }
}

bool write_small_file(const std::string& path, const std::string& text) {
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  return file && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

std::optional<ProcessFacts> process_facts(pid_t pid) {
  const std::string text = read_small_file("/proc/" + std::to_string(pid) + "/stat");
  // The name, in brackets, may hold anything, brackets too: fields are counted from behind it.
  const std::size_t close = text.rfind(')');
  if (close == std::string::npos) {
    return std::nullopt;
  }
  std::vector<std::string_view> fields;
  std::string_view rest = std::string_view(text).substr(close + 1);
  while (!rest.empty()) {
    rest.remove_prefix(std::min(rest.find_first_not_of(" \n"), rest.size()));
    const std::size_t end = std::min(rest.find_first_of(" \n"), rest.size());
    if (end > 0) {
      fields.push_back(rest.substr(0, end));
    }
    rest.remove_prefix(end);
  }
  constexpr std::size_t kStartTime = 19;  // proc(5) counts it as 22, from the number.
  if (fields.size() <= kStartTime) {
    return std::nullopt;
  }
  ProcessFacts facts;
  facts.state = fields[0][0];
  std::from_chars(fields[1].begin(), fields[1].end(), facts.parent);
  std::from_chars(fields[kStartTime].begin(), fields[kStartTime].end(), facts.start_time);
  return facts;
}

std::vector<pid_t> all_processes() {
  std::vector<pid_t> found;
  DIR* directory = ::opendir("/proc");
  if (directory == nullptr) {
    return found;
  }
  // NOLINTNEXTLINE(concurrency-mt-unsafe): the stream is ours alone.
  for (const dirent* entry = ::readdir(directory); entry != nullptr; entry = ::readdir(directory)) {
    const std::string_view name = entry->d_name;
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(name.begin(), name.end(), pid);
    if (error == std::errc() && end == name.end()) {
      found.push_back(pid);
    }
  }
  (void)::closedir(directory);
  std::sort(found.begin(), found.end());
  return found;
}

bool has_in_environment(pid_t pid, const std::string& assignment) {
  const std::string all = read_small_file("/proc/" + std::to_string(pid) + "/environ");
  const std::string wanted = assignment + '\0';
  for (std::size_t at = all.find(wanted); at != std::string::npos; at = all.find(wanted, at + 1)) {
    if (at == 0 || all[at - 1] == '\0') {
      return true;
    }
  }
  return false;
}

std::vector<pid_t> marked_processes(const std::string& mark) {
  const std::string assignment = std::string(kMarkVariable) + "=" + mark;
  std::vector<pid_t> found = all_processes();
  std::erase_if(found, [&](pid_t pid) {
    return pid == ::getpid() || !has_in_environment(pid, assignment);  // A zombie's is empty.
  });
  return found;
}

}  // namespace heddle::external
