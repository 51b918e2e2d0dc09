#include "policy/kv_moves.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "base/check.h"

namespace heddle::policy {
namespace {

using Index = std::uint32_t;
constexpr Duration kShortestThreshold = std::chrono::seconds{10};
constexpr std::int64_t kActivationsIdle = 5;

Index index_of(std::span<const KvDevice> sorted, DeviceId id) {
  const auto at = std::lower_bound(
      sorted.begin(), sorted.end(), id, [](const KvDevice& d, DeviceId x) { return d.id < x; });
  HEDDLE_CHECK(at != sorted.end() && at->id == id);
  return static_cast<Index>(at - sorted.begin());
}

struct Candidate {
  const KvModel* model = nullptr;
  Index from = 0;
  Index to = 0;
  double highest = std::numeric_limits<double>::infinity();  ///< Pressure of the two afterwards.
};

/// The devices with what is on them, changed as moves are chosen.
class Book {
 public:
  Book(std::span<const KvModel> models,
       std::span<const KvDevice> devices,
       const KvMoveOptions& options)
      : options_(options), loads_(kv_loads(models, devices)), residents_(loads_.size()) {
    for (const KvModel& model : models) {
      if (model.parts == 1 && model.at.size() == 1 && model.movable) {
        residents_[index_of(loads_, model.at.front())].push_back(&model);
      }
    }
    for (std::vector<const KvModel*>& residents : residents_) {
      std::sort(residents.begin(), residents.end(), [](const KvModel* a, const KvModel* b) {
        return a->model < b->model;
      });
    }
  }

  /// The best move off the most pressed device that has one worth making.
  std::optional<KvMove> next_move() {
    std::vector<Index> by_pressure(loads_.size());
    for (Index d = 0; d < by_pressure.size(); ++d) {
      by_pressure[d] = d;
    }
    const auto tried = std::min(by_pressure.size(), kDevicesTried);
    std::partial_sort(by_pressure.begin(),
                      by_pressure.begin() + static_cast<std::ptrdiff_t>(tried),
                      by_pressure.end(),
                      [this](Index a, Index b) {
                        return std::tuple(-kv_pressure(loads_[a]), a) <
                               std::tuple(-kv_pressure(loads_[b]), b);
                      });
    for (std::size_t i = 0; i < tried; ++i) {
      const Candidate best = best_move_from(by_pressure[i]);
      if (best.model != nullptr && worth_it(best)) {
        return carry_out(best);
      }
    }
    return std::nullopt;
  }

 private:
  static constexpr std::size_t kDevicesTried = 8;

  Candidate best_move_from(Index from) const {
    Candidate best;
    for (const KvModel* model : residents_[from]) {
      const KvDevice& source = loads_[from];
      const double left =
          kv_pressure(source.demand - model->demand, source.bytes - source.taken + model->bytes);
      const auto consider = [&](Index to) {
        const double highest = std::max(left, pressure_with(*model, to));
        if (to != from && highest < best.highest) {
          best = {model, from, to, highest};
        }
      };
      if (options_.homes.empty()) {
        for (Index to = 0; to < loads_.size(); ++to) {
          consider(to);
        }
      } else if (const KvHome* home = planned(model->model)) {
        consider(index_of(loads_, home->devices.front()));
      }
    }
    return best;
  }

  [[nodiscard]] double pressure_with(const KvModel& model, Index to) const {
    const KvDevice& target = loads_[to];
    return kv_pressure(target.demand + model.demand, target.bytes - target.taken - model.bytes);
  }

  [[nodiscard]] const KvHome* planned(ModelId model) const {
    const auto at = std::lower_bound(
        options_.homes.begin(), options_.homes.end(), model, [](const KvHome& home, ModelId x) {
          return home.model < x;
        });
    return at != options_.homes.end() && at->model == model ? &*at : nullptr;
  }

  [[nodiscard]] double gain(const Candidate& move) const {
    const double before = kv_pressure(loads_[move.from]);
    return std::isinf(before) ? 1.0 : (before - move.highest) / before;
  }

  /// A model that moves serves on at its old place meanwhile, but the link and the room at the new
  /// one are taken: the relief must last longer than that.
  [[nodiscard]] bool worth_it(const Candidate& move) const {
    const double moving = static_cast<double>(move.model->bytes) / options_.bytes_per_second;
    const double horizon = to_seconds(options_.horizon);
    return kv_pressure(loads_[move.from]) > 0.0 && gain(move) * horizon > moving;
  }

  KvMove carry_out(const Candidate& move) {
    const KvMove out{
        .model = move.model->model,
        .from = loads_[move.from].id,
        .to = loads_[move.to].id,
        .gain = gain(move),
    };
    loads_[move.from].demand -= move.model->demand;
    loads_[move.from].taken -= move.model->bytes;
    loads_[move.to].demand += move.model->demand;
    loads_[move.to].taken += move.model->bytes;
    std::erase(residents_[move.from], move.model);
    return out;
  }

