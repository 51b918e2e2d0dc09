#include "fetch/outline.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/descriptor.h"
#include "base/file.h"
#include "fetch/disk.h"
#include "fetch/url_cache.h"
#include "store/safetensors.h"

#include <fcntl.h>
#include <unistd.h>

namespace heddle::fetch {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLengthBytes = 8;  // Before a header stands how long it is.
/// Most headers are no longer, and are read with one request.
constexpr std::uint64_t kFirstReadBytes = 256U << 10U;

fs::path outline_folder(const store::ModelPlaces& places, std::string_view model) {
  store::ModelPlaces beside = places;
  beside.url_cache = outlines_folder(places);
  return store::url_folder(beside, model);
}

FolderRecord record_of(const std::string& name, const std::vector<Object>& files) {
  FolderRecord record{.name = name};
  for (const Object& file : files) {
    record.files[file.name] = {.bytes = file.bytes, .identity = file.identity()};
  }
  return record;
}

/// The first bytes of an object, of a server without ranges too.
Result<std::string> read_front(Source& source,
                               const Object& object,
                               std::uint64_t bytes,
                               const std::stop_token& stop) {
  std::string front;
  const Sink sink = [&](std::uint64_t offset, std::span<const std::byte> part) -> Result<void> {
    if (offset == front.size()) {
      front.append(reinterpret_cast<const char*>(part.data()), part.size());
    }
    return front.size() < bytes ? Result<void>() : Error{Code::kCancelled, "that is enough"};
  };
  Result<void> read = source.read(object, {0, bytes}, sink, stop);
  if (!read && read.error().message == kIgnoresRanges) {
    read = source.read(object, {0, object.bytes}, sink, stop);
  }
  if (front.size() < bytes) {
    return read ? Error{Code::kCorrupt, object.name + " ended early"} : read.error();
  }
  front.resize(bytes);
  return front;
}

/// What the first bytes of a file say of the length of its header.
std::uint64_t length_in(std::string_view front) {
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < std::min<std::size_t>(kLengthBytes, front.size()); ++i) {
    length |= static_cast<std::uint64_t>(static_cast<unsigned char>(front[i])) << (8 * i);
  }
  return length;
}

/// The header of a file with weights and the length before it.
Result<std::string> read_header(Source& source, const Object& object, const std::stop_token& stop) {
  Result<std::string> front =
      read_front(source, object, std::min(kFirstReadBytes, object.bytes), stop);
  if (!front) {
    return front;
  }
  const std::uint64_t length = length_in(*front);
  const bool fits = object.bytes >= kLengthBytes && length <= store::kHeaderBytesMax &&
                    length <= object.bytes - kLengthBytes;
  if (!fits) {
    return Error{Code::kCorrupt,
                 fmt::format("{} is no safetensors file: of its {} bytes {} would be its header",
                             object.name,
                             object.bytes,
                             length)};
  }
  const std::uint64_t bytes = kLengthBytes + length;
  if (bytes > front->size()) {
    return read_front(source, object, bytes, stop);
  }
  front->resize(bytes);
  return front;
}

/// A file of `bytes` that begins with `front`; the rest takes no room.
Result<void> write_hollow(const fs::path& path, std::string_view front, std::uint64_t bytes) {
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file || ::ftruncate(file.get(), static_cast<::off_t>(bytes)) != 0) {
    return disk_error("make", path, errno);
  }
  while (!front.empty()) {
    const ::ssize_t wrote = ::write(file.get(), front.data(), front.size());
    if (wrote < 0 && errno == EINTR) {
      continue;
    }
    if (wrote <= 0) {
      return disk_error("write", path, wrote < 0 ? errno : ENOSPC);
    }
    front.remove_prefix(static_cast<std::size_t>(wrote));
  }
  return {};
}

/// Takes no more room than the file itself, where both are on one disk.
Result<void> link_or_copy(const fs::path& from, const fs::path& to) {
  std::error_code failure;
  fs::create_hard_link(from, to, failure);
  if (failure) {
    failure.clear();
    fs::copy_file(from, to, failure);
  }
  return failure ? Result<void>(disk_error("copy", to, failure.value())) : Result<void>();
}

Result<void> fetch_all(ModelFetch& fetch,
                       const std::vector<Job>& jobs,
                       const TransferOptions& transfer) {
  if (Result<void> room = fetch.make_place(needed_bytes(jobs)); !room) {
    return room;
  }
  fetch.tell_begin(jobs);
  return fetch.fetch(jobs, transfer);
}

