#include "fetch/shared_cache.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "fetch/model_cache.h"
#include "fetch/url.h"
#include "fetch/url_cache.h"

namespace heddle::fetch {
namespace {

namespace fs = std::filesystem;

/// Files that are open at once, at most.
constexpr std::size_t kOpenMost = 256;
constexpr std::size_t kCommitBytesMost = 1024;

bool is_hexadecimal(std::string_view text, std::size_t length) {
  return text.size() == length && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}
bool is_sha256(std::string_view text) {
  return is_hexadecimal(text, 64);
}
bool is_git_sha1(std::string_view text) {
  return is_hexadecimal(text, 40);
}

/// An object of this identity: a digest by its form, else what a server said of it.
Object object_of(std::string name, std::uint64_t bytes, const std::string& identity) {
  Object object{.name = std::move(name), .bytes = bytes};
  (is_sha256(identity)     ? object.sha256
   : is_git_sha1(identity) ? object.git_sha1
                           : object.validator) = identity;
  return object;
}

Error not_there(const SourceName& name, std::string_view what) {
  return {Code::kNotFound, fmt::format("no cache here has {} of {}", what, shown(name.text))};
}

Result<SourceName> parse(const std::string& model) {
  Result<SourceName> name = parse_source_name(model);
  if (name && name->kind == SourceKind::kFile) {
    return Error{Code::kInvalidArgument, "a folder of one machine is no model of a network"};
  }
  return name;
}

fs::path hub_folder_of(const store::ModelPlaces& places, const SourceName& name) {
  return store::hub_folder(places, {.repository = name.repo, .revision = name.revision});
}

/// The commit that a revision is, where its snapshot is there.
std::optional<std::string> commit_of(const fs::path& folder, const std::string& revision) {
  const Result<std::string> named = read_text(folder / "refs" / revision, kCommitBytesMost);
  std::string commit = named ? *named : revision;
  while (commit.ends_with('\n')) {
    commit.pop_back();
  }
  std::error_code failure;
  const bool there =
      is_git_sha1(commit) && fs::is_directory(folder / "snapshots" / commit, failure);
  return there ? std::optional(std::move(commit)) : std::nullopt;
}

/// Whether a folder of heddle's cache has just that file.
bool has(const fs::path& folder, const SharedCache::Wanted& wanted) {
  const std::optional<FolderRecord> record = read_record(folder);
  if (!record || !stays_below(wanted.file)) {
    return false;
  }
  const auto found = record->files.find(wanted.file);
  return found != record->files.end() &&
         found->second == FolderRecord::File{.bytes = wanted.bytes, .identity = wanted.identity};
}

}  // namespace

Result<Listing> SharedCache::list(const std::string& model) const {
  const Result<SourceName> name = parse(model);
  if (!name) {
    return name.error();
  }
  Result<Listing> listing = name->kind == SourceKind::kHub ? list_hub(*name) : list_own(*name);
  return listing && listing->objects.empty() ? not_there(*name, "any file") : listing;
}

Result<Listing> SharedCache::list_hub(const SourceName& name) const {
  const fs::path folder = hub_folder_of(places_, name);
  const std::optional<std::string> commit = commit_of(folder, name.revision);
  if (!commit) {
    return not_there(name, "revision " + name.revision);
  }
  Listing listing{.revision = *commit};
  const fs::path snapshot = folder / "snapshots" / *commit;
  std::error_code failure;
  for (fs::recursive_directory_iterator at(snapshot, failure), end; !failure && at != end;
       at.increment(failure)) {
    std::error_code odd;
    const std::string identity = fs::read_symlink(at->path(), odd).filename().string();
    const std::uint64_t bytes = odd ? 0 : fs::file_size(folder / "blobs" / identity, odd);
    if (!odd && (is_sha256(identity) || is_git_sha1(identity))) {
      listing.objects.push_back(
          object_of(at->path().lexically_relative(snapshot).generic_string(), bytes, identity));
    }
  }
  return listing;
}

Result<Listing> SharedCache::list_own(const SourceName& name) const {
  const std::optional<FolderRecord> record = read_record(store::url_folder(places_, name.text));
  if (!record) {
    return not_there(name, "all");
  }
  Listing listing;
  for (const auto& [file, known] : record->files) {
    listing.objects.push_back(object_of(file, known.bytes, known.identity));
  }
  return listing;
}

Result<SharedCache::Opened> SharedCache::open(const SourceName& name, const Wanted& wanted) const {
  if (wanted.identity.empty()) {
    return not_there(name, "a file that nothing identifies");
  }
  Result<std::shared_ptr<void>> hold = hold_in_cache(name, places_);
  if (!hold) {
    return not_there(name, "a file that stays");
  }
  fs::path path;
  if (name.kind == SourceKind::kHub) {
    if (is_sha256(wanted.identity) || is_git_sha1(wanted.identity)) {
      path = hub_folder_of(places_, name) / "blobs" / wanted.identity;
    }
  } else {
    const fs::path folder = store::url_folder(places_, name.text);
    path = has(folder, wanted) ? folder / wanted.file : fs::path();
  }
  Result<File> file = path.empty() ? Result<File>(not_there(name, wanted.file)) : File::open(path);
  if (!file || file->bytes() != wanted.bytes) {
    return not_there(name, wanted.file + ", of these bytes,");
  }
  return Opened{.file = std::move(file).value(), .hold = std::move(hold).value()};
}

Result<std::string> SharedCache::read(const Wanted& wanted, Instant now) {
  const Result<SourceName> name = parse(wanted.model);
  if (!name) {
    return name.error();
  }
  if (wanted.range.begin > wanted.range.end || wanted.range.end > wanted.bytes) {
    return Error{Code::kInvalidArgument,
                 fmt::format("bytes {} to {} are not in a file of {}",
                             wanted.range.begin,
                             wanted.range.end,
                             wanted.bytes)};
  }
  const Key key{wanted.model, wanted.file, wanted.identity};
  std::shared_ptr<Opened> opened;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = opened_.find(key); found != opened_.end()) {
      opened = found->second;
      opened->used = now;
    }
  }
  if (!opened || opened->file.bytes() != wanted.bytes) {
    Result<Opened> fresh = open(*name, wanted);
    if (!fresh) {
      return fresh.error();
    }
    opened = std::make_shared<Opened>(std::move(fresh).value());
    opened->used = now;
    const std::lock_guard lock(mutex_);
    if (opened_.size() >= kOpenMost) {
      opened_.erase(std::ranges::min_element(
          opened_, {}, [](const auto& entry) { return entry.second->used; }));
    }
    opened_[key] = opened;
  }
  std::string bytes(wanted.range.bytes(), '\0');
  const Result<void> read =
      opened->file.read(wanted.range.begin, std::as_writable_bytes(std::span(bytes)));
  return read ? Result<std::string>(std::move(bytes)) : read.error();
}

bool SharedCache::let_go(Instant since) {
  const std::lock_guard lock(mutex_);
  std::erase_if(opened_, [&](const auto& entry) { return entry.second->used <= since; });
  return !opened_.empty();
}

}  // namespace heddle::fetch
