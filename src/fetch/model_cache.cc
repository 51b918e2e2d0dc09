#include "fetch/model_cache.h"

#include <algorithm>
#include <map>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "base/units.h"
#include "fetch/disk.h"
#include "fetch/file_lock.h"
#include "fetch/hub_cache.h"
#include "fetch/url_cache.h"

#include <sys/stat.h>

namespace heddle::fetch {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIncomplete = ".incomplete";
constexpr std::string_view kHubPrefix = "models--";

std::int64_t written_ns(const fs::path& path) {
  struct stat found{};
  return ::stat(path.c_str(), &found) == 0
             ? found.st_mtim.tv_sec * 1'000'000'000 + found.st_mtim.tv_nsec
             : 0;
}

std::vector<fs::path> folders_in(const fs::path& parent) {
  std::vector<fs::path> folders;
  std::error_code failure;
  for (fs::directory_iterator at(parent, failure), end; !failure && at != end;
       at.increment(failure)) {
    if (at->is_directory(failure)) {
      folders.push_back(at->path());
    }
  }
  return folders;
}

/// The folder that a model has, or will have, of one that it comes in.
fs::path without_incomplete(const fs::path& folder) {
  const std::string text = folder.string();
  return text.ends_with(kIncomplete) ? text.substr(0, text.size() - kIncomplete.size()) : text;
}

/// Models of heddle's own cache.
std::vector<CachedModel> own_models(const store::ModelPlaces& places) {
  std::vector<CachedModel> models;
  for (const fs::path& folder : folders_in(places.url_cache)) {
    const auto record = read_record(folder);
    if (!record) {
      continue;
    }
    const fs::path whole = without_incomplete(folder);
    models.push_back(
        {.name = record->name,
         .folder = folder,
         .bytes = taken_bytes(folder),
         .used_ns = std::max(written_ns(whole.string() + ".used"), written_ns(folder / ".source")),
         .is_incomplete = whole != folder});
  }
  return models;
}

/// What the budget counts of one model: its folders in the cache, and its outline.
struct Held {
  std::string name{};
  fs::path whole{};  ///< The folder that the model has, or will have.
  std::vector<fs::path> folders{};
  std::uint64_t bytes = 0;
  std::int64_t used_ns = 0;
  bool of_hub = false;
};

/// Bytes of an outline that are in no cache as well.
std::uint64_t own_bytes(const fs::path& outline) {
  std::uint64_t bytes = 0;
  std::error_code failure;
  for (fs::recursive_directory_iterator at(outline, failure), end; !failure && at != end;
       at.increment(failure)) {
    bytes += at->hard_link_count(failure) == 1 ? taken_bytes(at->path()) : 0;
  }
  return bytes;
}

std::vector<Held> held_by_budget(const store::ModelPlaces& places) {
  std::map<fs::path, Held> held;
  for (const CachedModel& model : own_models(places)) {
    Held& one = held[without_incomplete(model.folder)];
    one.name = model.name;
    one.folders.push_back(model.folder);
    one.bytes += model.bytes;
    one.used_ns = std::max(one.used_ns, model.used_ns);
  }
  for (const fs::path& folder : folders_in(outlines_folder(places))) {
    const auto record = read_record(folder);
    if (!record) {
      continue;
    }
    Held& one = held[store::url_folder(places, record->name)];
    one.name = record->name;
    one.folders.push_back(folder);
    one.bytes += own_bytes(folder);
    one.used_ns = std::max(one.used_ns, written_ns(folder / ".source"));
    one.of_hub = !store::is_url(record->name);
  }
  std::vector<Held> all;
  for (auto& [whole, one] : held) {
    one.whole = whole;
    all.push_back(std::move(one));
  }
  return all;
}

std::vector<CachedModel> hub_models(const store::ModelPlaces& places) {
  std::vector<CachedModel> models;
  for (const fs::path& folder : folders_in(places.hub_cache)) {
    std::string name = folder.filename().string();
    if (!name.starts_with(kHubPrefix)) {
      continue;
    }
    name.erase(0, kHubPrefix.size());
    if (const std::size_t dashes = name.find("--"); dashes != std::string::npos) {
      name.replace(dashes, 2, "/");
    }
    models.push_back({.name = name,
                      .folder = folder,
                      .bytes = taken_bytes(folder / "blobs"),
                      .used_ns = written_ns(folder / "snapshots"),
                      .of_hub = true,
                      .is_incomplete = folders_in(folder / "snapshots").empty()});
  }
  return models;
}

}  // namespace

