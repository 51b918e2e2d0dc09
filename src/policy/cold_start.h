#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "policy/nic.h"

namespace heddle::policy {

/// More stages than this bring little (HydraServe, section 4.1).
inline constexpr std::int64_t kMostStages = 4;

/// What starting a worker takes, measured on earlier starts of the same kind.
struct StartTimes {
  Duration runtime{};                ///< t_c: container and runtime, when nothing overlaps; Eq. 1.
  Duration container{};              ///< t_cc: container creation; Eq. 5, as the next two.
  Duration context{};                ///< t_cu: device context.
  Duration libraries{};              ///< t_l: library loading, beside which weights are copied.
  Duration hop{};                    ///< t_n: from one stage to the next.
  Duration prefill{};                ///< t_p: of the whole model on a device of its own.
  std::optional<Duration> decode{};  ///< t_d: one step; nullopt: never measured.
  std::array<Duration, kMostStages + 1> group{};  ///< More for a group of that many stages.
};

enum class StartForm : std::uint8_t {
  kSequential,  ///< Eq. 1: runtime, then fetch, then copy.
  kOverlapped,  ///< Eq. 5: fetching beside the container, copying beside the libraries.
};

/// One stage's way in [bytes/s]: what it obtains of the network, and PCIe.
struct StageLink {
  double network = 0.0;
  double pcie = 0.0;
};

/// Until one stage has its `bytes`: M/s / b + M/s / p (Eq. 1) or
/// max(t_cc + t_cu + max(M/s / p, t_l), M/s / b) (Eq. 5).
[[nodiscard]] Duration stage_ready(StartForm form,
                                   const StartTimes& times,
                                   std::int64_t bytes,
                                   const StageLink& link);

/// Eq. 1 and Eq. 5: TTFT of a group of s = links.size() stages of `bytes` each, `full` of them (w)
/// with the whole device's compute: runtime (Eq. 1 only) + the slowest stage
/// + t_p (s - w + w/s) + t_n s. A stage with 1/s of the compute takes t_p, one with all of it
/// t_p / s. Ours: + times.group[s].
[[nodiscard]] Duration predict_ttft(StartForm form,
                                    const StartTimes& times,
                                    std::int64_t bytes,
                                    std::int64_t full,
                                    std::span<const StageLink> links);

/// Eq. 2: TPOT = t_d (s - w + w/s) + t_n s at worst. times.decode is known.
[[nodiscard]] Duration predict_tpot(const StartTimes& times,
                                    std::int64_t stages,
                                    std::int64_t full);

/// A device that could hold a stage.
struct StartDevice {
  DeviceId id{};
  HostId host{};
  std::int64_t free_bytes = 0;
  std::int64_t revocable_bytes = 0;  ///< More, by revoking what may be lost (classes R0 and R1).
  double value = 0.0;                ///< Of these, lost with each byte, see value_density.
  bool shared = false;               ///< Other models serve on it.
};

struct StartHost {
  HostId id{};
  const Nic* nic = nullptr;  ///< Advanced to now. Borrowed for the call.
  double pcie = 0.0;         ///< [bytes/s]
};

struct StartModel {
  std::int64_t bytes = 0;            ///< M: weights.
  std::int64_t kv_per_token = 0;     ///< [bytes]
  std::int64_t prompt_tokens = 0;    ///< Of the waiting request.
  std::int64_t expected_tokens = 0;  ///< Of its answer.
  std::int64_t full_needed = 1;      ///< Workers wanted in the end, so full-memory ones at least.
  StartTimes times{};
};

enum class StartRule : std::uint8_t {
  /// Algorithm 1 as printed: stages go to the hosts with the least 1/b + 1/p; of all (s, w) in time
  /// the one with the least sharing of devices; w >= 0; M/s a stage.
  kPaper,
  /// Ours: w >= 1, since after consolidation somebody must hold all of M; stages of M / (0.9 s),
  /// since layers do not split evenly; memory of (M + kv_share) / s; of the hosts fast enough for
  /// the objective those where the least value is lost; of all (s, w) in time the one that loses
  /// least, then shares least, then reserves least. A group must be no worse than one worker, to
  /// the first token and to the last.
  kCorrected,
};

/// What starts where no group keeps the objectives.
enum class BestEffort : std::uint8_t {
  kOneWorker,  ///< As in the paper: one worker, where it starts first.
  /// Ours: the group that starts first, if it gains more than a tenth, and more than it loses.
  kSoonest,
};

struct StartOptions {
  StartRule rule = StartRule::kCorrected;
  /// Every stage has its device's compute to itself; w then counts memory alone.
  bool own_devices = false;
  BestEffort best_effort = BestEffort::kOneWorker;
  StartForm form = StartForm::kOverlapped;
  std::int64_t fewest_stages = 1;           ///< Smaller groups are not looked at.
  std::int64_t kv_share = 5'000'000'000;    ///< For KV beside the weights of one worker [bytes].
  std::int64_t fill_below = 6'000'000'000;  ///< A rest smaller than this goes to the worker too.
};

struct StartView {
  Instant now{};
  Duration ttft_left{};  ///< Objective less what the oldest request has waited already.
  Duration tpot{};
  std::span<const StartHost> hosts{};      ///< By id.
  std::span<const StartDevice> devices{};  ///< By host, then id.
};

enum class StartReason : std::uint8_t {
  kMeetsObjectives,  ///< The cheapest that does.
  kBestEffort,       ///< Nothing does.
};
/// "meets_objectives".
[[nodiscard]] std::string_view reason_name(StartReason reason);

struct StartStage {
  DeviceId device{};
  HostId host{};
  bool full = false;               ///< Room and compute for the whole model.
  std::int64_t fetch_bytes = 0;    ///< Its stage.
  std::int64_t reserve_bytes = 0;  ///< On its device.
  Instant fetch_deadline{};        ///< For Nic::start.
  friend bool operator==(const StartStage&, const StartStage&) = default;
};

struct StartPlan {
  StartReason reason = StartReason::kBestEffort;
  std::vector<StartStage> stages{};  ///< In pipeline order, full-memory workers first.
  std::int64_t full = 0;             ///< w
  Duration ttft{};                   ///< Predicted from now.
  std::optional<Duration> tpot{};    ///< Predicted, if t_d is known.
  double lost_value = 0.0;           ///< Of what must be revoked.
  friend bool operator==(const StartPlan&, const StartPlan&) = default;
};

/// HydraServe, Algorithm 1, with the contention of 4.2: for s in 1..4 and w in 0..s stages, the
/// hosts whose NIC admits the fetch, w of them with room for the whole model; what meets both
/// objectives and is cheapest by options.rule. Stages go to different hosts while there are enough;
/// on the same one they share its network. Without t_d the TPOT is not looked at; with
/// t_d >= the objective only s = 1 is tried. nullopt: no device has room for one worker, or no NIC
/// can take a fetch without harm to the others. Pure; ties by id. O(D + H (log H + F log F)) for H
/// hosts with F fetches each; callers with many hosts narrow them down.
[[nodiscard]] std::optional<StartPlan> choose_cold_start(const StartModel& model,
                                                         const StartView& view,
                                                         const StartOptions& options);

}  // namespace heddle::policy
