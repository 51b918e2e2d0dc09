#include "policy/kv_moves.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>

#include "base/check.h"

namespace heddle::policy {
namespace {

using Index = std::uint32_t;

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

}  // namespace heddle::policy