fs::path outlines_folder(const store::ModelPlaces& places) {
  return places.url_cache.parent_path() / "outlines";
}

Result<std::unique_ptr<ModelPlace>> open_place(const SourceName& name,
                                               const store::ModelPlaces& places,
                                               const std::function<void()>& on_wait,
                                               const std::stop_token& stop) {
  return name.kind == SourceKind::kHub
             ? open_hub_place(
                   {.repository = name.repo, .revision = name.revision}, places, on_wait, stop)
             : open_url_place(name.text, places, on_wait, stop);
}

std::vector<CachedModel> cached_models(const store::ModelPlaces& places) {
  std::vector<CachedModel> models = own_models(places);
  std::ranges::move(hub_models(places), std::back_inserter(models));
  std::ranges::sort(models, [](const CachedModel& a, const CachedModel& b) {
    return std::tie(a.name, a.folder) < std::tie(b.name, b.folder);
  });
  return models;
}

Result<std::shared_ptr<void>> hold_in_cache(const SourceName& name,
                                            const store::ModelPlaces& places) {
  if (name.kind == SourceKind::kHub) {
    return std::shared_ptr<void>();
  }
  Result<FileLock> lock = FileLock::shared(use_of(store::url_folder(places, name.text)));
  if (!lock) {
    return lock.error();
  }
  return std::shared_ptr<void>(std::make_shared<FileLock>(std::move(*lock)));
}

Result<std::vector<std::string>> make_room(const store::ModelPlaces& places,
                                           std::uint64_t budget,
                                           std::uint64_t bytes,
                                           const fs::path& folder) {
  const Result<FileLock> alone =
      FileLock::wait(places.url_cache / ".budget.lock", [] {}, std::stop_token());
  if (!alone) {
    return alone.error();
  }
  std::vector<Held> held = held_by_budget(places);
  std::uint64_t taken = 0;
  for (const Held& each : held) {
    taken += each.bytes;
  }
  std::ranges::sort(held, {}, &Held::used_ns);
  struct Going {
    const Held* held = nullptr;
    FileLock lock;
    FileLock use;
  };
  std::vector<Going> going;
  for (const Held& each : held) {
    if (taken + bytes <= budget) {
      break;
    }
    if (each.whole == folder || each.of_hub) {
      continue;
    }
    Result<FileLock> lock = FileLock::now(lock_of(each.whole));
    Result<FileLock> use = FileLock::now(use_of(each.whole));
    if (lock && use) {
      taken -= each.bytes;
      going.push_back({.held = &each, .lock = std::move(*lock), .use = std::move(*use)});
    }
  }
  if (taken + bytes > budget) {
    return Error{
        Code::kResourceExhausted,
        fmt::format("{} more do not fit into the budget of {} for {}: {} of it {} taken by "
                    "what may not go, as servers use it; raise --budget or HEDDLE_CACHE_BUDGET",
                    format_bytes(bytes),
                    format_bytes(budget),
                    places.url_cache.string(),
                    format_bytes(taken),
                    "are")};
  }
  std::vector<std::string> names;
  for (const auto& [gone, lock, use] : going) {
    std::error_code failure;
    for (const fs::path& each : gone->folders) {
      const fs::path leaving = without_incomplete(each).string() + ".leaving";
      fs::rename(each, leaving, failure);  // So that nobody finds half of it.
      fs::remove_all(failure ? each : leaving, failure);
    }
    fs::remove(gone->whole.string() + ".used", failure);
    names.push_back(gone->name);
  }
  return names;
}

}  // namespace heddle::fetch
