#include "collective/shared_collective.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/check.h"

#include <unistd.h>

namespace heddle::collective {
namespace {

enum Operation : std::uint32_t { kReduce = 1, kGather, kAgree, kLeast };

/// Some microseconds: what ranks that run alike are apart.
constexpr int kSpins = 2000;

/// Looking on is of use only where everybody else can run meanwhile.
int spins_for(std::int64_t ranks) {
  return ranks <= ::sysconf(_SC_NPROCESSORS_ONLN) ? kSpins : 0;
}

std::string describe(const Announcement& said) {
  switch (said.operation) {
    case kReduce:
      return "sums " + std::to_string(said.count) + " floats";
    case kGather:
      return "gathers " + std::to_string(said.count) + " floats, cut as " +
             std::to_string(said.check);
    case kAgree:
      return "gives " + std::to_string(said.value);
    case kLeast:
      return "asks for the least of what all have";
    default:
      return "does nothing known";
  }
}

/// The columns [begin, end) of a matrix that one rank fills in, as a sequence of floats.
struct Part {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t width = 0;  ///< Of the matrix.

  /// Calls copy(first, place, n) for each run of adjacent ones of its floats [from, to): its n
  /// floats from `first` on are those of the matrix from `place` on.
  template <class Copy>
  void for_runs(std::int64_t from, std::int64_t to, Copy&& copy) const {
    const std::int64_t own = end - begin;
    while (from < to) {
      const std::int64_t column = from % own;
      const std::int64_t n = std::min(own - column, to - from);
      copy(from, from / own * width + begin + column, static_cast<std::size_t>(n));
      from += n;
    }
  }
};

Part part_of(std::span<const std::int64_t> ends, std::int64_t rank) {
  const auto at = static_cast<std::size_t>(rank);
  return {.begin = at == 0 ? 0 : ends[at - 1], .end = ends[at], .width = ends.back()};
}

/// FNV-1a of where the ranks' columns end.
std::uint32_t check_of(std::span<const std::int64_t> ends) {
  std::uint32_t hash = 2166136261U;
  for (const std::int64_t end : ends) {
    hash = (hash ^ static_cast<std::uint32_t>(end)) * 16777619U;
  }
  return hash;
}

}  // namespace

SharedCollective::SharedCollective(std::shared_ptr<SharedArea> area, std::int64_t rank)
    : area_(std::move(area)),
      rank_(rank),
      slot_floats_(area_->slot(rank, 0).size()),
      spins_(spins_for(area_->ranks())) {}

SharedCollective::~SharedCollective() {
  area_->abandon();
}

Result<std::unique_ptr<SharedCollective>> SharedCollective::attach(int fd,
                                                                   std::int64_t rank,
                                                                   std::int64_t ranks) {
  auto area = SharedArea::attach(fd);
  if (!area) {
    return area.error();
  }
  if ((*area)->ranks() != ranks || rank < 0 || rank >= ranks) {
    return Error{Code::kInvalidArgument,
                 "join a group of " + std::to_string(ranks) + " as rank " + std::to_string(rank) +
                     ": the memory is for " + std::to_string((*area)->ranks()) + " ranks"};
  }
  return std::make_unique<SharedCollective>(std::move(*area), rank);
}

/// Which slots the round to come uses. It does not change before this rank arrives.
std::uint32_t SharedCollective::turn() const {
  return area_->barrier().phase() % 2;
}

/// Announces what this rank does, waits for all, and sees whether they do the same.
Result<void> SharedCollective::meet(const Announcement& own) {
  const std::uint32_t turn = this->turn();
  area_->announcement(rank_, turn) = own;
  if (Result<void> met = area_->barrier().arrive_and_wait(size(), spins_); !met) {
    return met;
  }
  for (std::int64_t rank = 1; rank < size(); ++rank) {
    const Announcement& first = area_->announcement(0, turn);
    const Announcement& other = area_->announcement(rank, turn);
    if (first != other) {
      Error error{Code::kCorrupt,
                  "exchange between ranks: rank 0 " + describe(first) + ", rank " +
                      std::to_string(rank) + " " + describe(other)};
      area_->abandon();
      return error;
    }
  }
  return {};
}

Result<void> SharedCollective::all_reduce(std::span<float> data) {
  while (!data.empty()) {
    const std::uint32_t turn = this->turn();
    const std::span<float> part = data.first(std::min(slot_floats_, data.size()));
    std::copy(part.begin(), part.end(), area_->slot(rank_, turn).begin());
    if (Result<void> met = meet({.operation = kReduce, .count = data.size()}); !met) {
      return met;
    }
    std::copy_n(area_->slot(0, turn).begin(), part.size(), part.begin());
    for (std::int64_t rank = 1; rank < size(); ++rank) {
      const float* term = area_->slot(rank, turn).data();
      float* sum = part.data();
      for (std::size_t i = 0; i < part.size(); ++i) {
        sum[i] += term[i];
      }
    }
    data = data.subspan(part.size());
  }
  return {};
}

Result<void> SharedCollective::all_gather(std::span<float> matrix,
                                          std::span<const std::int64_t> ends) {
  HEDDLE_CHECK(std::cmp_equal(ends.size(), size()) && std::is_sorted(ends.begin(), ends.end()));
  HEDDLE_CHECK(ends.front() >= 0 && ends.back() > 0);
  HEDDLE_CHECK(matrix.size() % static_cast<std::size_t>(ends.back()) == 0);
  const auto rows = static_cast<std::int64_t>(matrix.size()) / ends.back();
  std::int64_t most = 0;  // Floats of the largest part: parts go through the slots side by side.
  for (std::int64_t rank = 0; rank < size(); ++rank) {
    const Part part = part_of(ends, rank);
    most = std::max(most, rows * (part.end - part.begin));
  }
  const auto step = static_cast<std::int64_t>(slot_floats_);
  const auto until = [&](const Part& part, std::int64_t from) {
    return std::min(from + step, rows * (part.end - part.begin));
  };
  for (std::int64_t from = 0; from < most; from += step) {
    const std::uint32_t turn = this->turn();
    const Part own = part_of(ends, rank_);
    own.for_runs(from, until(own, from), [&](std::int64_t first, std::int64_t place, auto n) {
      std::copy_n(matrix.data() + place, n, area_->slot(rank_, turn).data() + (first - from));
    });
    const Announcement announced{.operation = kGather,
                                 .check = check_of(ends),
                                 .count = matrix.size(),
                                 .value = static_cast<std::uint64_t>(from)};
    if (Result<void> met = meet(announced); !met) {
      return met;
    }
    for (std::int64_t rank = 0; rank < size(); ++rank) {
      const Part part = part_of(ends, rank);
      part.for_runs(from, until(part, from), [&](std::int64_t first, std::int64_t place, auto n) {
        std::copy_n(area_->slot(rank, turn).data() + (first - from), n, matrix.data() + place);
      });
    }
  }
  return {};
}

Result<void> SharedCollective::agree(std::uint64_t value) {
  return meet({.operation = kAgree, .value = value});
}

Result<std::int64_t> SharedCollective::least(std::int64_t value) {
  const std::uint32_t turn = this->turn();
  std::memcpy(area_->slot(rank_, turn).data(), &value, sizeof value);
  if (const Result<void> met = meet({.operation = kLeast}); !met) {
    return met.error();
  }
  for (std::int64_t rank = 0; rank < size(); ++rank) {
    std::int64_t other = 0;
    std::memcpy(&other, area_->slot(rank, turn).data(), sizeof other);
    value = std::min(value, other);
  }
  return value;
}

}  // namespace heddle::collective
