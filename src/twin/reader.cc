#include "twin/reader.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace heddle::twin {

void Reader::start(core::StartRead read, std::uint64_t image_bytes) {
  HEDDLE_CHECK(!reading_);
  reading_ = std::move(read);
  image_bytes_ = image_bytes;
  stops_ = false;
  read_on(0);
}

void Reader::cancel(ModelId model) {
  HEDDLE_CHECK(reading_ && reading_->model == model);
  stops_ = true;
}

void Reader::read_on(std::uint64_t done) {
  const std::uint64_t part = std::min(paths_.read_part, image_bytes_ - done);
  const Duration takes = from_seconds(static_cast<double>(part) / paths_.read);
  agenda_.after(takes + faults_.some(faults_.late().read), [=, this] {
    if (done > 0 && done == paths_.read_part && faults_.read_fails()) {
      end(Error{.code = Code::kUnavailable, .message = "the disk says no"});
    } else if (stops_) {
      end(Error{.code = Code::kCancelled, .message = "as asked"});
    } else {
      if (contents_ != nullptr) {
        contents_->read_image(reading_->model, reading_->pages, done, done + part);
      }
      if (done + part == image_bytes_) {
        end(std::nullopt);
        return;
      }
      on_event_(core::ReadProgress{.model = reading_->model, .bytes = done + part});
      read_on(done + part);
    }
  });
}

void Reader::end(std::optional<Error> error) {
  const ModelId model = reading_->model;
  reading_.reset();
  on_event_(core::ReadEnded{.model = model, .error = std::move(error)});
}

}  // namespace heddle::twin
