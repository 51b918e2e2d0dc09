#include "agent/image_reader.h"

#include <utility>

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
  const Result<OpenedImage> opened = open_image(job);
  if (!opened) {
    return opened.error();
  }
  return read_image(
      job,
      *opened,
      {.progress = [&](std::uint64_t bytes) { handlers_.on_progress(job.model, bytes); },
       .stop = std::move(stop)});
}

}  // namespace heddle::agent
