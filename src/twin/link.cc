#include "twin/link.h"

#include <algorithm>

namespace heddle::twin {

namespace {

/// Pieces of an image, after each of which the worker tells how far it is.
constexpr std::uint64_t kPieces = 32;

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

void Link::hasten(ModelId model) {
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
  const std::uint64_t piece =
      std::min(std::max<std::uint64_t>(copy->bytes / kPieces, 1), copy->ready - copy->done);
  agenda_.after(from_seconds(static_cast<double>(piece) / rate_),
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
