#include "policy/nic.h"

#include <algorithm>
#include <cstdlib>
#include <tuple>

#include "base/check.h"

namespace heddle::policy {
namespace {

auto position(std::vector<Fetch>& fetches, FetchId id) {
  return std::lower_bound(
      fetches.begin(), fetches.end(), id, [](const Fetch& f, FetchId x) { return f.id < x; });
}

}  // namespace

/// Whole bytes, so that the two admission rules compare the same integers and one provably admits
/// what the other does.
std::int64_t Nic::capacity(Duration duration) const {
  const double bytes = static_cast<double>(bytes_per_second_) * (to_seconds(duration));
  return static_cast<std::int64_t>(std::min(bytes, 9e18));
}

void Nic::advance(Instant now) {
  HEDDLE_CHECK(now >= updated_);
  if (rule_ == NicRule::kEqualShare) {
    advance_equally(now - updated_);
  } else {
    advance_by_deadline(now - updated_);
  }
  std::erase_if(fetches_, [](const Fetch& f) { return f.bytes <= 0; });
  updated_ = now;
}

void Nic::advance_equally(Duration duration) {
  std::int64_t budget = capacity(duration);
  while (!fetches_.empty()) {
    const auto count = std::ssize(fetches_);
    const auto least =
        std::min_element(fetches_.begin(), fetches_.end(), [](const Fetch& a, const Fetch& b) {
          return a.bytes < b.bytes;
        })->bytes;
    const std::int64_t each = std::min(least, budget / count);
    for (Fetch& fetch : fetches_) {
      fetch.bytes -= each;
    }
    budget -= each * count;
    if (each < least) {
      return;
    }
    std::erase_if(fetches_, [](const Fetch& f) { return f.bytes <= 0; });
  }
}

void Nic::advance_by_deadline(Duration duration) {
  std::int64_t budget = capacity(duration);
  std::vector<Fetch*> order;
  for (Fetch& fetch : fetches_) {
    order.push_back(&fetch);
  }
  std::sort(order.begin(), order.end(), [this](const Fetch* a, const Fetch* b) {
    return std::tuple(late(*a), a->deadline, a->id) < std::tuple(late(*b), b->deadline, b->id);
  });
  for (Fetch* fetch : order) {
    const std::int64_t served = std::min(fetch->bytes, budget);
    fetch->bytes -= served;
    budget -= served;
  }
}

bool Nic::admits(const Fetch& fetch) const {
  HEDDLE_CHECK(fetch.bytes > 0);
  if (late(fetch)) {
    return false;
  }
  std::vector<Fetch> all;
  std::copy_if(fetches_.begin(), fetches_.end(), std::back_inserter(all), [this](const Fetch& f) {
    return !late(f);
  });
  all.push_back(fetch);
  if (rule_ == NicRule::kEqualShare) {
    const auto sharers = std::ssize(fetches_) + 1;
    return std::all_of(all.begin(), all.end(), [&](const Fetch& f) {
      return f.bytes <= capacity(f.deadline - updated_) / sharers;
    });
  }
  std::sort(all.begin(), all.end(), [](const Fetch& a, const Fetch& b) {
    return a.deadline < b.deadline;
  });
  std::int64_t due = 0;
  return std::all_of(all.begin(), all.end(), [&](const Fetch& f) {
    due += f.bytes;
    return due <= capacity(f.deadline - updated_);
  });
}

double Nic::bandwidth_for(const Fetch& fetch) const {
  const auto line = static_cast<double>(bytes_per_second_);
  if (rule_ == NicRule::kEqualShare) {
    return line / static_cast<double>(fetches_.size() + 1);
  }
  std::int64_t ahead = 0;
  for (const Fetch& f : fetches_) {
    ahead += !late(f) && f.deadline <= fetch.deadline ? f.bytes : 0;
  }
  return line * static_cast<double>(fetch.bytes) / static_cast<double>(ahead + fetch.bytes);
}

void Nic::start(const Fetch& fetch) {
  HEDDLE_CHECK(fetch.bytes > 0);
  const auto at = position(fetches_, fetch.id);
  HEDDLE_CHECK(at == fetches_.end() || at->id != fetch.id);
  fetches_.insert(at, fetch);
}

void Nic::end(FetchId fetch) {
  std::erase_if(fetches_, [fetch](const Fetch& f) { return f.id == fetch; });
}

void Nic::observe(FetchId fetch, std::int64_t bytes) {
  const auto at = position(fetches_, fetch);
  if (at == fetches_.end() || at->id != fetch) {
    return;
  }
  constexpr std::int64_t kToleratedPart = 5;
  if (bytes <= 0) {
    fetches_.erase(at);
  } else if (std::abs(bytes - at->bytes) > at->bytes / kToleratedPart) {
    at->bytes = bytes;
  }
}

}  // namespace heddle::policy