/// What is there as a whole.
Result<Outline> whole(ModelFetch& fetch) {
  Result<fs::path> model = fetch.publish();
  return model ? Result<Outline>(Outline{.directory = *model, .whole = true, .changed = true})
               : model.error();
}

/// Makes the outline in `folder`, which is empty.
Result<void> draw(ModelFetch& fetch, const fs::path& folder, const std::stop_token& stop) {
  for (const Object& file : fetch.wanted()) {
    const fs::path path = folder / file.name;
    if (Result<void> made = make_folder(path.parent_path()); !made) {
      return made;
    }
    if (!has_weights(file.name)) {
      if (Result<void> linked = link_or_copy(fetch.place_of(file), path); !linked) {
        return linked;
      }
      continue;
    }
    const Result<std::string> header = read_header(fetch.source(), file, stop);
    if (!header) {
      return header.error();
    }
    if (Result<void> written = write_hollow(path, *header, file.bytes); !written) {
      return written;
    }
  }
  return {};
}

/// Puts a folder in the place of another, at once.
Result<void> replace(const fs::path& with, const fs::path& folder) {
  std::error_code ignored;
  if (!fs::exists(folder, ignored)) {
    return move_file(with, folder);
  }
  if (::renameat2(AT_FDCWD, with.c_str(), AT_FDCWD, folder.c_str(), RENAME_EXCHANGE) != 0) {
    return disk_error("replace", folder, errno);
  }
  fs::remove_all(with, ignored);
  return {};
}

}  // namespace

Result<std::string> read_front_of(const fs::path& path) {
  const Result<File> file = File::open(path);
  if (!file) {
    return file.error();
  }
  std::string front(std::min<std::uint64_t>(kLengthBytes, file->bytes()), '\0');
  if (const Result<void> read = file->read(0, std::as_writable_bytes(std::span(front))); !read) {
    return read.error();
  }
  const std::uint64_t length = length_in(front);
  if (length > store::kHeaderBytesMax || length > file->bytes() - front.size()) {
    return Error{Code::kCorrupt, path.string() + " is no outline of a file with weights"};
  }
  front.resize(kLengthBytes + length);
  const Result<void> read = file->read(0, std::as_writable_bytes(std::span(front)));
  return read ? Result<std::string>(std::move(front)) : read.error();
}

bool has_weights(std::string_view file) {
  return file.ends_with(".safetensors");
}

Result<Outline> fetch_outline(std::string_view model,
                              const PullOptions& options,
                              PullWatch& watch,
                              const std::stop_token& stop) {
  Result<SourceName> name = parse_source_name(model);
  if (!name) {
    return name.error();
  }
  ModelFetch fetch(*name, options, watch, stop);
  if (const Result<void> opened = fetch.open(); !opened) {
    return opened.error();
  }
  const Result<std::vector<Job>> lacking = fetch.missing();
  if (!lacking) {
    return lacking.error();
  }
  if (lacking->empty()) {
    return whole(fetch);
  }
  if (fetch.is_gguf()) {
    // Only who has read its header knows how long that is.
    const Result<void> came = fetch_all(fetch, *lacking, options.transfer);
    return came ? whole(fetch) : came.error();
  }
  Outline outline{.directory = outline_folder(options.places, model)};
  if (is_outline_of(outline.directory, fetch.wanted())) {
    return outline;
  }
  std::vector<Job> texts;
  std::ranges::copy_if(*lacking, std::back_inserter(texts), [](const Job& job) {
    return !has_weights(job.object.name);
  });
  if (const Result<void> came = fetch_all(fetch, texts, options.transfer); !came) {
    return came.error();
  }
  const fs::path fresh = outline.directory.string() + ".new";
  std::error_code ignored;
  fs::remove_all(fresh, ignored);
  if (const Result<void> drawn = draw(fetch, fresh, stop); !drawn) {
    fs::remove_all(fresh, ignored);
    return drawn.error();
  }
  const Result<void> noted = write_record(fresh, record_of(name->text, fetch.wanted()));
  if (const Result<void> placed = noted ? replace(fresh, outline.directory) : noted; !placed) {
    return placed.error();
  }
  outline.changed = true;
  return outline;
}

std::optional<fs::path> find_outline(const store::ModelPlaces& places, std::string_view model) {
  fs::path folder = outline_folder(places, model);
  return read_record(folder) ? std::optional(std::move(folder)) : std::nullopt;
}

bool is_outline_of(const fs::path& outline, const std::vector<Object>& files) {
  const std::optional<FolderRecord> record = read_record(outline);
  return record && record->files == record_of("", files).files;
}

}  // namespace heddle::fetch
