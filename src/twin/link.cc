#include "twin/link.h"

#include <algorithm>

namespace heddle::twin {

namespace {

/// The worker copies pieces of 5 ms, and of a page of memory at least; each part of an image, of so
/// many, that they have filled it tells of.
constexpr double kPieceSeconds = 5e-3;
constexpr std::uint64_t kPieceBytesMin = 4096;
constexpr std::uint64_t kParts = 32;

/// What is copied between two reports.
std::uint64_t report_bytes(double rate, std::uint64_t image) {
  const auto piece = std::max(kPieceBytesMin, static_cast<std::uint64_t>(rate * kPieceSeconds));
  return std::max<std::uint64_t>(1, (image / kParts + piece - 1) / piece) * piece;
}

}  // namespace

Link::Copy* Link::find(ModelId model) {
  const auto found = std::find_if(
      copies_.begin(), copies_.end(), [&](const Copy& copy) { return copy.model == model; });
  return found == copies_.end() ? nullptr : &*found;
}

Link::Copy* Link::next() {
  Copy* first = nullptr;
  for (Copy& copy : copies_) {
    if (copy.ready > copy.done && (first == nullptr || (copy.urgent && !first->urgent))) {
      first = &copy;
    }
  }
  return first;
}

void Link::begin(ModelId model, std::uint64_t bytes, std::uint64_t ready) {
  copies_.push_back({.model = model, .bytes = bytes, .ready = ready, .number = begun_++});
  go_on();
}

void Link::allow(ModelId model, std::uint64_t ready) {
  if (Copy* copy = find(model)) {
    copy->ready = std::max(copy->ready, std::min(ready, copy->bytes));
    go_on();
  }
}

void Link::prioritise(ModelId model) {
  if (Copy* copy = find(model)) {
    copy->urgent = true;
  }
}

void Link::stop(ModelId model) {
  std::erase_if(copies_, [&](const Copy& copy) { return copy.model == model; });
}

void Link::go_on() {
  const Copy* copy = busy_ ? nullptr : next();
  if (copy == nullptr) {
    return;
  }
  busy_ = true;
  const std::uint64_t piece = std::min(report_bytes(rate_, copy->bytes), copy->ready - copy->done);
  agenda_.after(
      from_seconds(static_cast<double>(piece) / rate_) + faults_.some(faults_.late().copy),
      [this, model = copy->model, number = copy->number, piece] {
        busy_ = false;
        if (Copy* here = find(model); here != nullptr && here->number == number) {
          here->done += piece;
          const std::uint64_t done = here->done;
          if (done == here->bytes) {
            stop(model);
          }
          on_copied_(model, done);
        }
        go_on();
      });
}

}  // namespace heddle::twin
