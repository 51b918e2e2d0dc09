#include "fetch/file_source.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/file.h"

#include <sys/stat.h>

namespace heddle::fetch {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kBlock = 1U << 20U;
constexpr int kDepthMax = 2;  ///< Folders that are looked into.

/// Size and moment of the last change; nothing where it is no file.
std::optional<Object> describe_file(const fs::path& path, const std::string& name) {
  struct stat found{};
  if (::stat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode)) {
    return std::nullopt;
  }
  return Object{.name = name,
                .url = path.string(),
                .bytes = static_cast<std::uint64_t>(found.st_size),
                .validator = fmt::format(
                    "{}.{:09}-{}", found.st_mtim.tv_sec, found.st_mtim.tv_nsec, found.st_ino)};
}

}  // namespace

Result<Listing> FileSource::list(const std::stop_token& /*stop*/) {
  Listing listing;
  const fs::path root = name_.path;
  std::error_code failure;
  for (fs::recursive_directory_iterator at(root, failure), end; !failure && at != end;
       at.increment(failure)) {
    if (at.depth() + 1 >= kDepthMax) {
      at.disable_recursion_pending();
    }
    const std::string name = at->path().lexically_relative(root).generic_string();
    if (std::optional<Object> object = describe_file(at->path(), name)) {
      listing.objects.push_back(std::move(*object));
    }
  }
  if (failure) {
    return Error{
        failure == std::errc::permission_denied ? Code::kFailedPrecondition : Code::kNotFound,
        fmt::format("{}: {}", name_.text, failure.message())};
  }
  return listing;
}

Result<void> FileSource::read(const Object& object,
                              Range range,
                              const Sink& sink,
                              const std::stop_token& stop) {
  const Result<File> file = File::open(object.url);
  if (!file) {
    return file.error();
  }
  const std::optional<Object> now = describe_file(object.url, object.name);
  if (!now || now->validator != object.validator || now->bytes != object.bytes) {
    return Error{Code::kCorrupt,
                 fmt::format("{} changed while it was fetched; fetch it again", object.url)};
  }
  std::vector<std::byte> block(std::min(kBlock, range.bytes()));
  for (std::uint64_t at = range.begin; at < range.end; at += block.size()) {
    if (stop.stop_requested()) {
      return Error{Code::kCancelled, "stopped"};
    }
    const std::span part = std::span(block).first(std::min(block.size(), range.end - at));
    if (const Result<void> got = file->read(at, part); !got) {
      return got.error();
    }
    if (const Result<void> kept = sink(at, part); !kept) {
      return kept.error();
    }
  }
  return {};
}

}  // namespace heddle::fetch
