#include "policy/cold_start.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"

namespace heddle::policy {
namespace {

// Layers do not split evenly, and embedding and head are lumps.
constexpr double kStageEvenness = 0.9;
// The deadline of a fetch that nobody expects in time any more.
constexpr Duration kSomeDay = std::chrono::hours{24};
// Of one worker's time to the first token, what a group has to be sooner by.
constexpr double kLeastGain = 0.1;

/// s - w + w/s: what the stages add up to in units of the whole model on its own device.
double compute_share(std::int64_t stages, std::int64_t full) {
  const auto s = static_cast<double>(stages);
  const auto w = static_cast<double>(full);
  return s - w + w / s;
}

/// Everything but the fetch and the copy.
Duration other_time(StartForm form,
                    const StartTimes& times,
                    std::int64_t stages,
                    std::int64_t full) {
  const Duration before = form == StartForm::kSequential ? times.runtime : Duration{};
  const Duration prefill = from_seconds(to_seconds(times.prefill) * compute_share(stages, full));
  return before + prefill + stages * times.hop + times.group[static_cast<std::size_t>(stages)];
}

/// A device as a place for one stage.
struct Place {
  const StartDevice* device = nullptr;
  const StartHost* host = nullptr;
  Duration ready{};         ///< stage_ready, alone on its host.
  Instant deadline{};       ///< Of its fetch.
  double lost_value = 0.0;  ///< If all the memory wanted is taken.
  std::int64_t rest = 0;    ///< Bytes left over.
  /// Less is better: slow, first and second criterion, shared, rest, device.
  std::tuple<bool, double, bool, double, std::int64_t, DeviceId> rank{};
};

/// Which stages are looked for: their size, and the time the objective leaves for getting them.
struct Wanted {
  std::int64_t bytes = 0;   ///< To fetch.
  std::int64_t memory = 0;  ///< To reserve.
  Duration budget{};
};

/// What is common to all (s, w) of one call.
class Search {
 public:
  Search(const StartModel& model, const StartView& view, const StartOptions& options)
      : model_(model), view_(view), options_(options), paper_(options.rule == StartRule::kPaper) {}

  std::optional<StartPlan> run() {
    const bool slow = model_.times.decode && *model_.times.decode >= view_.tpot;
    const std::int64_t most = slow && !paper_ ? 1 : kMostStages;
    std::optional<StartPlan> best;
    for (std::int64_t s = options_.fewest_stages; s <= most; ++s) {
      for (std::int64_t w = least_full(s); w <= s; ++w) {
        std::optional<StartPlan> plan = try_group(s, w);
        if (plan && meets_objectives(*plan) && no_worse_than_one(*plan, s) &&
            (!best || cost(*plan) < cost(*best))) {
          plan->reason = StartReason::kMeetsObjectives;
          best = std::move(plan);
        }
      }
    }
    if (best) {
      return best;
    }
    std::optional<StartPlan> one = options_.fewest_stages > 1 ? std::nullopt : best_effort();
    return options_.best_effort == BestEffort::kSoonest ? soonest(std::move(one)) : one;
  }

 private:
  /// The group that starts first, where that is worth its price [s] against one worker. Its own
  /// deadline is lost, so that it harms no other fetch.
  std::optional<StartPlan> soonest(std::optional<StartPlan> one) {
    overdue_ = true;
    std::optional<StartPlan> best = one;
    for (std::int64_t s = std::max<std::int64_t>(2, options_.fewest_stages); s <= kMostStages;
         ++s) {
      std::optional<StartPlan> plan = try_group(s, least_full(s));
      const bool gains = plan && (!one || to_seconds(one->ttft - plan->ttft) >
                                              std::max(plan->lost_value - one->lost_value,
                                                       kLeastGain * to_seconds(one->ttft)));
      if (gains && no_worse_than_one(*plan, s) && (!best || plan->ttft < best->ttft)) {
        best = std::move(plan);
      }
    }
    return best;
  }

  /// s = 1 without full memory is s = 1 with it. A group cannot have more full workers than stages.
  [[nodiscard]] std::int64_t least_full(std::int64_t stages) const {
    if (stages == 1) {
      return 1;
    }
    return paper_ ? 0 : std::clamp(model_.full_needed, std::int64_t{1}, stages);
  }

