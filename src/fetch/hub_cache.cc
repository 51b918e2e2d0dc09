#include "fetch/hub_cache.h"

#include <algorithm>
#include <set>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "fetch/disk.h"
#include "fetch/file_lock.h"

namespace heddle::fetch {
namespace {

namespace fs = std::filesystem;

class HubPlace final : public ModelPlace {
 public:
  HubPlace(store::HubName name,
           const store::ModelPlaces& places,
           FileLock lock,
           std::function<void()> on_wait,
           std::stop_token stop)
      : name_(std::move(name)),
        folder_(store::hub_folder(places, name_)),
        locks_folder_(places.hub_cache / ".locks" / folder_.filename()),
        lock_(std::move(lock)),
        on_wait_(std::move(on_wait)),
        stop_(std::move(stop)) {}

  Result<std::vector<Job>> missing(const std::string& revision,
                                   const std::vector<Object>& wanted) override {
    commit_ = revision;
    wanted_ = wanted;
    std::vector<Job> jobs;
    std::set<fs::path> listed;  // Files may be equal.
    for (const Object& object : wanted) {
      if (!object.has_digest()) {
        return Error{Code::kCorrupt,
                     fmt::format("the hub says no digest of {}, by which its cache names files",
                                 object.name)};
      }
      if (is_there(object) || !listed.insert(blob(object)).second) {
        continue;
      }
      Result<FileLock> lock = FileLock::wait(
          locks_folder_ / (object.identity() + ".lock"), [this] { on_wait_(); }, stop_);
      if (!lock) {
        return lock.error();
      }
      if (!is_there(object)) {  // Who had the lock may have fetched it.
        blob_locks_.push_back(std::move(lock).value());
        jobs.push_back({.object = object, .partial = blob(object).string() + ".heddle.incomplete"});
      }
    }
    return jobs;
  }

  Result<void> keep(const Job& job) override { return move_file(job.partial, blob(job.object)); }

  [[nodiscard]] fs::path place_of(const Object& object) const override { return blob(object); }

  Result<fs::path> publish() override {
    const fs::path snapshot = folder_ / "snapshots" / commit_;
    std::error_code ignored;
    const bool is_new = !fs::exists(snapshot, ignored);
    // A new one appears at once; what others have begun is completed where it is.
    const fs::path target = is_new ? folder_ / ".heddle-snapshot" : snapshot;
    if (is_new) {
      fs::remove_all(target, ignored);
    }
    for (const Object& object : wanted_) {
      if (const Result<void> linked = link(target, object); !linked) {
        return linked.error();
      }
    }
    if (is_new) {
      if (const Result<void> made = make_folder(snapshot.parent_path()); !made) {
        return made.error();
      }
      if (const Result<void> moved = move_file(target, snapshot); !moved) {
        return moved.error();
      }
    }
    if (name_.revision != commit_) {
      if (const Result<void> named = write_file(folder_ / "refs" / name_.revision, commit_);
          !named) {
        return named.error();
      }
    }
    return snapshot;
  }

 private:
  [[nodiscard]] fs::path blob(const Object& object) const {
    return folder_ / "blobs" / object.identity();
  }
  [[nodiscard]] bool is_there(const Object& object) const {
    std::error_code failure;
    const std::uintmax_t bytes = fs::file_size(blob(object), failure);
    return !failure && bytes == object.bytes;
  }

  /// Has a name below `target` lead to its blob, by the same relative path in any snapshot.
  [[nodiscard]] Result<void> link(const fs::path& target, const Object& object) const {
    const fs::path name = object.name;
    fs::path up = "../..";
    for (fs::path parent = name.parent_path(); !parent.empty(); parent = parent.parent_path()) {
      up /= "..";
    }
    const fs::path to = up / "blobs" / object.identity();
    const fs::path place = target / name;
    std::error_code failure;
    if (fs::is_symlink(place, failure) && fs::read_symlink(place, failure) == to) {
      return {};
    }
    if (const Result<void> made = make_folder(place.parent_path()); !made) {
      return made;
    }
    fs::remove(place, failure);
    fs::create_symlink(to, place, failure);
    return failure ? Result<void>(disk_error("link", place, failure.value())) : Result<void>();
  }

  store::HubName name_;
  fs::path folder_;
  fs::path locks_folder_;
  FileLock lock_;
  std::function<void()> on_wait_;
  std::stop_token stop_;
  std::vector<FileLock> blob_locks_{};
  std::string commit_{};
  std::vector<Object> wanted_{};
};

}  // namespace

Result<std::unique_ptr<ModelPlace>> open_hub_place(const store::HubName& name,
                                                   const store::ModelPlaces& places,
                                                   const std::function<void()>& on_wait,
                                                   const std::stop_token& stop) {
  const fs::path folder = store::hub_folder(places, name).filename();
  Result<FileLock> lock =
      FileLock::wait(places.hub_cache / ".locks" / folder / "heddle.lock", on_wait, stop);
  if (!lock) {
    return lock.error();
  }
  return std::unique_ptr<ModelPlace>(
      std::make_unique<HubPlace>(name, places, std::move(lock).value(), on_wait, stop));
}

}  // namespace heddle::fetch
