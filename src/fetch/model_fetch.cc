#include "fetch/model_fetch.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/units.h"
#include "fetch/disk.h"
#include "fetch/peer_source.h"
#include "fetch/url.h"

namespace heddle::fetch {
namespace {

/// How often a source is asked what there is, where peers may say it as well.
constexpr int kTriesBesidePeers = 2;

Result<void> check_disk(std::string_view model,
                        std::uint64_t needed,
                        const std::filesystem::path& cache) {
  const Result<std::uint64_t> free = free_bytes(cache);
  if (!free) {
    return free.error();
  }
  if (needed > *free) {
    return Error{
        Code::kResourceExhausted,
        fmt::format("{} needs {} more, and the disk of {} has {} free; make room there, or "
                    "have the cache elsewhere (HF_HOME, XDG_CACHE_HOME)",
                    shown(model),
                    format_bytes(needed),
                    cache.string(),
                    format_bytes(*free))};
  }
  return {};
}

}  // namespace

std::uint64_t needed_bytes(std::span<const Job> jobs) {
  std::uint64_t bytes = 0;
  for (const Job& job : jobs) {
    bytes += job.object.bytes - std::min(job.object.bytes, taken_bytes(job.partial));
  }
  return bytes;
}

Result<void> ModelFetch::open() {
  Result<std::unique_ptr<ModelPlace>> place =
      open_place(name_, options_.places, [this] { watch_.waits(); }, stop_);
  if (!place) {
    return place.error();
  }
  place_ = std::move(place).value();
  return list();
}

Result<void> ModelFetch::open_source() {
  SourceOptions how = options_.source;
  how.retry.on_wait = [this](const std::string& why, Duration wait) {
    const std::lock_guard lock(watch_mutex_);
    watch_.retries(why, wait);
  };
  Result<std::unique_ptr<Source>> origin = fetch::open_source(name_, options_.environment, how);
  if (!origin) {
    return origin.error();
  }
  if (options_.peers.empty()) {
    source_ = std::move(origin).value();
    return {};
  }
  how.retry.tries = std::min(how.retry.tries, kTriesBesidePeers);
  Result<std::unique_ptr<Source>> lister = fetch::open_source(name_, options_.environment, how);
  if (!lister) {
    return lister.error();
  }
  source_ =
      std::make_unique<PeerSource>(PeerSource::Setup{.model = name_.text,
                                                     .origin = std::move(origin).value(),
                                                     .lister = std::move(lister).value(),
                                                     .peers = options_.peers,
                                                     .now = steady_now,
                                                     .on_failure = [this](const std::string& why) {
                                                       const std::lock_guard lock(watch_mutex_);
                                                       watch_.peer_failed(why);
                                                     }});
  return {};
}

/// Asks the source what there is, and chooses.
Result<void> ModelFetch::list() {
  if (Result<void> opened = open_source(); !opened) {
    return opened;
  }
  Result<Listing> listing = source_->list(stop_);
  if (!listing) {
    return listing.error();
  }
  revision_ = listing->revision;
  Result<Choice> choice =
      name_.tag.empty() ? choose(std::move(listing->objects),
                                 shown(name_.text),
                                 [this](const Object& index) { return read_small(index); })
                        : choose_gguf(std::move(listing->objects), shown(name_.text), name_.tag);
  if (!choice) {
    return choice.error();
  }
  choice_ = std::move(choice).value();
  return {};
}

Result<std::string> ModelFetch::read_small(const Object& object) {
  if (object.bytes > kIndexBytesMax) {
    return Error{Code::kCorrupt,
                 fmt::format("{} has {}; want at most {}",
                             object.name,
                             format_bytes(object.bytes),
                             format_bytes(kIndexBytesMax))};
  }
  std::string text(object.bytes, '\0');
  const Result<void> read =
      fill(*source_, object, 0, std::as_writable_bytes(std::span(text)), stop_);
  return read ? Result<std::string>(std::move(text)) : read.error();
}

Result<std::vector<Job>> ModelFetch::missing() {
  return place_->missing(revision_, choice_.wanted);
}

Result<std::filesystem::path> ModelFetch::publish() {
  Result<std::filesystem::path> directory = place_->publish();
  return directory && is_gguf() ? *directory / choice_.wanted.front().name : directory;
}

Result<void> ModelFetch::make_place(std::uint64_t needed) {
  const bool of_hub = name_.kind == SourceKind::kHub;
  const std::filesystem::path& cache =
      of_hub ? options_.places.hub_cache : options_.places.url_cache;
  if (!of_hub && options_.budget > 0) {
    const Result<std::vector<std::string>> gone = make_room(
        options_.places, options_.budget, needed, store::url_folder(options_.places, name_.text));
    if (!gone) {
      return Error{gone.error().code,
                   fmt::format("{}: {}", shown(name_.text), gone.error().message)};
    }
    if (!gone->empty()) {
      const std::lock_guard lock(watch_mutex_);
      watch_.removed(*gone);
    }
  }
  return check_disk(name_.text, needed, cache);
}

Result<void> ModelFetch::fetch(std::span<const Job> jobs, const TransferOptions& transfer_options) {
  const TransferEvents events{.moved =
                                  [this](std::size_t file, std::uint64_t bytes) {
                                    const std::lock_guard lock(watch_mutex_);
                                    watch_.moved(file, bytes);
                                  },
                              .checking =
                                  [this](std::size_t file) {
                                    const std::lock_guard lock(watch_mutex_);
                                    watch_.checking(file);
                                  },
                              .done = [&, this](std::size_t file) -> Result<void> {
                                if (Result<void> at_place = place_->keep(jobs[file]); !at_place) {
                                  return at_place;
                                }
                                const std::lock_guard lock(watch_mutex_);
                                watch_.came(file);
                                return {};
                              }};
  return transfer(*source_, jobs, transfer_options, events, stop_);
}

}  // namespace heddle::fetch