  /// Stages with the whole device's compute, where so many have room for the whole model.
  [[nodiscard]] std::int64_t computing(std::int64_t stages, std::int64_t full) const {
    return options_.own_devices ? stages : full;
  }

  [[nodiscard]] std::int64_t stage_bytes(std::int64_t stages) const {
    if (stages == 1) {
      return model_.bytes;
    }
    const double evenness = paper_ ? 1.0 : kStageEvenness;
    const double share =
        static_cast<double>(model_.bytes) / (evenness * static_cast<double>(stages));
    return std::min(model_.bytes, static_cast<std::int64_t>(share) + 1);
  }

  [[nodiscard]] std::int64_t memory(std::int64_t parts) const {
    const std::int64_t whole = model_.bytes + (paper_ ? 0 : options_.kv_share);
    return (whole + parts - 1) / parts;
  }

  static Fetch fetch(std::int64_t bytes, Instant deadline) {
    return {.id = FetchId(~std::uint64_t{0}), .bytes = bytes, .deadline = deadline};
  }

  /// The best devices of each host for such a stage, best first: one per host where there are
  /// enough hosts, since two stages of one host would share its network.
  [[nodiscard]] std::vector<Place> places(const Wanted& wanted) const {
    const std::size_t per_host = view_.hosts.size() < kMostStages ? kMostStages : 1;
    const auto better = [](const Place& a, const Place& b) { return a.rank < b.rank; };
    std::vector<Place> found;
    std::vector<Place> here;
    auto device = view_.devices.begin();
    for (const StartHost& host : view_.hosts) {
      const Place base = place_on(host, wanted);
      here.clear();
      for (; device != view_.devices.end() && device->host <= host.id; ++device) {
        HEDDLE_CHECK(device->host == host.id);
        if (device->free_bytes + device->revocable_bytes >= wanted.memory) {
          here.push_back(ranked(base, *device, wanted));
        }
      }
      const std::size_t kept = std::min(per_host, here.size());
      std::partial_sort(
          here.begin(), here.begin() + static_cast<std::ptrdiff_t>(kept), here.end(), better);
      found.insert(found.end(), here.begin(), here.begin() + static_cast<std::ptrdiff_t>(kept));
    }
    HEDDLE_CHECK(device == view_.devices.end());
    std::sort(found.begin(), found.end(), better);
    return found;
  }

  [[nodiscard]] Place place_on(const StartHost& host, const Wanted& wanted) const {
    HEDDLE_CHECK(host.nic != nullptr && host.pcie > 0.0);
    const bool copies_after = options_.form == StartForm::kSequential;
    const Duration copy = from_seconds(static_cast<double>(wanted.bytes) / host.pcie);
    const Instant in_time = view_.now + wanted.budget - (copies_after ? copy : Duration{});
    const Instant deadline = overdue_ ? view_.now + kSomeDay : in_time;
    const StageLink link{host.nic->bandwidth_for(fetch(wanted.bytes, deadline)), host.pcie};
    return {.host = &host,
            .ready = stage_ready(options_.form, model_.times, wanted.bytes, link),
            .deadline = deadline};
  }

  /// Among devices fast enough what is lost counts; among the others, and in the paper, time.
  [[nodiscard]] Place ranked(Place place, const StartDevice& device, const Wanted& wanted) const {
    const std::int64_t missing = std::max(std::int64_t{0}, wanted.memory - device.free_bytes);
    place.device = &device;
    place.lost_value = device.value * static_cast<double>(missing);
    place.rest = device.free_bytes + device.revocable_bytes - wanted.memory;
    const bool slow = place.ready > wanted.budget;
    const double time = to_seconds(place.ready);
    const bool by_value = !slow && !paper_;
    place.rank = {slow,
                  by_value ? place.lost_value : time,
                  device.shared,
                  by_value ? time : place.lost_value,
                  place.rest,
                  device.id};
    return place;
  }