  const KvMoveOptions& options_;
  std::vector<KvDevice> loads_;
  std::vector<std::vector<const KvModel*>> residents_;  ///< Movable, not moved yet.
};

}  // namespace

std::vector<KvMove> choose_kv_moves(std::span<const KvModel> models,
                                    std::span<const KvDevice> devices,
                                    const KvMoveOptions& options) {
  HEDDLE_CHECK(options.bytes_per_second > 0.0);
  Book book(models, devices, options);
  std::vector<KvMove> moves;
  while (std::ssize(moves) < options.most) {
    const std::optional<KvMove> move = book.next_move();
    if (!move) {
      break;
    }
    moves.push_back(*move);
  }
  return moves;
}

std::optional<std::vector<DeviceId>> choose_kv_home(const KvModel& model,
                                                    std::span<const KvDevice> loads) {
  const auto parts = static_cast<std::size_t>(model.parts);
  const std::int64_t bytes = (model.bytes + model.parts - 1) / model.parts;
  const double demand = model.demand / static_cast<double>(model.parts);
  std::vector<std::tuple<HostId, double, DeviceId>> fitting;
  for (const KvDevice& d : loads) {
    const std::int64_t left = d.bytes - d.taken - bytes;
    if (left > 0) {
      fitting.emplace_back(d.host, kv_pressure(d.demand + demand, left), d.id);
    }
  }
  std::sort(fitting.begin(), fitting.end());
  std::optional<std::size_t> best;  // The first of its parts in `fitting`; they follow each other.
  for (std::size_t i = 0; i + parts <= fitting.size(); ++i) {
    const bool first_of_host = i == 0 || std::get<0>(fitting[i - 1]) != std::get<0>(fitting[i]);
    const std::size_t last = i + parts - 1;
    if (!first_of_host || std::get<0>(fitting[last]) != std::get<0>(fitting[i])) {
      continue;
    }
    const auto highest = [&](std::size_t first) {
      return std::pair(std::get<1>(fitting[first + parts - 1]), std::get<2>(fitting[first]));
    };
    if (!best || highest(i) < highest(*best)) {
      best = i;
    }
  }
  if (!best) {
    return std::nullopt;
  }
  std::vector<DeviceId> devices;
  for (std::size_t i = *best; i < *best + parts; ++i) {
    devices.push_back(std::get<2>(fitting[i]));
  }
  std::sort(devices.begin(), devices.end());
  return devices;
}

Duration idle_threshold(std::span<const Duration> gaps, Duration activation) {
  const Duration fallback = std::max(kShortestThreshold, kActivationsIdle * activation);
  if (gaps.size() < kFewestGaps) {
    return fallback;
  }
  std::vector<Duration> sorted(gaps.begin(), gaps.end());
  std::sort(sorted.begin(), sorted.end());
  // Just after gap i (or from the start), the gaps still open are those longer: on average they go
  // on for mean(longer) - gap i. The rest shrinks between gaps and jumps at each.
  Duration sum{};
  for (const Duration gap : sorted) {
    sum += gap;
  }
  Duration now{};
  auto open = std::ssize(sorted);
  for (const Duration gap : sorted) {
    if (sum / open - now > activation) {
      return now;
    }
    now = gap;
    sum -= gap;
    if (--open == 0) {
      break;
    }
  }
  return fallback;
}

std::optional<std::vector<ModelId>> choose_idle_evictions(std::span<const IdleModel> models,
                                                          std::int64_t need_bytes,
                                                          IdleOrder order) {
  std::vector<IdleModel> candidates;
  std::copy_if(
      models.begin(), models.end(), std::back_inserter(candidates), [](const IdleModel& m) {
        return !m.pinned && m.idle > m.threshold;
      });
  std::sort(candidates.begin(), candidates.end(), [order](const IdleModel& a, const IdleModel& b) {
    const bool a_breaks = a.activation > a.ttft;
    const bool b_breaks = b.activation > b.ttft;
    if (a_breaks != b_breaks) {
      return b_breaks;
    }
    if (order == IdleOrder::kPaper) {
      return std::tie(b.ttft, a.model) < std::tie(a.ttft, b.model);
    }
    return std::tie(a.value, a.model) < std::tie(b.value, b.model);
  });
  std::int64_t freed = 0;
  std::vector<IdleModel> chosen;
  for (const IdleModel& candidate : candidates) {
    if (freed >= need_bytes) {
      break;
    }
    freed += candidate.bytes;
    chosen.push_back(candidate);
  }
  if (freed < need_bytes) {
    return std::nullopt;
  }
  // The last may be large enough to spare some before it; the most valuable of those stay.
  for (std::size_t i = chosen.size(); i-- > 0;) {
    if (freed - chosen[i].bytes >= need_bytes) {
      freed -= chosen[i].bytes;
      chosen.erase(chosen.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  std::vector<ModelId> victims;
  for (const IdleModel& victim : chosen) {
    victims.push_back(victim.model);
  }
  return victims;
}

}  // namespace heddle::policy
