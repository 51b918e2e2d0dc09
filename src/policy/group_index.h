#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "policy/replica_map.h"

namespace heddle::policy {

/// What a new replica needs of a group of devices.
struct GroupWant {
  ModelId model{};
  std::int64_t devices = 1;
  std::int64_t pages = 0;  ///< On each.
  ReplicaWorth worth{};
  /// Groups that may be it, each in ascending order; empty: any.
  std::vector<std::vector<ReplicaMap::Index>> blocks{};
  bool alone = false;  ///< It will have its block to itself when it runs.
};

struct FoundGroup {
  std::vector<ReplicaMap::Index> devices{};
  bool isolated = true;              ///< All replicas it touches are worth less.
  std::vector<ReplicaId> victims{};  ///< To evict first.
};

/// Finds the group of devices for a replica (WarmServe Algorithm 1): of those in one server with
/// room, without a replica of the model and laminar with all replicas there (disjoint, or one
/// contains the other), the one whose replicas have the least sum of scores; groups where all of
/// them are worth less than the new one come first.
///
/// Aligned blocks of 1, 2, 4, ... devices are kept in order of that sum, by how much room they
/// have; any laminar family of sets of such sizes can be laid out in them, when all are placed at
/// once. Where none will do, all subsets of a server are tried: once GPUs 0 and 2 are taken, {1, 3}
/// is legal and is no aligned block. Other sizes are searched that way alone.
///
/// Replicas must be asked for in order of worth, the greatest first: a block that holds something
/// worth more stays behind for all that follow. Costs O(log devices) amortised for a find by
/// blocks, as long as there are at most kSizeClasses sizes of replicas (a bounded walk more where
/// there are more); a search of subsets costs at most kSubsets looks per server that changed since
/// it failed.
class GroupIndex {
 public:
  static constexpr std::size_t kSizeClasses = 128;
  static constexpr std::size_t kSubsets = 512;

  /// `sizes`: the devices and pages of all replicas that will be asked for. `victims`: how many
  /// blocks find_by_evicting weighs in detail; 0 if it will not be asked.
  GroupIndex(const ReplicaMap& map,
             std::span<const std::pair<std::int64_t, std::int64_t>> sizes,
             std::int64_t victims);

  /// A block that it is to have alone and where something is in use is left to find_by_evicting, if
  /// that will be asked.
  [[nodiscard]] std::optional<FoundGroup> find(const GroupWant& want);

  /// A block that has room once replicas worth less than the new one are evicted, all of them
  /// together too. Of those weighed the one that loses least, in tenths of what the new one is
  /// worth; where that is the same, one with nothing in use, if it is to have the block to itself,
  /// then the one where the least sum of scores is left.
  [[nodiscard]] std::optional<FoundGroup> find_by_evicting(const GroupWant& want);

  /// To be called when the map has changed on `devices`, ascending.
  void update(std::span<const ReplicaMap::Index> devices);

 private:
  using Index = ReplicaMap::Index;
  using BySum = std::set<std::pair<double, Index>>;
  struct Block {
    Index first = 0;
    std::size_t bucket = 0;  // 0: has no room for anything, or is not usable.
    double score_sum = 0;
    std::optional<ReplicaWorth> highest{};
    std::optional<ReplicaWorth> cheapest{};
    bool behind = false;  // Holds something worth more than all replicas still to come.
  };
  struct Level {
    Index size = 1;
    std::vector<std::int64_t> sizes{};  // Pages, ascending: bucket b has room for b of them.
    std::vector<Block> blocks{};
    std::vector<std::int64_t> block_of{};  // By device; -1: in no block.
    std::vector<BySum> ahead{};            // By bucket.
    std::vector<BySum> behind{};
    std::set<std::pair<ReplicaWorth, Index>> by_cheapest{};
  };
  /// A group that has room once its victims are gone, and what these are worth.
  struct WeighedGroup {
    // In steps of a tenth of the new one's worth, then whether it would wait for what runs there,
    // then what lies beside it, then exactly.
    std::tuple<std::pair<double, double>, bool, double, LostWorth> cost{};
    FoundGroup found{};
  };
  struct Failure {  // Of a search of the subsets of a server.
    std::int64_t devices = 0;
    std::int64_t pages = 0;
  };

  [[nodiscard]] Level* level_of(std::int64_t devices);
  void add_level(Index size, std::vector<std::int64_t> pages);
  void refresh(Level& level, Index block);
  void unlink(Level& level, Index block);
  [[nodiscard]] std::span<const Index> devices_of(const Level& level, Index block) const;
  [[nodiscard]] std::optional<Index> best_of(Level& level,
                                             std::vector<BySum>& buckets,
                                             const GroupWant& want);
  [[nodiscard]] std::optional<FoundGroup> find_block(Level& level, const GroupWant& want);
  [[nodiscard]] std::optional<FoundGroup> find_subset(const GroupWant& want);
  [[nodiscard]] std::optional<FoundGroup> find_among(const GroupWant& want) const;
  [[nodiscard]] std::optional<FoundGroup> find_among_by_evicting(const GroupWant& want) const;
  [[nodiscard]] std::optional<WeighedGroup> weigh(std::span<const Index> group,
                                                  const GroupWant& want) const;
  [[nodiscard]] std::optional<std::pair<LostWorth, std::vector<ReplicaId>>> victims_for(
      std::span<const Index> group, const GroupWant& want) const;

  const ReplicaMap& map_;
  std::int64_t victims_;
  std::vector<Index> iota_;
  std::vector<Level> levels_;
  std::vector<std::vector<Failure>> failures_;  // By server.
  std::vector<Failure> exhausted_;              // Evicting for these found nothing.
};

}  // namespace heddle::policy
