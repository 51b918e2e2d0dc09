#include "fetch/url_cache.h"

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <mutex>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "fetch/disk.h"
#include "fetch/file_lock.h"

#include <fcntl.h>

namespace heddle::fetch {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRecordFile = ".source";
constexpr std::string_view kRecordHead = "heddle model 1 ";
constexpr std::uint64_t kRecordBytesMax = 16U << 20U;

class UrlPlace final : public ModelPlace {
 public:
  UrlPlace(const std::string& name, fs::path folder, FileLock lock)
      : folder_(std::move(folder)), work_(incomplete_of(folder_)), lock_(std::move(lock)) {
    record_.name = name;
  }

  Result<std::vector<Job>> missing(const std::string& /*revision*/,
                                   const std::vector<Object>& wanted) override {
    const std::optional<FolderRecord> whole = read_record(folder_);
    if (whole && whole->files.size() == wanted.size() && has_all(folder_, *whole, wanted)) {
      complete_ = true;
      return std::vector<Job>{};
    }
    const std::optional<FolderRecord> begun = read_record(work_);
    std::vector<Job> jobs;
    for (const Object& object : wanted) {
      const fs::path place = work_ / object.name;
      wanted_.insert(object.name);
      if (begun && has(work_, *begun, object)) {
        record_.files[object.name] = {object.bytes, object.identity()};
      } else if (whole && has(folder_, *whole, object) && link(folder_ / object.name, place)) {
        record_.files[object.name] = {object.bytes, object.identity()};
      } else {
        jobs.push_back({.object = object, .partial = place.string() + ".part"});
      }
    }
    if (const Result<void> noted = write_record(work_, record_); !noted) {
      return noted.error();
    }
    return jobs;
  }

  Result<void> keep(const Job& job) override {
    const std::lock_guard lock(mutex_);
    if (const Result<void> moved = move_file(job.partial, work_ / job.object.name); !moved) {
      return moved;
    }
    record_.files[job.object.name] = {job.object.bytes, job.object.identity()};
    return write_record(work_, record_);
  }

  [[nodiscard]] fs::path place_of(const Object& object) const override {
    return (complete_ ? folder_ : work_) / object.name;
  }

  Result<fs::path> publish() override {
    if (complete_) {
      return folder_;
    }
    remove_others();
    std::error_code ignored;
    if (!fs::exists(folder_, ignored)) {
      const Result<void> moved = move_file(work_, folder_);
      return moved ? Result<fs::path>(folder_) : moved.error();
    }
    // Whoever opens the model finds the old one or the new one.
    if (::renameat2(AT_FDCWD, work_.c_str(), AT_FDCWD, folder_.c_str(), RENAME_EXCHANGE) != 0) {
      return disk_error("replace", folder_, errno);
    }
    fs::remove_all(work_, ignored);
    return folder_;
  }

 private:
  static bool has(const fs::path& folder, const FolderRecord& record, const Object& object) {
    const auto found = record.files.find(object.name);
    std::error_code failure;
    return found != record.files.end() && !object.identity().empty() &&
           found->second.identity == object.identity() && found->second.bytes == object.bytes &&
           fs::file_size(folder / object.name, failure) == object.bytes;
  }
  static bool has_all(const fs::path& folder,
                      const FolderRecord& record,
                      const std::vector<Object>& wanted) {
    return std::ranges::all_of(wanted,
                               [&](const Object& object) { return has(folder, record, object); });
  }
  static bool link(const fs::path& from, const fs::path& to) {
    std::error_code failure;
    fs::create_directories(to.parent_path(), failure);
    fs::remove(to, failure);
    fs::create_hard_link(from, to, failure);
    return !failure;
  }

  /// What an earlier listing had, or an earlier try began.
  void remove_others() const {
    std::vector<fs::path> others;
    std::error_code failure;
    for (fs::recursive_directory_iterator at(work_, failure), end; !failure && at != end;
         at.increment(failure)) {
      const std::string name = at->path().lexically_relative(work_).generic_string();
      if (!at->is_directory(failure) && name != kRecordFile && !wanted_.contains(name)) {
        others.push_back(at->path());
      }
    }
    for (const fs::path& other : others) {
      fs::remove(other, failure);
    }
  }

  fs::path folder_;
  fs::path work_;
  FileLock lock_;
  bool complete_ = false;
  std::set<std::string> wanted_{};
  std::mutex mutex_{};
  FolderRecord record_{};
};

}  // namespace

std::optional<FolderRecord> read_record(const fs::path& folder) {
  const Result<std::string> text = read_text(folder / kRecordFile, kRecordBytesMax);
  if (!text || !text->starts_with(kRecordHead)) {
    return std::nullopt;
  }
  std::istringstream lines(text->substr(kRecordHead.size()));
  FolderRecord record;
  std::getline(lines, record.name);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find('\t');
    const std::size_t second = line.find('\t', first + 1);
    FolderRecord::File file;
    const auto [end, failure] = std::from_chars(line.data(), line.data() + line.size(), file.bytes);
    if (first == std::string::npos || second == std::string::npos || failure != std::errc() ||
        end != line.data() + first) {
      return std::nullopt;
    }
    file.identity = line.substr(first + 1, second - first - 1);
    record.files[line.substr(second + 1)] = std::move(file);
  }
  return record;
}

Result<void> write_record(const fs::path& folder, const FolderRecord& record) {
  std::string text = fmt::format("{}{}\n", kRecordHead, record.name);
  for (const auto& [name, file] : record.files) {
    text += fmt::format("{}\t{}\t{}\n", file.bytes, file.identity, name);
  }
  return write_file(folder / kRecordFile, text);
}

fs::path lock_of(const fs::path& folder) {
  return folder.string() + ".lock";
}

fs::path use_of(const fs::path& folder) {
  return folder.string() + ".in-use";
}

fs::path incomplete_of(const fs::path& folder) {
  return folder.string() + ".incomplete";
}

Result<std::unique_ptr<ModelPlace>> open_url_place(const std::string& name,
                                                   const store::ModelPlaces& places,
                                                   const std::function<void()>& on_wait,
                                                   const std::stop_token& stop) {
  const fs::path folder = store::url_folder(places, name);
  Result<FileLock> lock = FileLock::wait(lock_of(folder), on_wait, stop);
  if (!lock) {
    return lock.error();
  }
  return std::unique_ptr<ModelPlace>(
      std::make_unique<UrlPlace>(name, folder, std::move(lock).value()));
}

}  // namespace heddle::fetch
