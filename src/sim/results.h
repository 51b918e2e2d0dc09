#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/explanation.h"
#include "sim/quantiles.h"
#include "sim/request_row.h"
#include "sim/world.h"

namespace heddle::sim {

/// What pages are for, as pictures tell it apart.
enum class PageUse : std::uint8_t { kWeights, kWarm, kKv, kOther };

/// Pages of one GPU at one moment that one model has for one use.
struct OwnedPages {
  ModelId model{};
  PageUse use{};
  std::int32_t pages = 0;
};

/// What is kept of a run: all that reports are made of, in bounded memory: samples are thinned as
/// time goes on, never dropped from one end, and quantiles of many numbers are approximate.
class Results final : public Observer {
 public:
  static constexpr std::size_t kGpusShown = 64;
  struct Options {
    /// Requests that come earlier are left out of every number, as is what is done for them then.
    Duration warmup{};
    bool timeline = false;  ///< Keep pages of GPUs over time, of the first kGpusShown.
    std::optional<RequestId> explain{};
    std::function<void(const RequestRow&)> each{};
  };
  Results() = default;
  explicit Results(Options options);

  void ended(const World& world, const Outcome& outcome) override;
  void acted(const World& world, const Act& act) override;
  void sampled(const World& world, Instant at) override;
  /// Takes what is only known at the end. After World::run.
  void finish(const World& world);

  /// The same for runs that no World makes, such as those of real servers: a request that has ended
  /// is held to its model's objective, ...
  void add(const RequestRow& row, const Objective& objective);
  /// ... loads, hits and evictions fall into their stretch of time, ...
  void count(Instant at, std::int32_t loads, std::int32_t hits, std::int32_t evictions);
  /// ... and this is what is known at the end.
  struct Ending {
    std::size_t models = 0;  ///< That there are.
    WorldCounts counts{};
    Duration span{};
    std::vector<std::int64_t> gpu_pages{};  ///< By GPU.
    std::size_t gpus_touched = 0;
    double gpu_seconds = 0;
    std::array<double, ledger::kLeaseKinds> gib_seconds{};
  };
  void finish(const Ending& ending);

  struct PerModel {
    std::int64_t requests = 0, completed = 0, cold = 0;
    std::int64_t ttft_met = 0, tpot_met = 0, both_met = 0;
  };
  /// Loads and the like in one stretch of time.
  struct Bin {
    std::int32_t loads = 0, hits = 0, evictions = 0;
    std::int32_t arrivals = 0;  ///< Of requests that have ended, by when they came.
    std::int32_t met = 0;       ///< Of those, with both objectives met.
  };
  struct Moment {
    Instant at{};
    std::vector<std::vector<OwnedPages>> gpus{};  ///< By GPU; by model and use.
  };

  [[nodiscard]] const Quantiles& ttft() const { return ttft_; }  ///< [s]
  [[nodiscard]] const Quantiles& tpot() const { return tpot_; }  ///< [s]
  /// Part of all requests that met their model's objective; refused ones did not.
  [[nodiscard]] double ttft_attainment() const;
  [[nodiscard]] double tpot_attainment() const;
  /// Part of all requests that met both.
  [[nodiscard]] double attainment() const;
  [[nodiscard]] const std::vector<PerModel>& models() const { return models_; }
  [[nodiscard]] const WorldCounts& counts() const { return counts_; }
  /// How the run ended; with whom it left unserved.
  [[nodiscard]] const RunEnd& end() const { return end_; }
  [[nodiscard]] double gpu_seconds() const { return gpu_seconds_; }
  [[nodiscard]] std::size_t gpus_touched() const { return touched_; }
  [[nodiscard]] Duration span() const { return span_; }
  /// GiB-seconds on devices by lease kind.
  [[nodiscard]] const std::array<double, ledger::kLeaseKinds>& gib_seconds() const {
    return gib_seconds_;
  }
  [[nodiscard]] const std::vector<Bin>& bins() const { return bins_; }
  [[nodiscard]] Duration bin_width() const { return bin_width_; }
  [[nodiscard]] const std::vector<Moment>& timeline() const { return timeline_; }
  /// How often the second model's need evicted the first.
  [[nodiscard]] const std::map<std::pair<ModelId, ModelId>, std::int64_t>& evicted_for() const {
    return evicted_for_;
  }
  [[nodiscard]] const std::map<std::pair<std::string, std::string>, std::int64_t>& acts() const {
    return acts_;
  }
  [[nodiscard]] std::uint64_t digest() const { return digest_; }

  /// Mean relative error of the policy's forecasts; none where it makes none.
  [[nodiscard]] std::optional<double> forecast_error() const { return forecast_error_; }
  /// Pages of GPU i.
  [[nodiscard]] const std::vector<std::int64_t>& gpu_pages() const { return gpu_pages_; }
  /// Of the request to explain; null where none was asked for.
  [[nodiscard]] const Explanation* explanation() const {
    return explanation_ ? &*explanation_ : nullptr;
  }

 private:
  void counting(const World& world) override;
  [[nodiscard]] double part_of_all(std::int64_t PerModel::* met) const;
  Bin& bin(Instant at);
  /// What a world had counted when the warm-up was over.
  struct Start {
    Instant at{};
    WorldCounts counts{};
    double gpu_seconds = 0;
    std::array<double, ledger::kLeaseKinds> gib_seconds{};
  };
  [[nodiscard]] static Start counted(const World& world);

  Options options_{};
  Start start_{};
  RunEnd end_{};
  WorldCounts ended_{};  ///< How the requests that count have ended.
  Quantiles ttft_{};
  Quantiles tpot_{};
  std::vector<PerModel> models_{};
  WorldCounts counts_{};
  std::vector<Bin> bins_{};
  Duration bin_width_ = std::chrono::seconds(1);
  std::vector<Moment> timeline_{};
  std::int64_t sample_every_ = 1;
  std::int64_t samples_seen_ = 0;
  std::map<std::pair<ModelId, ModelId>, std::int64_t> evicted_for_{};
  std::map<std::pair<std::string, std::string>, std::int64_t> acts_{};
  std::optional<Explanation> explanation_{};
  std::optional<double> forecast_error_{};
  std::vector<std::int64_t> gpu_pages_{};
  std::array<double, ledger::kLeaseKinds> gib_seconds_{};
  double gpu_seconds_ = 0;
  std::size_t touched_ = 0;
  std::vector<bool> gpu_touched_{};
  Duration span_{};
  std::uint64_t digest_ = 0;
};

}  // namespace heddle::sim
