#include "sim/world.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "base/check.h"
#include "base/rng.h"

namespace heddle::sim {
namespace {

constexpr std::array<std::string_view, 23> kReasonNames{
    "static",    "running",  "hit",   "attach", "miss",    "scale_up",    "scale_down", "idle",
    "make_room", "forecast", "burst", "grace",  "group",   "consolidate", "turn",       "pressure",
    "balance",   "on_time",  "late",  "swap",   "offload", "fault",       "too_large"};

/// What StepModel depends on, for telling equal models apart from others.
std::array<std::int64_t, 13> step_key(const ModelSpec& model) {
  const ModelShape& shape = model.shape;
  const auto nanos = [](double seconds) { return static_cast<std::int64_t>(seconds * 1e12); };
  return {shape.hidden,
          shape.intermediate,
          shape.layers,
          shape.heads,
          shape.kv_heads,
          shape.head_dim,
          shape.vocab,
          shape.tied_embeddings ? 1 : 0,
          model.tp,
          nanos(model.engine.fixed),
          nanos(model.engine.launch_per_layer),
          nanos(model.engine.cpu_fixed),
          nanos(model.engine.cpu_per_sequence)};
}

}  // namespace

std::string_view name(Reason reason) {
  if (reason == Reason::kQuota) {
    return "quota";
  }
  return reason == Reason::kCheapest ? "cheapest"
                                     : kReasonNames.at(static_cast<std::size_t>(reason));
}

World::World(const ClusterSpec& cluster,
             std::vector<ModelSpec> models,
             ControlPlane& plane,
             Observer& observer,
             const WorldOptions& options)
    : cluster_(cluster),
      models_(std::move(models)),
      plane_(plane),
      observer_(observer),
      options_(options),
      sharing_(plane.compute_sharing()),
      by_model_(models_.size()) {
  std::map<std::array<std::int64_t, 13>, std::size_t> shapes;
  for (const ModelSpec& model : models_) {
    shape_of_.push_back(shapes.emplace(step_key(model), shapes.size()).first->second);
  }
  build(cluster);
}

World::~World() = default;

void World::build(const ClusterSpec& cluster) {
  std::map<std::string, std::size_t> kinds;
  for (const HostSpec& spec : cluster.hosts) {
    Host host{.id = HostId(hosts_.size())};
    gpu_kind_.push_back(kinds.emplace(spec.gpu.name, kinds.size()).first->second);
    HostLinks& links = links_.emplace_back(plane_.link_rule());
    host.nic = links.add_link(spec.links.nic);
    host.memory = links.add_link(spec.links.host_memory);
    host.nvlink = links.add_link(spec.links.nvlink);
    host.disk = links.add_link(spec.links.disk);
    memory_.add_pool(host_pool(host.id), spec.cache_bytes / cluster.page_bytes);
    for (std::int64_t i = 0; i < spec.gpus; ++i) {
      Gpu gpu{.id = GpuId(gpus_.size()), .host = host.id};
      gpu.pages = static_cast<std::int64_t>(static_cast<double>(spec.gpu.memory) * spec.usable) /
                  cluster.page_bytes;
      gpu.pcie = links.add_link(spec.links.pcie);
      memory_.add_pool(ledger::device_pool(gpu.id), gpu.pages);
      host.gpus.push_back(gpu.id);
      gpus_.push_back(std::move(gpu));
    }
    hosts_.push_back(std::move(host));
  }
  link_stamps_.resize(hosts_.size());
  waiting_for_pages_.resize(gpus_.size());
  starved_.resize(gpus_.size());
}

void World::run(RequestSource& source) {
  fill_host_memory();
  if (options_.warmup > Duration{}) {
    queue_.push(now_ + options_.warmup, {.kind = EventKind::kCounting});
  }
  notify({.kind = NoticeKind::kStart});
  deliver_notices();
  if (options_.sample_period > Duration{}) {
    queue_.push(now_, {.kind = EventKind::kSample});
  }
  more_arrivals_ = source.next(upcoming_);
  if (more_arrivals_) {
    queue_.push(upcoming_.arrival, {.kind = EventKind::kArrival});
  }
  RunEnd::Kind kind = RunEnd::Kind::kDone;
  while (!queue_.empty() && (more_arrivals_ || live_ > 0) && kind == RunEnd::Kind::kDone) {
    const auto entry = queue_.pop();
    if (!more_arrivals_ && entry.at > last_arrival_ + options_.patience) {
      kind = loads_in_vain() ? RunEnd::Kind::kGoesRoundInRings : RunEnd::Kind::kOutOfPatience;
      break;
    }
    now_ = entry.at;
    ++counts_.events;
    ++since_progress_;
    perform(entry.event, source);
    deliver_notices();
    if (options_.check_every_event) {
      check_invariants();
    }
    if (options_.stop && options_.stop()) {
      end_ = {.kind = RunEnd::Kind::kStopped, .at = now_};
      return;
    }
    kind = goes_round_in_rings() ? RunEnd::Kind::kGoesRoundInRings
           : nothing_happens()   ? RunEnd::Kind::kNothingHappens
                                 : kind;
  }
  give_up(kind == RunEnd::Kind::kDone && live_ > 0 ? RunEnd::Kind::kNothingHappens : kind);
}

void World::perform(const Event& event, RequestSource& source) {
  switch (event.kind) {
    case EventKind::kArrival:
      return arrive(source);
    case EventKind::kEngine:
      return engine_event(ReplicaId(event.index), event.stamp);
    case EventKind::kLinks:
      return links_event(HostId(event.index), event.stamp);
    case EventKind::kPhase: {
      const Replica* replica = find(ReplicaId(event.index));
      return replica != nullptr && replica->stamp == event.stamp
                 ? phase_step_done(ReplicaId(event.index))
                 : void();
    }
    case EventKind::kTimer:
      return notify({.kind = NoticeKind::kTimer, .tag = event.stamp});
    case EventKind::kFault:
      --planned_repairs_;
      return fault(faults_[event.index]);
    case EventKind::kRepair:
      --planned_repairs_;
      return mend(faults_[event.index]);
    case EventKind::kSample:
      return sample();
    case EventKind::kUnmapped:
      return unmapped(ReplicaId(event.index));
    case EventKind::kCounting:
      return observer_.counting(*this);
  }
}

void World::sample() {
  observer_.sampled(*this, now_);
  queue_.push(now_ + options_.sample_period, {.kind = EventKind::kSample});
}

void World::deliver_notices() {
  for (std::size_t i = 0; i < notices_.size() && !goes_round_in_rings(); ++i) {
    const Notice notice = notices_[i];
    ++since_progress_;
    plane_.decide(notice, *this, *this);
    if (notice.kind == NoticeKind::kFinished) {
      free_requests_.push_back(static_cast<std::uint32_t>(notice.request.value()));
    }
  }
  notices_.clear();
}

void World::arrive(RequestSource& source) {
  LiveId id(requests_.size());
  if (free_requests_.empty()) {
    requests_.emplace_back();
  } else {
    id = LiveId(free_requests_.back());
    free_requests_.pop_back();
  }
  const TraceRow row = upcoming_;
  const ModelSpec& spec = model(row.model);
  LiveRequest& request = requests_[id.value()];
  request = LiveRequest{.number = RequestId(static_cast<std::uint64_t>(counts_.arrived++)),
                        .model = row.model,
                        .arrival = row.arrival,
                        .prompt = std::max<std::int64_t>(1, row.input_tokens),
                        .generate = row.output_tokens,
                        .live = true};
  ++live_;
  last_arrival_ = row.arrival;
  token_at_ = now_;
  progressed();
  const auto& siblings = replicas_of(row.model);
  request.waited_for_start = std::none_of(
      siblings.begin(), siblings.end(), [this](ReplicaId each) { return replica(each)->serves(); });
  more_arrivals_ = source.next(upcoming_);
  if (more_arrivals_) {
    HEDDLE_CHECK(upcoming_.arrival >= row.arrival);
    queue_.push(upcoming_.arrival, {.kind = EventKind::kArrival});
  }
  if (spec.most_tokens > 0 && request.prompt + request.generate > spec.most_tokens) {
    return reject(id, Reason::kTooLarge);
  }
  notify({.kind = NoticeKind::kArrival, .request = id, .model = row.model});
}

void World::end_request(LiveId id, RequestEnd end) {
  LiveRequest& request = requests_[id.value()];
  HEDDLE_CHECK(request.live);
  request.live = false;
  --live_;
  mix(request.number.value() * 2 + (end == RequestEnd::kCompleted ? 1 : 0));
  mix(static_cast<std::uint64_t>(now_.time_since_epoch().count()));
  observer_.ended(*this, {.request = &request, .ended = now_, .end = end});
}

void World::mix(std::uint64_t value) {
  digest_ = Rng(digest_ ^ value).next();
}

void World::note(std::string_view verb,
                 Reason reason,
                 const Replica& replica,
                 std::optional<ModelId> other,
                 std::optional<RequestId> request) {
  mix((replica.id.value() << 16U) ^ (static_cast<std::uint64_t>(reason) << 8U) ^ verb.size());
  mix(static_cast<std::uint64_t>(now_.time_since_epoch().count()));
  observer_.acted(*this,
                  {.at = now_,
                   .verb = verb,
                   .reason = reason,
                   .model = replica.model,
                   .replica = replica.id,
                   .gpu = replica.gpus.empty() ? std::nullopt : std::optional(replica.gpus[0]),
                   .other = other,
                   .request = request});
}

void World::reject(LiveId id, Reason reason) {
  const LiveRequest& request = requests_[id.value()];
  ++counts_.refused;
  mix(static_cast<std::uint64_t>(reason));
  observer_.acted(*this,
                  {.at = now_,
                   .verb = "reject",
                   .reason = reason,
                   .model = request.model,
                   .request = request.number});
  end_request(id, RequestEnd::kRefused);
  free_requests_.push_back(static_cast<std::uint32_t>(id.value()));
}

void World::timer(Instant at, std::uint64_t tag) {
  HEDDLE_CHECK(at >= now_);
  constexpr Duration kClock = std::chrono::minutes(1);
  planned_until_ = at >= now_ + kClock ? std::max(planned_until_, at) : planned_until_;
  queue_.push(at, {.kind = EventKind::kTimer, .stamp = tag});
}

const Replica* World::replica(ReplicaId id) const {
  return id.value() < replicas_.size() ? replicas_[id.value()].get() : nullptr;
}

Replica* World::find(ReplicaId id) {
  return id.value() < replicas_.size() ? replicas_[id.value()].get() : nullptr;
}

const std::vector<ReplicaId>& World::replicas_of(ModelId id) const {
  return by_model_[id.value()];
}

std::int64_t World::pages(double bytes) const {
  return static_cast<std::int64_t>(std::ceil(bytes / static_cast<double>(cluster_.page_bytes)));
}

std::int64_t World::weight_pages(ModelId id) const {
  return pages(static_cast<double>(model(id).weight_bytes()) / static_cast<double>(model(id).tp));
}

std::int64_t World::overhead_pages(ModelId id) const {
  return pages(static_cast<double>(model(id).overhead_bytes));
}

std::int64_t World::kv_pages(ModelId id, std::int64_t tokens) const {
  const std::int64_t block = EngineOptions{}.tokens_per_block;
  const std::int64_t blocks = (tokens + block - 1) / block;
  return pages(static_cast<double>(blocks * block * model(id).kv_bytes()) /
               static_cast<double>(model(id).tp));
}

const StepModel& World::step_model(ModelId id, HostId host) const {
  const auto key = std::pair(shape_of_[id.value()], gpu_kind_[host.value()]);
  const auto found = step_models_.find(key);
  if (found != step_models_.end()) {
    return found->second;
  }
  const ModelSpec& spec = model(id);
  return step_models_.emplace(key, StepModel(spec.shape, host_spec(host).gpu, spec.tp, spec.engine))
      .first->second;
}

bool fits(const World& world, ModelId model, GpuId gpu) {
  constexpr std::int64_t kLeastTokens = 512;
  return world.weight_pages(model) + world.overhead_pages(model) +
             world.kv_pages(model, kLeastTokens) <=
         world.gpu(gpu).pages;
}

bool fits(const World& world, ModelId model, HostId host) {
  const std::vector<GpuId>& gpus = world.host(host).gpus;
  return std::count_if(gpus.begin(), gpus.end(), [&](GpuId gpu) {
           return fits(world, model, gpu);
         }) >= world.model(model).tp;
}

double World::gpu_seconds() const {
  return gpu_seconds_ +
         static_cast<double>(gpus_used_) * static_cast<double>((now_ - gpus_since_).count()) * 1e-9;
}

void World::check_invariants() const {
  memory_.ledger().check_invariants();
  std::int64_t live = 0;
  for (const LiveRequest& request : requests_) {
    live += request.live ? 1 : 0;
  }
  HEDDLE_CHECK(live == live_);
  HEDDLE_CHECK(counts_.arrived == counts_.completed + counts_.refused + counts_.unserved + live_);
  for (const std::unique_ptr<Replica>& each : replicas_) {
    if (each == nullptr) {
      continue;
    }
    const bool resident = each->state != ReplicaPhase::kWaiting;
    HEDDLE_CHECK((each->weights != LeaseId(0)) == resident);
    for (const GpuId gpu : each->gpus) {
      HEDDLE_CHECK(gpus_[gpu.value()].up && gpus_[gpu.value()].replicas.contains(each->id));
    }
    if (each->engine) {
      each->engine->check_invariants();
      for (const Sequence& sequence : each->engine->running_sequences()) {
        const LiveRequest& request = requests_[sequence.id.value()];
        HEDDLE_CHECK(request.live && request.dispatched && request.replica == each->id);
      }
    }
  }
}

}  // namespace heddle::sim
