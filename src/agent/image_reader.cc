#include "agent/image_reader.h"

#include <string>
#include <utility>

#include "spec/pipe_stage.h"
#include "spec/shard.h"
#include "store/checkpoint.h"
#include "store/image_layout.h"
#include "store/image_loader.h"

#include <pthread.h>

namespace heddle::agent {

ImageReader::ImageReader(Handlers handlers)
    : handlers_(std::move(handlers)), thread_([this] { run(); }) {}

ImageReader::~ImageReader() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    stop_.request_stop();
  }
  woken_.notify_one();
  thread_.join();
}

void ImageReader::start(Job job) {
  {
    const std::lock_guard lock(mutex_);
    HEDDLE_CHECK(!current_.has_value());
    current_ = job.model;
    next_ = std::move(job);
    stop_ = std::stop_source();
  }
  woken_.notify_one();
}

void ImageReader::cancel(ModelId model) {
  const std::lock_guard lock(mutex_);
  if (current_ == model) {
    stop_.request_stop();
  }
}

void ImageReader::run() {
  (void)::pthread_setname_np(::pthread_self(), "image reader");
  for (;;) {
    std::optional<Job> job;
    std::stop_token stop;
    {
      std::unique_lock lock(mutex_);
      woken_.wait(lock, [this] { return stopping_ || next_.has_value(); });
      if (stopping_) {
        return;
      }
      job = std::exchange(next_, std::nullopt);
      stop = stop_.get_token();
    }
    const Result<void> ended = read(*job, stop);
    {
      const std::lock_guard lock(mutex_);
      current_.reset();
    }
    handlers_.on_ended(job->model, ended);
  }
}

Result<void> ImageReader::read(const Job& job, std::stop_token stop) const {
  const Result<store::Checkpoint> checkpoint = store::Checkpoint::open(job.directory);
  if (!checkpoint) {
    return checkpoint.error();
  }
  const spec::ModelSpec& whole = checkpoint->config.model;
  if (const Result<void> possible = spec::divides(whole, job.shard.ranks); !possible) {
    return possible.error();  // It has changed; and the next check is for what can be laid out.
  }
  const spec::ModelSpec shard = spec::shard_of(whole, job.shard);
  const spec::PipeStage stage =
      spec::is_stage(job.stage, whole.layers) ? job.stage : spec::PipeStage{};
  const store::ImageLayout layout = store::plan_image(spec::stage_of(shard, stage), job.dtype);
  if (layout.bytes != job.image_bytes || stage != job.stage) {
    return Error{Code::kFailedPrecondition,
                 "read " + job.directory.string() +
                     ": it has changed since the configuration was "
                     "read (an image of " +
                     std::to_string(layout.bytes) + " bytes, not " +
                     std::to_string(job.image_bytes) + "); reload the configuration"};
  }
  return store::load_image(
      checkpoint->tensors,
      layout,
      {.pages = job.pages, .page_bytes = job.page_bytes},
      {.progress = [&](std::uint64_t bytes) { handlers_.on_progress(job.model, bytes); },
       .stop = std::move(stop)});
}

}  // namespace heddle::agent
