#include "sim/planes/kv_plan.h"

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace heddle::sim {
namespace {

using Index = std::uint32_t;
constexpr Index kNowhere = ~Index{0};

/// One model to place: what each of its parts needs, and where they are.
struct Item {
  ModelId model{};
  double demand = 0.0;
  std::int64_t bytes = 0;
  Index parts = 1;
  Index first = 0;  ///< Of its parts, in a Homes.
  bool placed = false;
  bool movable = true;
};

/// The device of every part of every item.
using Homes = std::vector<Index>;

/// The arguments in order of their ids, with indices for ids.
struct Problem {
  std::vector<policy::KvDevice> devices{};
  std::vector<Index> host{};                ///< Of each device.
  std::vector<std::vector<Index>> hosts{};  ///< Their devices.
  std::vector<Item> items{};
  Homes present{};  ///< Where the items are; kNowhere for those that are not placed.
};

Index place_of(std::span<const policy::KvDevice> sorted, DeviceId id) {
  const auto at =
      std::lower_bound(sorted.begin(), sorted.end(), id, [](const policy::KvDevice& d, DeviceId x) {
        return d.id < x;
      });
  return at == sorted.end() || at->id != id ? kNowhere : static_cast<Index>(at - sorted.begin());
}

std::int64_t part_bytes(const policy::KvModel& model) {
  return (model.bytes + model.parts - 1) / model.parts;
}

std::vector<policy::KvDevice> sorted_by_id(std::span<const policy::KvDevice> devices) {
  std::vector<policy::KvDevice> sorted(devices.begin(), devices.end());
  std::sort(sorted.begin(), sorted.end(), [](const policy::KvDevice& a, const policy::KvDevice& b) {
    return a.id < b.id;
  });
  return sorted;
}

void add_item(Problem& problem, const policy::KvModel& model) {
  HEDDLE_CHECK(model.parts >= 1 && model.demand >= 0.0 && model.bytes >= 0);
  Item item{.model = model.model,
            .demand = model.demand / static_cast<double>(model.parts),
            .bytes = part_bytes(model),
            .parts = static_cast<Index>(model.parts),
            .first = static_cast<Index>(problem.present.size())};
  std::vector<Index> at;
  for (const DeviceId id : model.at) {
    at.push_back(place_of(problem.devices, id));
  }
  std::sort(at.begin(), at.end());
  const bool known = at.size() == item.parts && at.back() != kNowhere;
  item.placed = known && std::adjacent_find(at.begin(), at.end()) == at.end();
  item.movable = model.movable || !item.placed;
  if (!item.placed) {
    at.assign(item.parts, kNowhere);
  }
  problem.present.insert(problem.present.end(), at.begin(), at.end());
  problem.items.push_back(item);
}

Problem make_problem(std::span<const policy::KvModel> models,
                     std::span<const policy::KvDevice> devices) {
  Problem problem{.devices = sorted_by_id(devices)};
  std::vector<HostId> ids;
  for (const policy::KvDevice& device : problem.devices) {
    ids.push_back(device.host);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  problem.hosts.resize(ids.size());
  for (Index d = 0; d < problem.devices.size(); ++d) {
    const auto at = std::lower_bound(ids.begin(), ids.end(), problem.devices[d].host);
    problem.host.push_back(static_cast<Index>(at - ids.begin()));
    problem.hosts[problem.host.back()].push_back(d);
  }
  std::vector<const policy::KvModel*> sorted;
  for (const policy::KvModel& model : models) {
    sorted.push_back(&model);
  }
  std::sort(sorted.begin(), sorted.end(), [](const policy::KvModel* a, const policy::KvModel* b) {
    return a->model < b->model;
  });
  for (const policy::KvModel* model : sorted) {
    add_item(problem, *model);
  }
  return problem;
}

/// Devices in an order by one number each, of which the least are looked for first.
class Ranking {
 public:
  using Order = std::set<std::pair<double, Index>>;

  explicit Ranking(std::vector<double> keys) : keys_(std::move(keys)), stamp_(keys_.size(), 0) {
    for (Index d = 0; d < keys_.size(); ++d) {
      order_.emplace(keys_[d], d);
    }
  }

  [[nodiscard]] double key(Index d) const { return keys_[d]; }

  void set_key(Index d, double key) {
    auto node = order_.extract({keys_[d], d});
    keys_[d] = key;
    node.value().first = key;
    order_.insert(std::move(node));
  }

  /// The `count` first devices at or after `from` that `fits`, on one host: the host of the first
  /// device that has so many. Empty when none has.
  template <class Fits>
  std::vector<Index> first_of_one_host(const Problem& problem,
                                       Index count,
                                       double from,
                                       const Fits& fits) {
    ++round_;
    for (auto at = order_.lower_bound({from, 0}); at != order_.end(); ++at) {
      if (!fits(at->second)) {
        continue;
      }
      if (count == 1) {
        return {at->second};
      }
      const Index host = problem.host[at->second];
      if (std::exchange(stamp_[host], round_) == round_) {
        continue;
      }
      std::vector<Index> chosen;
      for (const Index d : problem.hosts[host]) {
        if (keys_[d] >= from && fits(d)) {
          chosen.push_back(d);
        }
      }
      if (chosen.size() >= count) {
        std::sort(chosen.begin(), chosen.end(), [this](Index a, Index b) {
          return std::pair(keys_[a], a) < std::pair(keys_[b], b);
        });
        chosen.resize(count);
        return chosen;
      }
    }
    return {};
  }

 private:
  std::vector<double> keys_;
  Order order_{};
  std::vector<std::uint32_t> stamp_;  ///< Per host: the round that looked at it last.
  std::uint32_t round_ = 0;
};

/// Packs items into devices under the threshold T on pressure: W + T * M <= T * C.
class Packer {
 public:
  Packer(const Problem& problem, double threshold)
      : problem_(problem),
        threshold_(threshold),
        rooms_(initial_rooms(problem, threshold)),
        homes_(problem.present.size(), kNowhere) {
    for (Index i = 0; i < problem.items.size(); ++i) {
      if (problem.items[i].movable) {
        order_.push_back(i);
      } else {
        put(i, {problem.present.data() + problem.items[i].first, problem.items[i].parts});
      }
    }
    // The hardest first: many parts, then large ones.
    std::sort(order_.begin(), order_.end(), [&](Index a, Index b) {
      const Item& x = problem.items[a];
      const Item& y = problem.items[b];
      return std::tuple(y.parts, size(y), a) < std::tuple(x.parts, size(x), b);
    });
  }

  /// Best fit decreasing. False as soon as an item does not fit.
  bool pack() {
    return std::all_of(order_.begin(), order_.end(), [this](Index i) { return best_fit(i); });
  }

  enum class Stay : std::uint8_t { kFirst, kInTurn };
  enum class Misfit : std::uint8_t { kFails, kLeftOut };

  /// The same, but an item that fits where it is stays: those that do are put first, or each in its
  /// turn.
  bool pack_with_stays(Stay stay, Misfit misfit) {
    std::vector<Index> movers;
    for (const Index i : order_) {
      if (stays(i) || (stay == Stay::kInTurn && best_fit(i))) {
        continue;
      }
      movers.push_back(i);
    }
    for (const Index i : movers) {
      if (!best_fit(i) && misfit == Misfit::kFails) {
        return false;
      }
    }
    return true;
  }

  [[nodiscard]] const Homes& homes() const { return homes_; }

 private:
  /// A byte less than there is, so that something is left for KV even where nothing is asked for.
  static std::vector<double> initial_rooms(const Problem& problem, double threshold) {
    std::vector<double> rooms;
    for (const policy::KvDevice& d : problem.devices) {
      rooms.push_back(threshold * static_cast<double>(d.bytes - 1 - d.taken) - d.demand);
    }
    return rooms;
  }

  [[nodiscard]] double size(const Item& item) const {
    return item.demand + threshold_ * static_cast<double>(item.bytes);
  }

  bool stays(Index i) {
    const Item& item = problem_.items[i];
    if (!item.placed) {
      return false;
    }
    const std::span present(problem_.present.data() + item.first, item.parts);
    const bool fits = std::all_of(
        present.begin(), present.end(), [&](Index d) { return rooms_.key(d) >= size(item); });
    if (fits) {
      put(i, present);
    }
    return fits;
  }

  bool best_fit(Index i) {
    const Item& item = problem_.items[i];
    const std::vector<Index> devices =
        rooms_.first_of_one_host(problem_, item.parts, size(item), [](Index) { return true; });
    put(i, devices);
    return !devices.empty();
  }

  void put(Index i, std::span<const Index> devices) {
    const Item& item = problem_.items[i];
    for (std::size_t part = 0; part < devices.size(); ++part) {
      homes_[item.first + part] = devices[part];
      rooms_.set_key(devices[part], rooms_.key(devices[part]) - size(item));
    }
  }

  const Problem& problem_;
  double threshold_;
  Ranking rooms_;
  Homes homes_;
  std::vector<Index> order_{};
};

/// No placement has a lower maximum: the pressure of all devices taken together, or of the hardest
/// part alone on the largest device. Infinite when the models are larger than the devices.
double least_conceivable_pressure(const Problem& problem) {
  double demand = 0.0;
  std::int64_t room = 0;
  std::int64_t largest = 0;
  for (const policy::KvDevice& d : problem.devices) {
    demand += d.demand;
    room += d.bytes - d.taken;
    largest = std::max(largest, d.bytes - d.taken);
  }
  double bound = 0.0;
  for (const Item& item : problem.items) {
    demand += item.demand * item.parts;
    room -= item.bytes * item.parts;
    bound = std::max(bound, policy::kv_pressure(item.demand, largest - item.bytes));
  }
  return std::max(bound, policy::kv_pressure(demand, room));
}

Homes plan_by_threshold(const Problem& problem, const KvPlanOptions& options) {
  constexpr double kSmallest = 1e-12;  // All models idle: any threshold will do.
  constexpr int kDoublings = 64;
  double low = std::max(least_conceivable_pressure(problem), kSmallest);
  const auto packs = [&](double threshold) { return Packer(problem, threshold).pack(); };
  double high = low;
  bool found = false;
  for (int i = 0; i < kDoublings && high < std::numeric_limits<double>::max() && !found; ++i) {
    found = packs(high);
    if (!found) {
      low = high;
      high *= 2.0;
    }
  }
  if (!found) {
    // So large a threshold counts bytes alone.
    Packer rest(problem, 1e18);
    rest.pack_with_stays(Packer::Stay::kFirst, Packer::Misfit::kLeftOut);
    return rest.homes();
  }
  while (high > low * (1.0 + options.precision)) {
    const double middle = low + (high - low) / 2.0;
    (packs(middle) ? high : low) = middle;
  }
  for (const Packer::Stay stay : {Packer::Stay::kFirst, Packer::Stay::kInTurn}) {
    Packer lazy(problem, high * (1.0 + options.slack));
    if (lazy.pack_with_stays(stay, Packer::Misfit::kFails)) {
      return lazy.homes();
    }
  }
  Packer best(problem, high);
  HEDDLE_CHECK(best.pack());
  return best.homes();
}

/// Algorithm 1: one model after the other, by falling demand.
class Greedy {
 public:
  Greedy(const Problem& problem, const KvPlanOptions& options)
      : problem_(problem),
        options_(options),
        loads_(problem.devices),
        pressures_(initial_pressures(problem)),
        homes_(problem.present.size(), kNowhere) {}

  Homes run() {
    std::vector<Index> order(problem_.items.size());
    for (Index i = 0; i < order.size(); ++i) {
      order[i] = i;
    }
    std::sort(order.begin(), order.end(), [&](Index a, Index b) {
      const Item& x = problem_.items[a];
      const Item& y = problem_.items[b];
      return std::tuple(x.movable, -x.demand, a) < std::tuple(y.movable, -y.demand, b);
    });
    for (const Index i : order) {
      place(problem_.items[i]);
    }
    return homes_;
  }

 private:
  static std::vector<double> initial_pressures(const Problem& problem) {
    std::vector<double> pressures;
    for (const policy::KvDevice& d : problem.devices) {
      pressures.push_back(policy::kv_pressure(d));
    }
    return pressures;
  }

  [[nodiscard]] bool fits(const Item& item, Index d) const {
    return loads_[d].bytes - loads_[d].taken > item.bytes;
  }

  [[nodiscard]] double pressure_for(const Item& item, Index d) const {
    if (options_.planner == KvPlanner::kPaper) {
      return pressures_.key(d);
    }
    return policy::kv_pressure(loads_[d].demand + item.demand,
                               loads_[d].bytes - loads_[d].taken - item.bytes);
  }

  [[nodiscard]] double highest(const Item& item, std::span<const Index> devices) const {
    double most = 0.0;
    for (const Index d : devices) {
      most = std::max(most, pressure_for(item, d));
    }
    return most;
  }

  std::vector<Index> least(const Item& item) {
    if (options_.planner == KvPlanner::kPaper) {
      return pressures_.first_of_one_host(
          problem_, item.parts, 0.0, [&](Index d) { return fits(item, d); });
    }
    std::vector<Index> best;
    double best_pressure = std::numeric_limits<double>::infinity();
    for (const std::vector<Index>& host : problem_.hosts) {
      std::vector<Index> chosen;
      std::copy_if(host.begin(), host.end(), std::back_inserter(chosen), [&](Index d) {
        return fits(item, d);
      });
      if (chosen.size() < item.parts) {
        continue;
      }
      std::sort(chosen.begin(), chosen.end(), [&](Index a, Index b) {
        return std::pair(pressure_for(item, a), a) < std::pair(pressure_for(item, b), b);
      });
      chosen.resize(item.parts);
      if (const double pressure = highest(item, chosen); pressure < best_pressure) {
        best_pressure = pressure;
        best = std::move(chosen);
      }
    }
    return best;
  }

  void place(const Item& item) {
    const std::span present(problem_.present.data() + item.first, item.placed ? item.parts : 0);
    std::vector<Index> target(present.begin(), present.end());
    if (item.movable) {
      const bool can_stay = item.placed && std::all_of(present.begin(), present.end(), [&](auto d) {
                              return fits(item, d);
                            });
      std::vector<Index> best = least(item);
      if (!can_stay ||
          (!best.empty() && highest(item, present) - highest(item, best) > options_.tau)) {
        target = std::move(best);
      }
    }
    for (std::size_t part = 0; part < target.size(); ++part) {
      const Index d = target[part];
      homes_[item.first + part] = d;
      loads_[d].demand += item.demand;
      loads_[d].taken += item.bytes;
      pressures_.set_key(d, policy::kv_pressure(loads_[d]));
    }
  }

  const Problem& problem_;
  const KvPlanOptions& options_;
  std::vector<policy::KvDevice> loads_;
  Ranking pressures_;
  Homes homes_;
};

KvPlan plan_of(const Problem& problem, const Homes& homes) {
  KvPlan plan;
  std::vector<policy::KvDevice> loads = problem.devices;
  for (const Item& item : problem.items) {
    if (homes[item.first] == kNowhere) {
      plan.unplaced.push_back(item.model);
      continue;
    }
    policy::KvHome home{.model = item.model};
    for (Index part = 0; part < item.parts; ++part) {
      policy::KvDevice& device = loads[homes[item.first + part]];
      device.demand += item.demand;
      device.taken += item.bytes;
      home.devices.push_back(device.id);
    }
    std::sort(home.devices.begin(), home.devices.end());
    plan.homes.push_back(std::move(home));
  }
  for (const policy::KvDevice& device : loads) {
    plan.max_pressure = std::max(plan.max_pressure, policy::kv_pressure(device));
  }
  return plan;
}

}  // namespace

double request_demand(double requests_per_second, Duration ttft) {
  HEDDLE_CHECK(ttft > Duration{});
  return requests_per_second / to_seconds(ttft);
}

KvPlan plan_kv_placement(std::span<const policy::KvModel> models,
                         std::span<const policy::KvDevice> devices,
                         const KvPlanOptions& options) {
  HEDDLE_CHECK(options.precision > 0.0);
  const Problem problem = make_problem(models, devices);
  const Homes homes = options.planner == KvPlanner::kThreshold ? plan_by_threshold(problem, options)
                                                               : Greedy(problem, options).run();
  return plan_of(problem, homes);
}

std::optional<std::vector<DeviceId>> choose_kv_home(const policy::KvModel& model,
                                                    std::span<const policy::KvDevice> loads) {
  const auto parts = static_cast<std::size_t>(model.parts);
  const std::int64_t bytes = (model.bytes + model.parts - 1) / model.parts;
  const double demand = model.demand / static_cast<double>(model.parts);
  std::vector<std::tuple<HostId, double, DeviceId>> fitting;
  for (const policy::KvDevice& d : loads) {
    const std::int64_t left = d.bytes - d.taken - bytes;
    if (left > 0) {
      fitting.emplace_back(d.host, policy::kv_pressure(d.demand + demand, left), d.id);
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

}  // namespace heddle::sim
