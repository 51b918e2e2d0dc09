#include "fetch/live_fetch.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "fetch/outline.h"
#include "fetch/partial_file.h"
#include "fetch/url.h"

namespace heddle::fetch {
namespace {

namespace fs = std::filesystem;

/// Of a request: short, so that what is wanted next is not long on its way.
constexpr std::uint64_t kRequestBytes = 4U << 20U;

}  // namespace

LiveFetch::LiveFetch(LiveFetchSetup setup,
                     SourceName name,
                     PullWatch& watch,
                     const std::stop_token& stop)
    : setup_(std::move(setup)),
      stopped_(stop, [this] { stop_source_.request_stop(); }),
      fetch_(std::move(name), setup_.options, watch, stop_),
      record_bytes_(std::min(setup_.options.transfer.record_bytes, kRequestBytes)) {}

Result<std::unique_ptr<LiveFetch>> LiveFetch::begin(LiveFetchSetup setup,
                                                    PullWatch& watch,
                                                    const std::stop_token& stop) {
  Result<SourceName> name = parse_source_name(setup.model);
  if (!name) {
    return name.error();
  }
  std::unique_ptr<LiveFetch> live(
      new LiveFetch(std::move(setup), std::move(name).value(), watch, stop));
  if (const Result<void> prepared = live->prepare(); !prepared) {
    return prepared.error();
  }
  Result<Thread> thread = Thread::start({.name = "fetch"}, [raw = live.get()] { raw->run(); });
  if (!thread) {
    return thread.error();
  }
  live->thread_ = std::move(thread).value();
  return live;
}

LiveFetch::~LiveFetch() {
  stop_source_.request_stop();
}

Result<void> LiveFetch::prepare() {
  if (Result<void> opened = fetch_.open(); !opened) {
    return opened;
  }
  if (!is_outline_of(setup_.outline, fetch_.wanted())) {
    return Error{Code::kFailedPrecondition,
                 fmt::format("{} {} since its configuration was read, which is read again",
                             shown(setup_.model),
                             kOutlineChanged)};
  }
  Result<std::vector<Job>> jobs = fetch_.missing();
  if (!jobs) {
    return jobs.error();
  }
  jobs_ = std::move(jobs).value();
  if (!jobs_.empty()) {
    if (Result<void> room = fetch_.make_place(jobs_); !room) {
      return room;
    }
  }
  fetch_.tell_begin(jobs_);
  return prepare_files();
}

/// Makes the files in which weights come, and opens those in which they are.
Result<void> LiveFetch::prepare_files() {
  for (const Object& object : fetch_.wanted()) {
    if (!has_weights(object.name)) {
      continue;
    }
    FileState& state = files_[object.name];
    // Equal files come once.
    const auto job = std::ranges::find_if(jobs_, [&](const Job& each) {
      return each.object.name == object.name ||
             (object.has_digest() && each.object.identity() == object.identity());
    });
    state.path = fetch_.place_of(object);
    if (job != jobs_.end()) {
      const Result<PartialFile> made = PartialFile::open(job->partial, job->object, record_bytes_);
      if (!made) {
        return made.error();
      }
      state.path = job->partial;
      state.there.assign((object.bytes + record_bytes_ - 1) / record_bytes_, 0);
      names_[static_cast<std::size_t>(job - jobs_.begin())].push_back(object.name);
    }
    Result<store::File> file = store::File::open(state.path);
    if (!file) {
      return file.error();
    }
    state.file = std::move(file).value();
  }
  return {};
}

TransferOptions LiveFetch::transfer_options() const {
  TransferOptions options = setup_.options.transfer;
  options.record_bytes = record_bytes_;
  options.piece_bytes = std::min(options.piece_bytes, kRequestBytes);
  options.digest_tries = 1;  // Who has read it cannot read it again.
  for (const FilePart& part : setup_.order) {
    for (const auto& [job, names] : names_) {
      if (std::ranges::find(names, part.file) != names.end()) {
        options.order.push_back({.job = job, .range = part.range});
      }
    }
  }
  return options;
}

void LiveFetch::run() {
  const Result<void> fetched = fetch_.fetch(
      jobs_,
      transfer_options(),
      [this](std::size_t job) { kept(job); },
      [this](std::size_t job, Range range) { came(job, range); });
  Result<fs::path> ended = fetched ? fetch_.publish() : fetched.error();
  const std::lock_guard lock(mutex_);
  ended_ = std::move(ended);
  changed_.notify_all();
}

void LiveFetch::came(std::size_t job, Range range) {
  const auto names = names_.find(job);
  if (names == names_.end()) {
    return;
  }
  const std::lock_guard lock(mutex_);
  for (const std::string& name : names->second) {
    FileState& state = files_.at(name);
    const std::uint64_t last = (range.end + record_bytes_ - 1) / record_bytes_;
    for (std::uint64_t at = range.begin / record_bytes_; at < last; ++at) {
      state.there[at] = 1;
    }
  }
  changed_.notify_all();
}

/// The file counts as written when the outline was: it is the same model.
void LiveFetch::kept(std::size_t job) const {
  const Object& object = jobs_[job].object;
  std::error_code ignored;
  const auto when = fs::last_write_time(setup_.outline / object.name, ignored);
  if (!ignored) {
    fs::last_write_time(fetch_.place_of(object), when, ignored);
  }
}

bool LiveFetch::has(const FileState& state, Range range) const {
  if (state.there.empty()) {
    return true;
  }
  const std::uint64_t last = (range.end + record_bytes_ - 1) / record_bytes_;
  for (std::uint64_t at = range.begin / record_bytes_; at < last; ++at) {
    if (state.there[at] == 0) {
      return false;
    }
  }
  return true;
}

Result<store::File> LiveFetch::open(const std::string& file) const {
  const auto found = files_.find(file);
  if (found == files_.end()) {
    return Error{Code::kNotFound, shown(setup_.model) + " has no file " + file};
  }
  return found->second.file->again();
}

Result<void> LiveFetch::await(const std::string& file, Range range) {
  const FileState& state = files_.at(file);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, stop_, [&] { return ended_ || has(state, range); });
  if (has(state, range)) {
    return {};
  }
  if (ended_ && !*ended_) {
    return ended_->error();
  }
  return ended_ ? Result<void>() : Result<void>(Error{Code::kCancelled, "stopped"});
}

Result<fs::path> LiveFetch::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return ended_.has_value(); });
  return *ended_;
}

}  // namespace heddle::fetch
