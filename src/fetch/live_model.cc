#include "fetch/live_model.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "fetch/outline.h"
#include "fetch/url.h"

namespace heddle::fetch {
namespace {

namespace fs = std::filesystem;

/// Of a request: short, so that what is wanted next is not long on its way.
constexpr std::uint64_t kRequestBytes = 4U << 20U;

}  // namespace

// ---- Watchers ----

void Watchers::add(PullWatch& watch) {
  const std::lock_guard lock(mutex_);
  watches_.insert(&watch);
}

void Watchers::remove(PullWatch& watch) {
  const std::lock_guard lock(mutex_);
  watches_.erase(&watch);
}

void Watchers::waits() {
  const std::lock_guard lock(mutex_);
  for (PullWatch* watch : watches_) {
    watch->waits();
  }
}

void Watchers::removed(const std::vector<std::string>& models) {
  const std::lock_guard lock(mutex_);
  for (PullWatch* watch : watches_) {
    watch->removed(models);
  }
}

void Watchers::begins(std::span<const Job> files, std::span<const Object> left_out) {
  const std::lock_guard lock(mutex_);
  for (PullWatch* watch : watches_) {
    watch->begins(files, left_out);
  }
}

void Watchers::moved(std::size_t file, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  for (PullWatch* watch : watches_) {
    watch->moved(file, bytes);
  }
}

void Watchers::checking(std::size_t file) {
  const std::lock_guard lock(mutex_);
  for (PullWatch* watch : watches_) {
    watch->checking(file);
  }
}

void Watchers::came(std::size_t file) {
  const std::lock_guard lock(mutex_);
  for (PullWatch* watch : watches_) {
    watch->came(file);
  }
}

void Watchers::retries(const std::string& why, Duration wait) {
  const std::lock_guard lock(mutex_);
  for (PullWatch* watch : watches_) {
    watch->retries(why, wait);
  }
}

void Watchers::streams() {
  const std::lock_guard lock(mutex_);
  for (PullWatch* watch : watches_) {
    watch->streams();
  }
}

void Watchers::peer_failed(const std::string& why) {
  const std::lock_guard lock(mutex_);
  for (PullWatch* watch : watches_) {
    watch->peer_failed(why);
  }
}

// ---- LiveModel ----

LiveModel::LiveModel(const LiveFetchSetup& setup, SourceName name, const std::stop_token& stop)
    : model_(setup.model),
      outline_(setup.outline),
      options_(setup.options),
      fetch_(std::move(name), options_, watchers_, stop) {}

Result<std::shared_ptr<LiveModel>> LiveModel::open(const LiveFetchSetup& setup,
                                                   PullWatch& watch,
                                                   const std::stop_token& stop) {
  Result<SourceName> name = parse_source_name(setup.model);
  if (!name) {
    return name.error();
  }
  std::shared_ptr<LiveModel> model(new LiveModel(setup, std::move(name).value(), stop));
  model->watchers_.add(watch);
  if (const Result<void> prepared = model->prepare(); !prepared) {
    return prepared.error();
  }
  return model;
}

Result<void> LiveModel::prepare() {
  if (Result<void> opened = fetch_.open(); !opened) {
    return opened;
  }
  if (Result<void> same = check(outline_); !same) {
    return same;
  }
  Result<std::vector<Job>> jobs = fetch_.missing();
  if (!jobs) {
    return jobs.error();
  }
  incoming_.emplace(
      std::move(jobs).value(),
      IncomingOptions{.piece_bytes = std::min(options_.transfer.piece_bytes, kRequestBytes),
                      .record_bytes = options_.transfer.record_bytes,
                      .digest_tries = 1,  // Who has read it cannot read it again.
                      .keep =
                          [this](std::size_t job) {
                            Result<void> kept = fetch_.keep(incoming_->jobs()[job]);
                            if (kept) {
                              keep_time(job);
                            }
                            return kept;
                          },
                      .on_stream = [this](std::size_t /*job*/) { watchers_.streams(); }});
  if (Result<void> opened = incoming_->open(); !opened) {
    return opened;
  }
  return open_files();
}

Result<void> LiveModel::check(const fs::path& outline) const {
  return is_outline_of(outline, fetch_.wanted())
             ? Result<void>()
             : Error{Code::kFailedPrecondition,
                     fmt::format("{} {} since its configuration was read, which is read again",
                                 shown(model_),
                                 kOutlineChanged)};
}

/// Opens the files in which weights come, and those in which they are.
Result<void> LiveModel::open_files() {
  const std::vector<Job>& jobs = incoming_->jobs();
  for (const Object& object : fetch_.wanted()) {
    if (!has_weights(object.name)) {
      continue;
    }
    // Equal files come once.
    const auto job = std::ranges::find_if(jobs, [&](const Job& each) {
      return each.object.name == object.name ||
             (object.has_digest() && each.object.identity() == object.identity());
    });
    Weights& weights = weights_[object.name];
    if (job != jobs.end()) {
      weights.job = static_cast<std::size_t>(job - jobs.begin());
      if (Result<void> seeded = seed(*weights.job); !seeded) {
        return seeded;
      }
    }
    Result<File> file = File::open(weights.job ? job->partial : fetch_.place_of(object));
    if (!file) {
      return file.error();
    }
    weights.file = std::move(file).value();
  }
  return {};
}

/// The outline has a file's header already.
Result<void> LiveModel::seed(std::size_t job) {
  const Object& object = incoming_->jobs()[job].object;
  const Result<std::string> front = read_front_of(outline_ / object.name);
  return front ? incoming_->seed(job, std::as_bytes(std::span(*front))) : front.error();
}

std::vector<Part> LiveModel::parts_of(const LiveFetchSetup& setup) const {
  std::vector<Part> parts;
  for (const FilePart& part : setup.order) {
    if (const std::optional<std::size_t> job = job_of(part.file)) {
      parts.push_back({.job = *job, .range = part.range});
    }
  }
  const std::vector<Job>& jobs = incoming_->jobs();
  for (std::size_t job = 0; job < jobs.size(); ++job) {
    if (!setup.part || !has_weights(jobs[job].object.name)) {
      parts.push_back({.job = job, .range = {0, jobs[job].object.bytes}});
    }
  }
  return parts;
}

Result<void> LiveModel::make_place(const std::vector<Part>& parts) {
  const std::uint64_t needed = incoming_->needed_bytes(parts);
  return needed > 0 ? fetch_.make_place(needed) : Result<void>();
}

std::optional<std::size_t> LiveModel::job_of(const std::string& file) const {
  const auto found = weights_.find(file);
  return found == weights_.end() ? std::nullopt : found->second.job;
}

Result<File> LiveModel::open(const std::string& file) const {
  const auto found = weights_.find(file);
  return found == weights_.end() ? Error{Code::kNotFound, shown(model_) + " has no file " + file}
                                 : found->second.file->again();
}

std::uint64_t LiveModel::weight_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [name, weights] : weights_) {
    bytes += weights.file->bytes();
  }
  return bytes;
}