  /// Adds `count` of `from` to `chosen`: on hosts not used yet first, then on those used once, ...;
  /// only where the NIC admits all stages of that host.
  static bool pick(std::vector<Place>& chosen,
                   std::int64_t count,
                   const std::vector<Place>& from,
                   std::int64_t bytes) {
    const auto wanted = std::ssize(chosen) + count;
    for (std::int64_t uses = 0; uses < kMostStages && std::ssize(chosen) < wanted; ++uses) {
      for (const Place& place : from) {
        const auto taken = std::any_of(
            chosen.begin(), chosen.end(), [&](const Place& p) { return p.device == place.device; });
        if (std::ssize(chosen) < wanted && !taken && uses_of(chosen, *place.host) == uses &&
            place.host->nic->admits(fetch(bytes * (uses + 1), place.deadline))) {
          chosen.push_back(place);
        }
      }
    }
    return std::ssize(chosen) == wanted;
  }

  static std::int64_t uses_of(const std::vector<Place>& places, const StartHost& host) {
    return std::count_if(
        places.begin(), places.end(), [&](const Place& p) { return p.host == &host; });
  }

  std::optional<StartPlan> try_group(std::int64_t s, std::int64_t w) const {
    const std::int64_t bytes = stage_bytes(s);
    const Duration budget =
        view_.ttft_left - other_time(options_.form, model_.times, s, computing(s, w));
    std::vector<Place> chosen;
    if (w > 0 && !pick(chosen, w, places({bytes, memory(1), budget}), bytes)) {
      return std::nullopt;
    }
    if (s > w && !pick(chosen, s - w, places({bytes, memory(s), budget}), bytes)) {
      return std::nullopt;
    }
    return plan_of(chosen, w, bytes);
  }

  [[nodiscard]] StartPlan plan_of(const std::vector<Place>& chosen,
                                  std::int64_t full,
                                  std::int64_t bytes) const {
    const auto stages = std::ssize(chosen);
    StartPlan plan{.full = full};
    std::vector<StageLink> links;
    for (std::int64_t i = 0; i < stages; ++i) {
      const Place& place = chosen[static_cast<std::size_t>(i)];
      const auto sharers = static_cast<double>(uses_of(chosen, *place.host));
      links.push_back({place.host->nic->bandwidth_for(fetch(bytes, place.deadline)) / sharers,
                       place.host->pcie});
      std::int64_t reserve = memory(i < full ? 1 : stages);
      if (!paper_ && place.rest <= options_.fill_below) {
        reserve = std::max(reserve, place.device->free_bytes);
      }
      plan.stages.push_back({.device = place.device->id,
                             .host = place.host->id,
                             .full = i < full,
                             .fetch_bytes = bytes,
                             .reserve_bytes = reserve,
                             .fetch_deadline = place.deadline});
      plan.lost_value += place.lost_value;
    }
    const std::int64_t alone = computing(stages, full);
    plan.ttft = predict_ttft(options_.form, model_.times, bytes, alone, links);
    if (model_.times.decode) {
      plan.tpot = predict_tpot(model_.times, stages, alone);
    }
    return plan;
  }

  [[nodiscard]] bool meets_objectives(const StartPlan& plan) const {
    return plan.ttft <= view_.ttft_left && (!plan.tpot || *plan.tpot <= view_.tpot);
  }

  /// To the first token and to the last, compared with one worker alone (section 6: a group must
  /// never be slower). While the rest of M arrives each token costs the pipeline's TPOT, and then
  /// the KV is gathered.
  bool no_worse_than_one(const StartPlan& plan, std::int64_t stages) {
    if (paper_ || stages == 1) {
      return true;
    }
    if (!one_known_) {
      one_known_ = true;
      one_ = fastest_one();
    }
    if (!one_) {
      return true;  // It would not start at all.
    }
    if (plan.ttft > one_->ttft || !plan.tpot) {
      return plan.ttft <= one_->ttft;
    }
    const double bandwidth =
        static_cast<double>(nic_of(plan.stages.front().host).bytes_per_second());
    const double moved = static_cast<double>(stages - 1) / static_cast<double>(stages);
    const double merging = static_cast<double>(model_.bytes) * moved / bandwidth;
    const double slower = to_seconds(*plan.tpot) - to_seconds(*model_.times.decode);
    const double slow_tokens =
        std::min(static_cast<double>(model_.expected_tokens), merging / to_seconds(*plan.tpot));
    const double context = static_cast<double>(model_.prompt_tokens) + slow_tokens;
    const double gather = context * static_cast<double>(model_.kv_per_token) * moved / bandwidth;
    return slow_tokens * slower + gather <= to_seconds(one_->ttft - plan.ttft);
  }

