#include "sim/quantiles.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"

namespace heddle::sim {
namespace {

/// Bits of a double that are left out of a bucket's number: all but sign, exponent and seven of the
/// mantissa. As numbers grow, so do their bits.
constexpr std::uint32_t kDropped = 45;

std::uint32_t bucket_of(double value) {
  return static_cast<std::uint32_t>(std::bit_cast<std::uint64_t>(value) >> kDropped);
}

double middle_of(std::uint32_t bucket) {
  if (bucket == 0) {
    return 0;
  }
  const std::uint64_t bits = static_cast<std::uint64_t>(bucket) << kDropped;
  return std::bit_cast<double>(bits | (std::uint64_t{1} << (kDropped - 1)));
}

}  // namespace

void Quantiles::add(double value) {
  HEDDLE_CHECK(value >= 0);
  value += 0.0;  // A negative zero has the bits of a large number.
  ++count_;
  sum_ += value;
  most_ = std::max(most_, value);
  if (count_ <= kExact) {
    exact_.push_back(static_cast<float>(value));
    sorted_ = false;
    return;
  }
  for (const float kept : exact_) {
    count_in_bucket(static_cast<double>(kept));
  }
  exact_ = {};
  count_in_bucket(value);
}

void Quantiles::add(const Quantiles& other) {
  const double sum = sum_ + other.sum_;
  const double most = std::max(most_, other.most_);
  if (other.buckets_.empty()) {
    for (const float value : other.exact_) {
      add(static_cast<double>(value));
    }
  } else {
    for (const float kept : exact_) {
      count_in_bucket(static_cast<double>(kept));
    }
    exact_ = {};
    for (const auto& [bucket, times] : other.buckets_) {
      buckets_[bucket] += times;
    }
    count_ += other.count_;
  }
  sum_ = sum;
  most_ = most;
}

void Quantiles::count_in_bucket(double value) {
  ++buckets_[bucket_of(value)];
}

double Quantiles::at(double part) const {
  if (count_ == 0) {
    return 0;
  }
  const double wanted = std::ceil(part * static_cast<double>(count_));
  const std::size_t rank = std::clamp<std::size_t>(static_cast<std::size_t>(wanted), 1, count_);
  if (!exact_.empty()) {
    if (!sorted_) {
      std::sort(exact_.begin(), exact_.end());
      sorted_ = true;
    }
    return std::min(static_cast<double>(exact_[rank - 1]), most_);  // A float may round up.
  }
  if (rank == count_) {
    return most_;
  }
  std::size_t below = 0;
  for (const auto& [bucket, times] : buckets_) {
    below += times;
    if (below >= rank) {
      return std::min(middle_of(bucket), most_);
    }
  }
  return most_;
}

Distribution Quantiles::distribution() const {
  if (count_ == 0) {
    return {};
  }
  return {.count = count_,
          .mean = sum_ / static_cast<double>(count_),
          .p50 = at(0.50),
          .p95 = at(0.95),
          .p99 = at(0.99),
          .most = most_};
}

std::vector<float> Quantiles::curve(std::size_t points) const {
  std::vector<float> made;
  for (std::size_t i = 0; i < points && count_ > 0; ++i) {
    made.push_back(
        static_cast<float>(at(static_cast<double>(i) / static_cast<double>(points - 1))));
  }
  return made;
}

}  // namespace heddle::sim
