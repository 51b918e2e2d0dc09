#include "sim/links.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace heddle::sim {
namespace {

/// What rounding may leave of a transfer that is done [bytes].
constexpr double kCrumb = 1.0;

}  // namespace

LinkId HostLinks::add_link(double bytes_per_second) {
  const LinkId id(links_.size());
  links_.push_back({.id = id, .bytes_per_second = bytes_per_second});
  return id;
}

void HostLinks::advance(Instant now) {
  HEDDLE_CHECK(now >= advanced_);
  const double elapsed = to_seconds(now - advanced_);
  advanced_ = now;
  for (std::size_t i = 0; i < transfers_.size(); ++i) {
    left_[i] = std::max(0.0, left_[i] - rates_[i] * elapsed);
  }
}

/// Its index; the number of transfers when there is no such.
std::size_t HostLinks::find(TransferId id) const {
  const auto found = std::lower_bound(
      transfers_.begin(), transfers_.end(), id, [](const policy::Transfer& each, TransferId want) {
        return each.id < want;
      });
  const bool there = found != transfers_.end() && found->id == id;
  return there ? static_cast<std::size_t>(found - transfers_.begin()) : transfers_.size();
}

void HostLinks::erase(std::size_t index) {
  const auto at = static_cast<std::ptrdiff_t>(index);
  transfers_.erase(transfers_.begin() + at);
  left_.erase(left_.begin() + at);
}

void HostLinks::start(Instant now, double bytes, policy::Transfer transfer) {
  HEDDLE_CHECK(bytes > 0 && (transfers_.empty() || transfers_.back().id < transfer.id));
  advance(now);
  transfers_.push_back(std::move(transfer));
  left_.push_back(bytes);
  share();
}

double HostLinks::cancel(Instant now, TransferId id) {
  const std::size_t index = find(id);
  if (index == transfers_.size()) {
    return 0;
  }
  advance(now);
  const double bytes = left_[index];
  erase(index);
  share();
  return bytes;
}

void HostLinks::reclassify(Instant now, TransferId id, LinkClass link_class) {
  const std::size_t index = find(id);
  if (index < transfers_.size()) {
    advance(now);
    transfers_[index].link_class = link_class;
    share();
  }
}

void HostLinks::set_rate(Instant now, LinkId link, double bytes_per_second) {
  HEDDLE_CHECK(bytes_per_second >= 0);
  advance(now);
  links_[link.value()].bytes_per_second = bytes_per_second;
  share();
}

std::optional<Instant> HostLinks::next_done() const {
  std::optional<double> soonest;
  for (std::size_t i = 0; i < transfers_.size(); ++i) {
    if (left_[i] <= kCrumb) {
      soonest = 0.0;
    } else if (rates_[i] > 0) {
      const double wait = std::max(1.0, std::ceil(left_[i] / rates_[i] * 1e9));
      soonest = std::min(soonest.value_or(wait), wait);
    }
  }
  constexpr double kNever = 9e18;  // Beyond what a Duration can hold.
  if (!soonest || *soonest >= kNever) {
    return std::nullopt;
  }
  return advanced_ + Duration(static_cast<std::int64_t>(*soonest));
}

std::vector<TransferId> HostLinks::take_done(Instant now) {
  advance(now);
  std::vector<TransferId> done;
  for (std::size_t i = 0; i < transfers_.size();) {
    if (left_[i] <= kCrumb) {
      done.push_back(transfers_[i].id);
      erase(i);
    } else {
      ++i;
    }
  }
  if (!done.empty()) {
    share();
  }
  return done;
}

std::size_t HostLinks::users(LinkId link) const {
  return static_cast<std::size_t>(
      std::count_if(transfers_.begin(), transfers_.end(), [link](const policy::Transfer& each) {
        return std::find(each.path.begin(), each.path.end(), link) != each.path.end();
      }));
}

}  // namespace heddle::sim