  [[nodiscard]] const Nic& nic_of(HostId id) const {
    return *std::lower_bound(view_.hosts.begin(),
                             view_.hosts.end(),
                             id,
                             [](const StartHost& h, HostId x) { return h.id < x; })
                ->nic;
  }

  /// One worker as fast as possible, whether or not it keeps the objective.
  [[nodiscard]] std::optional<StartPlan> fastest_one() const {
    std::vector<Place> found = places({model_.bytes, memory(1), Duration{}});
    if (found.empty()) {
      return std::nullopt;
    }
    found.resize(1);
    return plan_of(found, 1, model_.bytes);
  }

  /// One worker. Its own deadline is lost, the others' are not: of the NICs that can take one more
  /// fetch without harm the fastest; if none can, it waits.
  [[nodiscard]] std::optional<StartPlan> best_effort() const {
    std::vector<Place> found = places({model_.bytes, memory(1), Duration{}});
    for (Place& place : found) {
      place.deadline = view_.now + kSomeDay;
    }
    std::vector<Place> chosen;
    if (!pick(chosen, 1, found, model_.bytes)) {
      return std::nullopt;
    }
    return plan_of(chosen, 1, model_.bytes);
  }

  [[nodiscard]] std::tuple<double, std::int64_t, std::int64_t, std::size_t> cost(
      const StartPlan& plan) const {
    std::int64_t sharing = 0;
    std::int64_t reserved = 0;
    for (const StartStage& stage : plan.stages) {
      reserved += memory(stage.full ? 1 : std::ssize(plan.stages));
      sharing += is_shared(stage.device) ? 1 : 0;
    }
    return {paper_ ? 0.0 : plan.lost_value, sharing, reserved, plan.stages.size()};
  }

  [[nodiscard]] bool is_shared(DeviceId id) const {
    return std::any_of(view_.devices.begin(), view_.devices.end(), [id](const StartDevice& d) {
      return d.id == id && d.shared;
    });
  }

  const StartModel& model_;
  const StartView& view_;
  const StartOptions& options_;
  bool paper_;
  bool overdue_ = false;  ///< No objective is kept any more.
  bool one_known_ = false;
  std::optional<StartPlan> one_{};
};

}  // namespace

Duration stage_ready(StartForm form,
                     const StartTimes& times,
                     std::int64_t bytes,
                     const StageLink& link) {
  const double fetch = static_cast<double>(bytes) / link.network;
  const double copy = static_cast<double>(bytes) / link.pcie;
  if (form == StartForm::kSequential) {
    return from_seconds(fetch + copy);
  }
  const double prepared = to_seconds(times.container + times.context);
  return from_seconds(std::max(prepared + std::max(copy, to_seconds(times.libraries)), fetch));
}

Duration predict_ttft(StartForm form,
                      const StartTimes& times,
                      std::int64_t bytes,
                      std::int64_t full,
                      std::span<const StageLink> links) {
  const auto stages = std::ssize(links);
  HEDDLE_CHECK(stages >= 1 && stages <= kMostStages && full >= 0 && full <= stages);
  Duration slowest{};
  for (const StageLink& link : links) {
    slowest = std::max(slowest, stage_ready(form, times, bytes, link));
  }
  return slowest + other_time(form, times, stages, full);
}

Duration predict_tpot(const StartTimes& times, std::int64_t stages, std::int64_t full) {
  HEDDLE_CHECK(times.decode);
  return from_seconds(to_seconds(*times.decode) * compute_share(stages, full)) + stages * times.hop;
}

std::string_view reason_name(StartReason reason) {
  return reason == StartReason::kMeetsObjectives ? "meets_objectives" : "best_effort";
}

std::optional<StartPlan> choose_cold_start(const StartModel& model,
                                           const StartView& view,
                                           const StartOptions& options) {
  HEDDLE_CHECK(model.bytes > 0);
  return Search(model, view, options).run();
}

}  // namespace heddle::policy
