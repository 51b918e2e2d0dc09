#include "store/model_source.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/descriptor.h"
#include "base/file.h"
#include "base/siphash.h"
#include "gguf/gguf_file.h"
#include "gguf/tagged_files.h"

#include <fcntl.h>
#include <sys/stat.h>

namespace heddle::store {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kReferenceBytesMax = 4096;

/// Parts of repository names and revisions become names of folders, so nothing that could lead out
/// of the cache may be in them.
bool is_safe_part(std::string_view part) {
  const bool safe = std::all_of(part.begin(), part.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
  });
  return safe && !part.empty() && part.size() <= 128 && part != "." && part != "..";
}

bool are_safe_parts(std::string_view text, std::ptrdiff_t slashes_max) {
  if (std::count(text.begin(), text.end(), '/') > slashes_max) {
    return false;
  }
  while (true) {
    const auto slash = text.find('/');
    if (!is_safe_part(text.substr(0, slash))) {
      return false;
    }
    if (slash == std::string_view::npos) {
      return true;
    }
    text.remove_prefix(slash + 1);
  }
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

std::string trimmed(std::string text) {
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  return text;
}

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// The snapshot of a downloaded repository, whose folder exists.
Result<fs::path> find_snapshot(const fs::path& folder, const HubName& name) {
  const fs::path snapshots = folder / "snapshots";
  if (is_folder(snapshots / name.revision)) {
    return snapshots / name.revision;  // A commit.
  }
  const fs::path reference = folder / "refs" / name.revision;
  const Result<std::string> commit = read_text(reference, kReferenceBytesMax);
  if (!commit) {
    return Error{
        Code::kNotFound,
        fmt::format("model {} is in the cache, but revision {} is not: there is neither {} "
                    "nor {}; the snapshots there are: {}; `heddle pull {}@{}` fetches it",
                    name.repository,
                    name.revision,
                    reference.string(),
                    (snapshots / name.revision).string(),
                    fmt::join(names_in(snapshots), ", "),
                    name.repository,
                    name.revision)};
  }
  const std::string revision = trimmed(*commit);
  if (!is_safe_part(revision) || !is_folder(snapshots / revision)) {
    return Error{
        Code::kNotFound,
        fmt::format("model {} is in the cache, but {} names snapshot \"{}\", which {} does "
                    "not have; `heddle pull {}@{}` fetches it again",
                    name.repository,
                    reference.string(),
                    revision.substr(0, 64),
                    snapshots.string(),
                    name.repository,
                    name.revision)};
  }
  return snapshots / revision;
}

/// The first of the GGUF files that a tag names in a snapshot, which must be there whole.
Result<fs::path> find_tagged(const fs::path& snapshot,
                             const HubName& name,
                             std::string_view source) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::recursive_directory_iterator it(snapshot, error), end; !error && it != end;
       it.increment(error)) {
    if (!it->is_directory(error)) {
      names.push_back(it->path().lexically_relative(snapshot).string());  // Files are links.
    }
  }
  const Result<std::vector<std::string>> files = gguf::tagged_files(names, name.tag);
  if (!files) {
    return Error{files.error().code,
                 fmt::format("model {} is in the cache at {}, but {}; `heddle pull {}` fetches it",
                             name.repository,
                             snapshot.string(),
                             files.error().message,
                             source)};
  }
  return snapshot / files->front();
}

/// A URL's characters as a folder's name may have them.
std::string readable(std::string_view source) {
  std::string name;
  for (const char c : source) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-';
    if (plain) {
      name += c;
    } else if (!name.empty() && name.back() != '_') {
      name += '_';
    }
  }
  constexpr std::size_t kMost = 80;
  return name.size() <= kMost ? name : name.substr(name.size() - kMost);
}

/// Notes when a model was last wanted. Where that fails, it counts as wanted when it came.
void note_use(const fs::path& folder) {
  const std::string path = folder.string() + ".used";
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  if (file) {
    (void)::futimens(file.get(), nullptr);
  }
}

Result<fs::path> find_url(std::string_view source, const ModelPlaces& places) {
  const fs::path folder = url_folder(places, source);
  if (is_folder(folder)) {
    note_use(folder);
    return folder;
  }
  constexpr std::string_view kFile = "file://";
  if (source.starts_with(kFile)) {
    const fs::path named = source.substr(kFile.size());
    return is_folder(named) ? Result<fs::path>(named)
                            : Error{Code::kNotFound,
                                    fmt::format("there is no model directory {}", named.string())};
  }
  return Error{Code::kNotFound,
               fmt::format("{} has not been fetched: there is no {}; `heddle pull {}` fetches it",
                           source,
                           folder.string(),
                           source)};
}

}  // namespace

