#include "agent/image_fetcher.h"

#include <filesystem>
#include <utility>

#include "agent/counted_peer.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "fetch/live_fetch.h"
#include "fetch/source_name.h"
#include "fetch/url.h"
#include "store/model_source.h"
#include "store/read_order.h"

namespace heddle::agent {
namespace {

std::string kind_of(const std::string& source) {
  const Result<fetch::SourceName> name = fetch::parse_source_name(source);
  return name ? std::string(fetch::name(name->kind)) : std::string();
}

/// What load_image() reads, in the names of files.
std::vector<fetch::FilePart> parts_of(const OpenedImage& opened) {
  std::vector<fetch::FilePart> parts;
  const store::TensorSet& tensors = opened.checkpoint.tensors;
  for (const store::FileBytes& bytes : store::read_order(tensors, opened.layout)) {
    parts.push_back({.file = tensors.files()[bytes.file].path().filename().string(),
                     .range = {bytes.begin, bytes.end}});
  }
  return parts;
}

/// Whether others read other parts of the same model.
bool is_part(const ImageJob& image) {
  return image.shard.ranks > 1 || image.stage != spec::PipeStage{};
}

/// The model that a job is for, or for a part of ("big[1]"), as people call it.
std::string whole_name(const ImageFetcher::Job& job) {
  const bool further = job.image.shard.rank > 0 || job.image.stage.index > 0;
  return job.name.substr(0, further ? job.name.rfind('[') : std::string::npos);
}

/// Of two fetches of one model: what is shown of both.
core::FetchStatus sum(core::FetchStatus status, const core::FetchStatus& other) {
  status.fetched_bytes += other.fetched_bytes;
  status.peer_bytes += other.peer_bytes;
  if (other.active) {
    status.bytes += other.bytes;
    status.total_bytes += other.total_bytes;
    status.bytes_per_second += other.bytes_per_second;
  }
  return status;
}

}  // namespace

ImageFetcher::ImageFetcher(FetchSetup setup, Handlers handlers)
    : setup_(std::move(setup)),
      handlers_(std::move(handlers)),
      link_(setup_.link ? setup_.link : std::make_shared<FetchLink>(setup_.bytes_per_second)) {}

ImageFetcher::~ImageFetcher() {
  for (const auto& [model, running] : running_) {
    running->stop.request_stop();
  }
}

void ImageFetcher::start(Job job) {
  HEDDLE_CHECK(!running_.contains(job.image.model));
  const ModelId model = job.image.model;
  auto running = std::make_unique<Running>();
  running->progress =
      std::make_shared<FetchProgress>(job.name, fetch::shown(job.source), kind_of(job.source));
  running->member = link_->join(
      {.early = job.early,
       .due = job.due_in > Duration{} ? std::optional(steady_now() + job.due_in) : std::nullopt});
  running->job = std::move(job);
  Running& at = *running;
  running_[model] = std::move(running);
  Result<Thread> thread = Thread::start({.name = "image fetcher"}, [this, &at] {
    const Result<void> ended = run(at);
    link_->leave(at.member);
    handlers_.on_ended(at.job.image.model, ended);
  });
  if (!thread) {
    link_->leave(at.member);
    handlers_.on_ended(model, thread.error());
    return;
  }
  at.thread = std::move(thread).value();
}

void ImageFetcher::cancel(ModelId model) {
  const auto found = running_.find(model);
  if (found != running_.end()) {
    found->second->stop.request_stop();
  }
}

void ImageFetcher::prioritise(ModelId model, const std::string& source) {
  for (const auto& [id, running] : running_) {
    if (id == model || (running->job.source == source && is_part(running->job.image))) {
      link_->prioritise(running->member);
    }
  }
}

std::vector<ModelId> ImageFetcher::forget(ModelId model) {
  const auto found = running_.find(model);
  if (found == running_.end()) {
    return {};
  }
  found->second->thread.join();
  const Running& ended = *found->second;
  std::set<ModelId>& unproven = unproven_[ended.job.source];
  std::vector<ModelId> wrong;
  unproven.erase(model);
  if (ended.proof == Proof::kPart) {
    unproven.insert(model);
  } else if (ended.proof == Proof::kWrong) {
    wrong.assign(unproven.begin(), unproven.end());
  }
  if (ended.proof == Proof::kWrong || ended.proof == Proof::kWhole) {
    unproven.clear();
  }
  core::FetchStatus last = found->second->progress->status(steady_now());
  last.model = whole_name(ended.job);
  core::FetchStatus& past = past_[last.model];
  last.active = false;
  last.bytes_per_second = 0;
  last.fetched_bytes += past.fetched_bytes;
  last.peer_bytes += past.peer_bytes;
  past = std::move(last);
  running_.erase(found);
  return wrong;
}

std::vector<core::FetchStatus> ImageFetcher::statuses() const {
  std::map<std::string, core::FetchStatus> all = past_;
  const Instant now = steady_now();
  for (const auto& [model, running] : running_) {
    core::FetchStatus status = running->progress->status(now);
    status.model = whole_name(running->job);
    core::FetchStatus& one = all[status.model];
    one = sum(std::move(status), one);
  }
  std::vector<core::FetchStatus> statuses;
  for (auto& [name, status] : all) {
    statuses.push_back(std::move(status));
  }
  return statuses;
}

/// What somebody has fetched meanwhile is read where it is.
Result<void> ImageFetcher::run(Running& running) const {
  const Result<std::filesystem::path> there =
      store::find_model(running.job.source, setup_.pull.places);
  const Instant began = steady_now();
  const auto tell = [&](std::string_view what) {
    const Duration took = steady_now() - began;
    log::info(std::string(what),
              {{"model", running.job.name},
               {"bytes", running.progress->status(steady_now()).fetched_bytes},
               {"from", running.progress->status(steady_now()).from},
               {"ms", std::chrono::duration_cast<std::chrono::milliseconds>(took).count()}});
  };
  if (there) {
    ImageJob image = running.job.image;
    image.directory = *there;
    if (const Result<OpenedImage> opened = open_image(image)) {
      return read_image(
          image,
          *opened,
          {.progress = [&](std::uint64_t bytes) { handlers_.on_progress(image.model, bytes); },
           .stop = running.stop.get_token()});
    }
  }
  Result<void> fetched = fetch(running);
  if (fetched || fetched.error().code == Code::kCancelled) {
    tell(fetched ? "fetched" : "the fetch was stopped; what has come is kept");
    return fetched;
  }
  const bool wrong = fetched.error().code == Code::kCorrupt;
  running.proof = wrong ? Proof::kWrong : Proof::kNone;
  if (fetched.error().message.find(fetch::kOutlineChanged) != std::string::npos || wrong) {
    handlers_.on_changed(running.job.source);
  }
  tell("the fetch has failed");
  Error error{fetched.error().code,
              "fetch model " + running.job.name + " from " + fetch::shown(running.job.source) +
                  ": " + fetched.error().message};
  log::warning("weights not fetched", {{"model", running.job.name}, {"error", error.message}});
  return error;
}

fetch::PullOptions ImageFetcher::options_of(const Running& running) const {
  fetch::PullOptions options = setup_.pull;
  options.transfer.turn = [this, member = running.member](const std::stop_token& stop) {
    link_->turn(member, stop);
  };
  options.transfer.took = [this, member = running.member, progress = running.progress](
                              std::uint64_t bytes, const std::stop_token& stop) {
    progress->took(bytes, steady_now());
    link_->took(member, bytes, stop);
  };
  for (const core::GroupHost& host : running.job.peers) {
    if (setup_.find_peer) {
      options.peers.push_back(
          std::make_shared<CountedPeer>(setup_.find_peer(host), running.progress));
    }
  }
  if (setup_.bytes_per_second > 0) {
    options.source.http.stall_bytes = 1;  // Slowness is wanted.
    options.source.http.reading_rate = setup_.bytes_per_second / options.transfer.connections;
  }
  return options;
}

Result<void> ImageFetcher::fetch(Running& running) const {
  const ImageJob& image = running.job.image;
  Result<OpenedImage> opened = open_image(image);
  if (!opened) {
    return opened.error();
  }
  const std::stop_token stop = running.stop.get_token();
  auto live = fetch::LiveFetch::begin({.model = running.job.source,
                                       .outline = image.directory,
                                       .order = parts_of(*opened),
                                       .part = is_part(image),
                                       .options = options_of(running)},
                                      models_,
                                      *running.progress,
                                      stop);
  if (!live) {
    return live.error();
  }
  store::TensorSet& tensors = opened->checkpoint.tensors;
  std::vector<std::string> names;
  for (std::size_t file = 0; file < tensors.files().size(); ++file) {
    names.push_back(tensors.files()[file].path().filename().string());
    Result<File> data = (*live)->open(names.back());
    if (!data) {
      return data.error();
    }
    tensors.read_from(file, std::move(data).value());
  }
  const Result<void> read = read_image(
      image,
      *opened,
      {.progress = [&](std::uint64_t bytes) { handlers_.on_progress(image.model, bytes); },
       .stop = stop,
       .await =
           [&](std::size_t file, std::uint64_t offset, std::uint64_t bytes) {
             return (*live)->await(names[file], {offset, offset + bytes});
           }});
  if (!read) {
    return read;
  }
  const auto there = (*live)->finish();
  if (!there) {
    return there.error();
  }
  running.proof = *there ? Proof::kWhole : Proof::kPart;
  return {};
}

}  // namespace heddle::agent
