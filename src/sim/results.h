#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/world.h"

namespace heddle::sim {

/// One request that has ended, for whoever wants a row of each.
struct RequestRow {
  RequestId number{};
  ModelId model{};
  Instant arrival{};
  std::int64_t input_tokens = 0;
  std::int64_t output_tokens = 0;
  std::optional<Instant> first_token{};
  std::optional<Instant> finished{};  ///< None: it was refused, or never served.
  std::int64_t preemptions = 0;
  bool cold = false;  ///< No instance of its model served when it came.
};

/// Mean and percentiles of seconds.
struct Distribution {
  std::size_t count = 0;
  double mean = 0, p50 = 0, p95 = 0, p99 = 0, most = 0;
};

/// The pages of one GPU at one moment, by what they are for.
struct PageSample {
  std::int32_t weights_active = 0, weights_warm = 0, kv_own = 0, kv_guest = 0, other = 0;
};

/// What is kept of a run: all that reports are made of. Memory grows by 8 bytes a request and is
/// otherwise bounded: samples are thinned as time goes on, never dropped from one end.
class Results final : public Observer {
 public:
  struct Options {
    bool timeline = false;  ///< Keep pages of every GPU over time.
    std::optional<RequestId> explain{};
    std::function<void(const RequestRow&)> each{};
  };
  Results() = default;
  explicit Results(Options options) : options_(std::move(options)) {}

  void ended(const World& world, const Outcome& outcome) override;
  void acted(const World& world, const Act& act) override;
  void sampled(const World& world, Instant at) override;
  /// Takes what is only known at the end. After World::run.
  void finish(const World& world);

  struct PerModel {
    std::int64_t requests = 0, completed = 0, ttft_met = 0, tpot_met = 0, cold = 0;
  };
  /// Loads and the like in one stretch of time.
  struct Bin {
    std::int32_t loads = 0, hits = 0, evictions = 0, arrivals = 0;
  };
  struct Moment {
    Instant at{};
    std::vector<PageSample> gpus{};
  };

  [[nodiscard]] Distribution ttft() const { return distribution(ttft_); }
  [[nodiscard]] Distribution tpot() const { return distribution(tpot_); }
  /// `points` values of the sorted times, evenly spaced in rank.
  [[nodiscard]] std::vector<float> ttft_curve(std::size_t points) const {
    return curve(ttft_, points);
  }
  [[nodiscard]] std::vector<float> tpot_curve(std::size_t points) const {
    return curve(tpot_, points);
  }
  /// Part of all requests that met their model's objective; refused ones did not.
  [[nodiscard]] double ttft_attainment() const;
  [[nodiscard]] double tpot_attainment() const;
  [[nodiscard]] const std::vector<PerModel>& models() const { return models_; }
  [[nodiscard]] const WorldCounts& counts() const { return counts_; }
  [[nodiscard]] double gpu_seconds() const { return gpu_seconds_; }
  [[nodiscard]] std::size_t gpus() const { return gpu_count_; }
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

  /// Of the request to explain: its row, and every action about it, its model, or the pages in
  /// its way while it was there.
  [[nodiscard]] const std::optional<RequestRow>& explained() const { return explained_; }
  [[nodiscard]] const std::vector<Act>& story() const { return story_; }

 private:
  [[nodiscard]] static Distribution distribution(const std::vector<float>& values);
  [[nodiscard]] static std::vector<float> curve(const std::vector<float>& values,
                                                std::size_t points);
  Bin& bin(Instant at);

  Options options_{};
  std::vector<float> ttft_{};  ///< [s]; sorted by finish().
  std::vector<float> tpot_{};
  std::vector<PerModel> models_{};
  WorldCounts counts_{};
  std::vector<Bin> bins_{};
  Duration bin_width_ = std::chrono::seconds(1);
  std::vector<Moment> timeline_{};
  std::int64_t sample_every_ = 1;
  std::int64_t samples_seen_ = 0;
  std::map<std::pair<ModelId, ModelId>, std::int64_t> evicted_for_{};
  std::map<std::pair<std::string, std::string>, std::int64_t> acts_{};
  std::optional<RequestRow> explained_{};
  std::vector<Act> story_{};
  std::array<double, ledger::kLeaseKinds> gib_seconds_{};
  double gpu_seconds_ = 0;
  std::size_t gpu_count_ = 0;
  std::size_t touched_ = 0;
  std::vector<bool> gpu_touched_{};
  Duration span_{};
  std::uint64_t digest_ = 0;
};

}  // namespace heddle::sim