/// The file counts as written when the outline was: it is the same model.
void LiveModel::keep_time(std::size_t job) const {
  const Object& object = incoming_->jobs()[job].object;
  std::error_code ignored;
  const auto when = fs::last_write_time(outline_ / object.name, ignored);
  if (!ignored) {
    fs::last_write_time(fetch_.place_of(object), when, ignored);
  }
}

Result<std::optional<fs::path>> LiveModel::publish() {
  if (!incoming_->whole()) {
    return std::optional<fs::path>();
  }
  const std::lock_guard lock(mutex_);
  if (!published_) {
    published_ = fetch_.publish();
  }
  return *published_ ? Result<std::optional<fs::path>>(published_->value()) : published_->error();
}

// ---- LiveModels ----

Result<std::shared_ptr<LiveModel>> LiveModels::join(const LiveFetchSetup& setup,
                                                    PullWatch& watch,
                                                    const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  Entry& entry = entries_[setup.model];  // Entries stay.
  if (!changed_.wait(lock, stop, [&] { return !entry.opening; })) {
    return Error{Code::kCancelled, "stopped"};
  }
  if (std::shared_ptr<LiveModel> there = entry.model.lock(); there && !there->incoming().spoilt()) {
    if (const Result<void> same = there->check(setup.outline); !same) {
      return same.error();
    }
    there->watchers().add(watch);
    return there;
  }
  entry.opening = true;
  lock.unlock();
  Result<std::shared_ptr<LiveModel>> opened = LiveModel::open(setup, watch, stop);
  lock.lock();
  entry.opening = false;
  entry.model = opened ? *opened : nullptr;
  changed_.notify_all();
  return opened;
}

}  // namespace heddle::fetch