std::optional<HubName> parse_hub_name(std::string_view source) {
  constexpr std::string_view kHub = "hf://";
  if (source.starts_with(kHub)) {
    source.remove_prefix(kHub.size());
  }
  const auto colon = source.rfind(':');
  const std::string_view tag =
      colon == std::string_view::npos ? std::string_view() : source.substr(colon + 1);
  const bool tagged = colon != std::string_view::npos;
  source = source.substr(0, colon);
  const auto at = source.find('@');
  HubName name{
      .repository = std::string(source.substr(0, at)), .revision = "main", .tag = std::string(tag)};
  if (at != std::string_view::npos) {
    name.revision = source.substr(at + 1);
  }
  // Revisions such as refs/pr/7 have slashes of their own.
  if (!are_safe_parts(name.repository, 1) || !are_safe_parts(name.revision, 4) ||
      (tagged && !is_safe_part(tag))) {
    return std::nullopt;
  }
  return name;
}

fs::path hub_folder(const ModelPlaces& places, const HubName& name) {
  std::string folder = "models--" + name.repository;
  if (const auto slash = folder.find('/'); slash != std::string::npos) {
    folder.replace(slash, 1, "--");
  }
  return places.hub_cache / folder;
}

bool is_url(std::string_view source) {
  return std::ranges::any_of(
      std::array<std::string_view, 4>{"s3://", "http://", "https://", "file://"},
      [&](std::string_view scheme) { return source.starts_with(scheme); });
}

fs::path url_folder(const ModelPlaces& places, std::string_view source) {
  while (source.ends_with('/')) {
    source.remove_suffix(1);
  }
  const Digest digest = siphash(SipKey{}, std::as_bytes(std::span(source)));
  return places.url_cache / fmt::format("{}-{:016x}", readable(source), digest.low);
}

ModelPlaces find_places(const fs::path& base, const Environment& environment) {
  ModelPlaces places{.base = base, .home = environment("HOME").value_or("")};
  if (const auto cache = environment("HF_HUB_CACHE")) {
    places.hub_cache = *cache;
  } else if (const auto hub_home = environment("HF_HOME")) {
    places.hub_cache = fs::path(*hub_home) / "hub";
  } else if (const auto xdg = environment("XDG_CACHE_HOME")) {
    places.hub_cache = fs::path(*xdg) / "huggingface" / "hub";
  } else {
    places.hub_cache = places.home / ".cache" / "huggingface" / "hub";
  }
  const fs::path cache = environment("XDG_CACHE_HOME").value_or((places.home / ".cache").string());
  places.url_cache = cache / "heddle" / "models";
  return places;
}

Environment process_environment() {
  return [](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody sets it.
    return value != nullptr && *value != '\0' ? std::optional<std::string>(value) : std::nullopt;
  };
}

Result<fs::path> find_model(std::string_view source, const ModelPlaces& places) {
  if (is_url(source) && source.find('\0') == std::string_view::npos) {
    return find_url(source, places);
  }
  const fs::path directory = source.starts_with("~/") ? places.home / source.substr(2)
                                                      : (places.base / source).lexically_normal();
  if (!source.empty() && (is_folder(directory) || gguf::is_gguf(directory))) {
    return directory;
  }
  const std::optional<HubName> name = parse_hub_name(source);
  if (source.empty() || source.find('\0') != std::string_view::npos) {
    return Error{Code::kInvalidArgument,
                 "the path of a model is empty or has a zero byte; it must be a directory, a GGUF "
                 "file or a name "
                 "such as Qwen/Qwen3-0.6B"};
  }
  const bool file = source.ends_with(".gguf");
  if (!name || (file && !is_folder(hub_folder(places, *name)))) {
    return Error{Code::kNotFound,
                 fmt::format("there is no model {} {}{}",
                             file ? "file" : "directory",
                             directory.string(),
                             is_folder(directory.parent_path()) ? "" : ", nor the one it is in")};
  }
  const fs::path folder = hub_folder(places, *name);
  if (!is_folder(folder)) {
    return Error{
        Code::kNotFound,
        fmt::format("there is no model {}: neither a directory {} nor, in the Hugging Face "
                    "cache, {}; `heddle pull {}` fetches it",
                    source,
                    directory.string(),
                    folder.string(),
                    source)};
  }
  Result<fs::path> snapshot = find_snapshot(folder, *name);
  return snapshot && !name->tag.empty() ? find_tagged(*snapshot, *name, source) : snapshot;
}

fs::file_time_type newest_write(const fs::path& model) {
  std::vector<fs::path> files;
  std::error_code error;
  if (gguf::is_gguf(model)) {
    files = gguf::part_paths(model);
  } else {
    for (const auto& entry : fs::directory_iterator(model, error)) {
      const fs::path extension = entry.path().extension();
      if (extension == ".json" || extension == ".safetensors") {
        files.push_back(entry.path());
      }
    }
  }
  fs::file_time_type newest = fs::file_time_type::min();
  for (const fs::path& file : files) {
    const fs::file_time_type written = fs::last_write_time(file, error);
    newest = error ? newest : std::max(newest, written);
  }
  return newest;
}

}  // namespace heddle::store
