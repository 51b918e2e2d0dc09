#include <algorithm>
#include <map>

#include "sim/print.h"
#include "sim/world.h"

namespace heddle::sim {
namespace {

using namespace std::chrono_literals;

/// Nobody got any further for so long and nothing is under way: longer than any policy waits before
/// it looks again.
constexpr Duration kStill = 15min;
/// Events and notices without any progress that a large cluster may have, and what each request,
/// GPU and model may add.
constexpr std::int64_t kEvents = 50'000;
constexpr std::int64_t kEventsEach = 32;

/// Events that clocks bring are further apart.
constexpr Duration kLeastApart = 1ms;

constexpr double kGiga = 1e9;

}  // namespace

std::string_view name(RunEnd::Kind kind) {
  switch (kind) {
    case RunEnd::Kind::kDone:
      return "done";
    case RunEnd::Kind::kOutOfPatience:
      return "out_of_patience";
    case RunEnd::Kind::kNothingHappens:
      return "nothing_happens";
    case RunEnd::Kind::kGoesRoundInRings:
      return "goes_round_in_rings";
    case RunEnd::Kind::kStopped:
      return "stopped";
  }
  return "?";
}

WorldCounts operator-(const WorldCounts& later, const WorldCounts& earlier) {
  WorldCounts made = later;
  for (std::int64_t WorldCounts::* each : {&WorldCounts::arrived,
                                           &WorldCounts::completed,
                                           &WorldCounts::refused,
                                           &WorldCounts::unserved,
                                           &WorldCounts::starts,
                                           &WorldCounts::hits,
                                           &WorldCounts::attaches,
                                           &WorldCounts::misses,
                                           &WorldCounts::prewarms,
                                           &WorldCounts::evictions,
                                           &WorldCounts::preemptions,
                                           &WorldCounts::resubmissions,
                                           &WorldCounts::merges,
                                           &WorldCounts::failures,
                                           &WorldCounts::events,
                                           &WorldCounts::tokens}) {
    made.*each -= earlier.*each;
  }
  for (double WorldCounts::* each :
       {&WorldCounts::bytes_fetched, &WorldCounts::bytes_loaded, &WorldCounts::bytes_kv_moved}) {
    made.*each -= earlier.*each;
  }
  return made;
}

void World::progressed() {
  progress_at_ = now_;
  since_progress_ = 0;
}

bool World::goes_round_in_rings() const {
  const auto parts = static_cast<std::int64_t>(gpus_.size() + models_.size());
  return live_ > 0 && since_progress_ > kEvents + kEventsEach * (live_ + parts) &&
         now_ - progress_at_ < since_progress_ * kLeastApart;
}

bool World::loads_in_vain() const {
  return live_ > 0 && now_ >= token_at_ + kStill;
}

/// Whether something of a replica is under way that ends by itself.
bool World::works(const Replica& replica) const {
  switch (replica.state) {
    case ReplicaPhase::kLoading:
    case ReplicaPhase::kStarting:
    case ReplicaPhase::kEvicting:
      return true;
    case ReplicaPhase::kServing:
    case ReplicaPhase::kDraining:
      return replica.merging > 0 || (replica.engine && replica.engine->boundary().has_value());
    default:
      return false;
  }
}

bool World::nothing_happens() const {
  if (live_ == 0 || more_arrivals_ || planned_repairs_ > 0 || now_ < progress_at_ + kStill ||
      now_ < planned_until_) {
    return false;
  }
  return std::none_of(gpus_.begin(), gpus_.end(), [this](const Gpu& gpu) {
    return std::any_of(gpu.replicas.begin(), gpu.replicas.end(), [this](ReplicaId id) {
      return works(*replica(id));
    });
  });
}

std::string World::why_unserved(const LiveRequest& request) const {
  const ModelId id = request.model;
  const ModelSpec& spec = model(id);
  if (std::none_of(hosts_.begin(), hosts_.end(), [&](const Host& host) {
        return fits(*this, id, host.id);
      })) {
    const double each = static_cast<double>(weight_pages(id) + overhead_pages(id)) *
                        static_cast<double>(page_bytes()) / kGiga;
    return print("its weights and engine, %.1f GB", each) +
           (spec.tp > 1 ? " on each of " + std::to_string(spec.tp) + " GPUs, fit no server"
                        : std::string(" with little KV, fit no GPU"));
  }
  if (request.dispatched) {
    return "it was with an instance when the run ended";
  }
  const auto any = [&](auto... states) {
    const std::vector<ReplicaId>& all = replicas_of(id);
    return std::any_of(all.begin(), all.end(), [&](ReplicaId each) {
      return ((replica(each)->state == states) || ...);
    });
  };
  if (any(ReplicaPhase::kServing)) {
    return "an instance served, and the policy gave it no place there";
  }
  if (any(ReplicaPhase::kLoading, ReplicaPhase::kStarting)) {
    return "an instance was on its way when the run ended";
  }
  if (any(ReplicaPhase::kWaiting)) {
    return "an instance waited for pages of its GPUs";
  }
  const auto empty = std::count_if(gpus_.begin(), gpus_.end(), [&](const Gpu& gpu) {
    return gpu.up && gpu.replicas.empty() && fits(*this, id, gpu.id);
  });
  return "the policy had started no instance of it, with " + std::to_string(empty) +
         " empty GPUs that hold one";
}

/// Whatever is still waiting will never be served.
void World::give_up(RunEnd::Kind kind) {
  end_ = {.kind = kind, .at = now_};
  std::map<ModelId, Unserved> unserved;
  for (const LiveRequest& request : requests_) {
    if (request.live) {
      Unserved& of =
          unserved.emplace(request.model, Unserved{.first = request.number}).first->second;
      if (++of.requests == 1 || request.number < of.first) {
        of.model = request.model;
        of.first = request.number;
        of.why = why_unserved(request);
      }
    }
  }
  for (auto& [model, of] : unserved) {
    end_.unserved.push_back(std::move(of));
  }
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i].live) {
      ++counts_.unserved;
      end_request(LiveId(i), RequestEnd::kUnserved);
    }
  }
  if (options_.sample_period > Duration{}) {
    observer_.sampled(*this, now_);
  }
  for (const std::unique_ptr<Replica>& replica : replicas_) {
    if (replica && replica->engine) {
      counts_.tokens += replica->engine->tokens_done();
    }
  }
}

}  // namespace heddle::sim
