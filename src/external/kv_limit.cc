#include "external/kv_limit.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/descriptor.h"
#include "external/engine_body.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace heddle::external {
namespace {

constexpr std::string_view kSegmentPrefix = "heddle_kv_";
constexpr std::size_t kLabelMost = 32;
/// Pools of one engine: full attention, windows, states.
constexpr int kPoolsMost = 16;
/// More than any device has: 2^50 bytes.
constexpr std::int64_t kBytesMost = std::int64_t{1} << 50U;

/// As kvcached lays it out.
struct MemInfo {
  std::int64_t total = 0;
  std::int64_t used = 0;
  std::int64_t prealloc = 0;
};
static_assert(sizeof(MemInfo) == 24);

Error trouble(Code code, const std::string& path, const std::string& what) {
  return {code, "the KV segment " + path + " " + what};
}

/// One segment, open and locked.
class OpenSegment {
 public:
  static Result<OpenSegment> open(const std::string& path, int lock) {
    Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (!file) {
      return errno == ENOENT
                 ? trouble(Code::kNotFound, path, "is missing: no kvcached runs in the engine")
                 : trouble(Code::kUnavailable, path, std::string("opens not: ") + strerror(errno));
    }
    struct stat state{};
    if (::fstat(file.get(), &state) != 0 || state.st_size != sizeof(MemInfo)) {
      return trouble(Code::kCorrupt,
                     path,
                     "has " + std::to_string(state.st_size) + " bytes where kvcached 0.1 has " +
                         std::to_string(sizeof(MemInfo)) + ": another version wrote it");
    }
    if (::flock(file.get(), lock | LOCK_NB) != 0) {
      return trouble(Code::kUnavailable, path, "is locked by the engine");
    }
    return OpenSegment(std::move(file));
  }

  Result<MemInfo> read(const std::string& path) const {
    MemInfo info;
    if (::pread(file_.get(), &info, sizeof(info), 0) != sizeof(info)) {
      return trouble(Code::kCorrupt, path, "cannot be read whole");
    }
    for (const std::int64_t value : {info.total, info.used, info.prealloc}) {
      if (value < 0 || value > kBytesMost) {
        return trouble(Code::kCorrupt,
                       path,
                       "says " + std::to_string(value) +
                           " bytes, which no engine has: another version wrote it");
      }
    }
    return info;
  }

  /// The limit alone: the rest is the engine's.
  Result<void> write_total(const std::string& path, std::int64_t total) const {
    if (::pwrite(file_.get(), &total, sizeof(total), offsetof(MemInfo, total)) != sizeof(total)) {
      return trouble(
          Code::kUnavailable, path, std::string("cannot be written: ") + strerror(errno));
    }
    return {};
  }

 private:
  explicit OpenSegment(Descriptor file) : file_(std::move(file)) {}

  Descriptor file_;  ///< Closing it gives the lock up.
};

}  // namespace

KvSegments::KvSegments(std::string directory, std::string name)
    : directory_(std::move(directory)), name_(std::move(name)) {}

/// The first, whether it is there or not, and those of further pools that are.
std::vector<std::string> KvSegments::paths() const {
  const std::string first = directory_ + "/" + name_;
  std::vector<std::string> all{first};
  for (int group = 1; group < kPoolsMost; ++group) {
    const std::string path = first + "_g" + std::to_string(group);
    if (::access(path.c_str(), F_OK) == 0) {
      all.push_back(path);
    }
  }
  return all;
}

Result<KvUse> KvSegments::read() const {
  KvUse use;
  for (const std::string& path : paths()) {
    const Result<OpenSegment> segment = OpenSegment::open(path, LOCK_SH);
    if (!segment) {
      return segment.error();
    }
    const Result<MemInfo> info = segment->read(path);
    if (!info) {
      return info.error();
    }
    use.limit += static_cast<std::uint64_t>(info->total);
    use.used += static_cast<std::uint64_t>(info->used);
    use.prealloc += static_cast<std::uint64_t>(info->prealloc);
  }
  return use;
}

Result<void> KvSegments::set_limit(std::uint64_t bytes) const {
  const std::vector<std::string> all = paths();
  if (bytes < all.size()) {
    return Error{Code::kInvalidArgument,
                 "limit the KV of " + name_ + " to " + std::to_string(bytes) +
                     " bytes: kvcached takes no notice of a limit of 0"};
  }
  std::vector<OpenSegment> segments;
  std::vector<double> totals;
  double sum = 0;
  for (const std::string& path : all) {
    Result<OpenSegment> segment = OpenSegment::open(path, LOCK_EX);
    if (!segment) {
      return segment.error();
    }
    const Result<MemInfo> info = segment->read(path);
    if (!info) {
      return info.error();
    }
    totals.push_back(static_cast<double>(std::max<std::int64_t>(info->total, 1)));
    sum += totals.back();
    segments.push_back(std::move(*segment));
  }
  std::uint64_t left = std::min(bytes, static_cast<std::uint64_t>(kBytesMost));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::uint64_t later = all.size() - i - 1;  // A byte for each of those.
    const auto part = static_cast<std::uint64_t>(static_cast<double>(bytes) * totals[i] / sum);
    const std::uint64_t own = later == 0 ? left : std::clamp<std::uint64_t>(part, 1, left - later);
    const Result<void> written = segments[i].write_total(all[i], static_cast<std::int64_t>(own));
    if (!written) {
      return written;
    }
    left -= own;
  }
  return {};
}

void KvSegments::remove() const {
  for (const std::string& path : paths()) {
    (void)::unlink(path.c_str());  // That it is not there is what is wanted.
  }
}

std::string segment_name(pid_t owner, const std::string& model) {
  std::uint32_t hash = 2166136261U;  // FNV-1a: labels of different models may be alike.
  for (const char letter : model) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 16777619U;
  }
  std::array<char, 9> digits{};
  (void)std::snprintf(digits.data(), digits.size(), "%08x", hash);
  std::string label = safe_label(model).substr(0, kLabelMost);
  for (char& letter : label) {
    const bool allowed = std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_';
    letter = allowed ? letter : '-';
  }
  return std::string(kSegmentPrefix) + std::to_string(owner) + "_" + digits.data() + "_" + label;
}

std::int64_t remove_left_segments(const std::string& directory) {
  std::int64_t removed = 0;
  std::error_code error;
  for (auto entry = std::filesystem::directory_iterator(directory, error);
       !error && entry != std::filesystem::directory_iterator();
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(kSegmentPrefix)) {
      continue;
    }
    pid_t owner = 0;
    const char* first = name.data() + kSegmentPrefix.size();
    const auto parsed = std::from_chars(first, name.data() + name.size(), owner);
    const bool gone = parsed.ec == std::errc() && *parsed.ptr == '_' && owner > 0 &&
                      ::kill(owner, 0) != 0 && errno == ESRCH;
    if (gone && ::unlink(entry->path().c_str()) == 0) {
      ++removed;
    }
  }
  return removed;
}

}  // namespace heddle::external
