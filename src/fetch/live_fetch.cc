#include "fetch/live_fetch.h"

#include <utility>

#include "fetch/transfer.h"

namespace heddle::fetch {
namespace {

namespace fs = std::filesystem;

/// Of a model's weights at most one of so many is fetched though nobody reads it, to have all.
constexpr std::uint64_t kRestPart = 50;

}  // namespace

LiveFetch::LiveFetch(LiveFetchSetup setup, PullWatch& watch, const std::stop_token& stop)
    : setup_(std::move(setup)),
      watch_(watch),
      stopped_(stop, [this] { stop_source_.request_stop(); }) {}

Result<std::unique_ptr<LiveFetch>> LiveFetch::begin(LiveFetchSetup setup,
                                                    LiveModels& models,
                                                    PullWatch& watch,
                                                    const std::stop_token& stop) {
  std::unique_ptr<LiveFetch> live(new LiveFetch(std::move(setup), watch, stop));
  if (const Result<void> prepared = live->prepare(models); !prepared) {
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
  thread_.join();
  if (order_) {
    model_->incoming().end(*order_);
  }
  if (model_) {
    model_->watchers().remove(watch_);
  }
}

Result<void> LiveFetch::prepare(LiveModels& models) {
  Result<std::shared_ptr<LiveModel>> model = models.join(setup_, watch_, stop_);
  if (!model) {
    return model.error();
  }
  model_ = std::move(model).value();
  const std::vector<Part> parts = model_->parts_of(setup_);
  if (Result<void> room = model_->make_place(parts); !room) {
    return room;
  }
  order_ = model_->incoming().begin(parts, tell_begin(parts));
  return {};
}

/// Tells which files come, and how much of each.
OrderEvents LiveFetch::tell_begin(const std::vector<Part>& parts) {
  std::map<std::size_t, std::size_t> places;
  std::vector<Job> files;
  for (const auto& [job, bytes] : model_->incoming().bytes_of(parts)) {
    places[job] = files.size();
    files.push_back(model_->incoming().jobs()[job]);
    files.back().object.bytes = bytes;
  }
  watch_.begins(files, {});
  return {.moved = [this, places](std::size_t job,
                                  std::uint64_t bytes) { watch_.moved(places.at(job), bytes); },
          .checking = [this, places](std::size_t job) { watch_.checking(places.at(job)); },
          .came = [this, places](std::size_t job) { watch_.came(places.at(job)); }};
}

void LiveFetch::run() {
  Result<void> fetched =
      transfer(model_->source(), model_->incoming(), *order_, setup_.options.transfer, stop_);
  if (fetched) {
    fetched = fetch_rest();
  }
  Result<std::optional<fs::path>> ended =
      fetched ? model_->publish() : Result<std::optional<fs::path>>(fetched.error());
  const std::lock_guard lock(mutex_);
  ended_ = std::move(ended);
  changed_.notify_all();
}

/// What is left where all parts of a model have come: what nothing reads. Without it the model
/// would never be whole; where it cannot be had now, that is no matter.
Result<void> LiveFetch::fetch_rest() {
  Incoming& incoming = model_->incoming();
  if (incoming.whole() || incoming.missing_bytes() > model_->weight_bytes() / kRestPart ||
      incoming.others_wait(*order_)) {
    return {};
  }
  const std::vector<Part> rest = incoming.missing();
  if (const Result<void> room = model_->make_place(rest); !room) {
    return {};
  }
  const OrderId order = incoming.begin(rest, {});
  Result<void> fetched =
      transfer(model_->source(), incoming, order, setup_.options.transfer, stop_);
  incoming.end(order);
  return !fetched && fetched.error().code == Code::kCorrupt ? fetched : Result<void>();
}

Result<File> LiveFetch::open(const std::string& file) const {
  return model_->open(file);
}

Result<void> LiveFetch::await(const std::string& file, Range range) {
  const std::optional<std::size_t> job = model_->job_of(file);
  return job ? model_->incoming().await(*order_, {.job = *job, .range = range}, stop_)
             : Result<void>();
}

Result<std::optional<fs::path>> LiveFetch::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return ended_.has_value(); });
  return *ended_;
}

}  // namespace heddle::fetch
