#include "sim/planes/hydraserve.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "sim/planes/cold_workers.h"

namespace heddle::sim {
namespace {

using namespace std::chrono_literals;

/// Requests that a worker runs at once.
constexpr std::int64_t kWorkerBatch = 8;
/// Arrivals of this long predict the next ones.
constexpr Duration kWindow = 10s;
/// A start that no server could take is tried again after this.
constexpr Duration kRetry = 1s;
constexpr std::uint64_t kRetryTag = UINT64_MAX;

Duration until_loaded(const StartupProfile& costs) {
  return from_seconds(costs.container + costs.context + costs.library);
}

}  // namespace

HydraServePlane::HydraServePlane(Flags& flags)
    : keep_alive_(from_seconds(flags.number("keep_alive", 30))),
      cache_(flags.on("cache", false)),
      edf_(flags.on("edf", false)),
      most_stages_(static_cast<std::int64_t>(flags.number("stages", 4))),
      merge_(flags.on("merge", true)),
      paper_(flags.on("paper", false)) {}

/// Requests that a replica takes: eight for each of its workers.
std::int64_t HydraServePlane::limit(const World& world, ReplicaId id) const {
  return kWorkerBatch * static_cast<std::int64_t>(world.replica(id)->stages.size());
}

void HydraServePlane::dispatch(const World& world, Actions& actions, ModelId model) {
  while (!queues_.empty(model)) {
    std::optional<ReplicaId> best;
    std::size_t least = SIZE_MAX;
    for (const ReplicaId id : world.replicas_of(model)) {
      const Replica* replica = world.replica(id);
      if (replica->serves() && replica->load() < least &&
          static_cast<std::int64_t>(replica->load()) < limit(world, id)) {
        least = replica->load();
        best = id;
      }
    }
    if (!best) {
      return;
    }
    actions.dispatch(queues_.pop(model), *best, Reason::kRunning);
  }
}

/// What the model's starts and steps take; the performance model stands for measurements.
policy::StartModel HydraServePlane::model_view(const World& world,
                                               ModelId model,
                                               std::int64_t workers) const {
  const ModelSpec& spec = world.model(model);
  const LiveRequest& oldest = world.request(queues_.front(model));
  const StepModel& step = world.step_model(model, HostId(0));
  const StartupProfile& costs = world.host_spec(HostId(0)).startup;
  policy::StartModel view{.bytes = spec.weight_bytes(),
                          .kv_per_token = spec.kv_bytes(),
                          .prompt_tokens = oldest.prompt,
                          .expected_tokens = std::max<std::int64_t>(1, oldest.generate),
                          .full_needed = workers};
  view.times = {
      .runtime = until_loaded(costs),
      .container = from_seconds(costs.container),
      .context = from_seconds(costs.context),
      .libraries = from_seconds(costs.library),
      .hop = from_seconds(costs.hop),
      .prefill = Duration(step.base_ps(oldest.prompt, 1) / 1000),
      .decode = Duration((step.base_ps(1, 1) + step.decode_ps() + step.fixed_ps()) / 1000)};
  for (std::int64_t s = 2; s <= policy::kMostStages; ++s) {
    view.times.group.at(static_cast<std::size_t>(s)) =
        s > most_stages_ ? std::chrono::hours(1)
                         : from_seconds(costs.group * static_cast<double>(s) / 4);
  }
  return view;
}

bool HydraServePlane::start_group(const World& world,
                                  Actions& actions,
                                  ModelId model,
                                  std::int64_t workers) {
  std::vector<policy::StartHost> hosts;
  std::vector<policy::StartDevice> devices;
  for (const Host& host : world.hosts()) {
    nics_[host.id.value()].advance(world.now());
    hosts.push_back({.id = host.id,
                     .nic = &nics_[host.id.value()],
                     .pcie = world.host_spec(host.id).links.pcie});
    for (const GpuId id : host.gpus) {
      const Gpu& gpu = world.gpu(id);
      const std::int64_t free = unpromised_pages(world, id);
      if (gpu.up && host.up && free > 0) {
        devices.push_back({.id = id,
                           .host = host.id,
                           .free_bytes = free * world.page_bytes(),
                           .shared = !gpu.replicas.empty()});
      }
    }
  }
  const ModelSpec& spec = world.model(model);
  const Duration waited = world.now() - world.request(queues_.front(model)).arrival;
  const auto plan = policy::choose_cold_start(
      model_view(world, model, workers),
      {.now = world.now(),
       .ttft_left = std::max(Duration(1), spec.slo_ttft - waited),
       .tpot = spec.slo_tpot,
       .hosts = hosts,
       .devices = devices},
      {.rule = paper_ ? policy::StartRule::kPaper : policy::StartRule::kCorrected});
  if (!plan) {
    wanting_.insert(model);
    if (!std::exchange(retry_set_, true)) {
      actions.timer(world.now() + kRetry, kRetryTag);
    }
    return false;
  }
  start_planned(world, actions, model, *plan);
  return true;
}

void HydraServePlane::start_planned(const World& world,
                                    Actions& actions,
                                    ModelId model,
                                    const policy::StartPlan& plan) {
  const StartupProfile& costs = world.host_spec(plan.stages[0].device).startup;
  StartSpec spec{.model = model, .source = WeightSource::kRemote};
  bool cached = cache_;
  spec.kv_limit = INT64_MAX;
  for (const policy::StartStage& stage : plan.stages) {
    spec.stages.push_back({.gpus = {stage.device},
                           .weights = 1.0 / static_cast<double>(plan.stages.size()),
                           .reserve_all = stage.full});
    // What is reserved counts an overhead for the whole model, not for each of its stages.
    const double part = stage.full ? 1 : spec.stages.back().weights;
    const std::int64_t overhead = stage.full ? world.overhead_pages(model) : 0;
    spec.kv_limit =
        std::min(spec.kv_limit,
                 stage.reserve_bytes / world.page_bytes() - overhead -
                     world.pages(part * static_cast<double>(world.model(model).weight_bytes())));
    cached = cached && world.cached(stage.host, model);
    spec.beside = std::max(spec.beside, until_loaded(world.host_spec(stage.host).startup));
  }
  const double least =
      static_cast<double>(policy::StartOptions{}.kv_share) /
      static_cast<double>(plan.stages.size());  // Algorithm 1 as printed forgets it.
  spec.kv_limit = std::max(spec.kv_limit, world.pages(least) - world.overhead_pages(model));
  spec.source = cached ? WeightSource::kHost : WeightSource::kRemote;
  spec.cache_image = cache_ && plan.stages.size() == 1;
  spec.after = from_seconds(costs.attach) +
               (plan.stages.size() > 1
                    ? from_seconds(costs.group * static_cast<double>(plan.stages.size()) / 4)
                    : Duration{});
  spec.deadline = plan.stages[0].fetch_deadline;
  const ReplicaId id = actions.start(spec, plan.stages.size() > 1 ? Reason::kGroup : Reason::kMiss);
  if (cached) {
    return;
  }
  for (std::size_t i = 0; i < plan.stages.size(); ++i) {
    const policy::StartStage& stage = plan.stages[i];
    nics_[stage.host.value()].start({.id = fetch_id(id, i),
                                     .bytes = std::max<std::int64_t>(1, stage.fetch_bytes),
                                     .deadline = stage.fetch_deadline});
    fetches_[id].push_back(stage.host);
  }
}

void HydraServePlane::end_fetches(ReplicaId id) {
  const auto found = fetches_.find(id);
  if (found != fetches_.end()) {
    for (std::size_t i = 0; i < found->second.size(); ++i) {
      nics_[found->second[i].value()].end(fetch_id(id, i));
    }
    fetches_.erase(found);
  }
}

/// Starts what queue and expected arrivals ask for beyond what serves or comes.
void HydraServePlane::scale(const World& world, Actions& actions, ModelId model) {
  wanting_.erase(model);
  if (queues_.empty(model)) {
    return;
  }
  std::int64_t coming = 0;
  for (const ReplicaId id : world.replicas_of(model)) {
    const Replica* replica = world.replica(id);
    coming += replica->state == ReplicaPhase::kWaiting || replica->state == ReplicaPhase::kLoading
                  ? static_cast<std::int64_t>(replica->stages.size())
                  : 0;
  }
  const WorkerPlan plan = choose_workers(
      {.queued = static_cast<std::int64_t>(queues_.size(model)),
       .predicted = static_cast<std::int64_t>(arrivals_[model.value()].sum(world.now())),
       .batch = kWorkerBatch,
       .workers = coming},
      WorkerVariant::kArtifact);
  for (std::int64_t group = 0; group < plan.groups; ++group) {
    const std::int64_t each =
        std::min(most_stages_, (plan.workers + plan.groups - 1) / plan.groups);
    if (!start_group(world, actions, model, each)) {
      return;
    }
  }
}

/// After the first token: the group becomes what is wanted of it.
void HydraServePlane::consolidate(const World& world, Actions& actions, ReplicaId id) {
  const Replica* replica = world.replica(id);
  if (!merge_ || replica == nullptr || replica->stages.size() < 2 || replica->merging > 0) {
    return;
  }
  const ModelSpec& spec = world.model(replica->model);
  std::vector<policy::GroupMember> members;
  for (const Stage& stage : replica->stages) {
    members.push_back({.device = stage.spec.gpus[0], .full = stage.spec.reserve_all});
  }
  const auto load = static_cast<std::int64_t>(replica->load() + queues_.size(replica->model));
  const policy::Consolidation choice = policy::choose_consolidation(
      {.weights = spec.weight_bytes(),
       .kv_per_token = spec.kv_bytes(),
       .wanted = std::max<std::int64_t>(1, (load + kWorkerBatch - 1) / kWorkerBatch),
       .members = members});
  if (choice.kind == policy::ConsolidationKind::kStay) {
    return;
  }
  for (std::size_t i = 0; i < replica->stages.size(); ++i) {
    if (replica->stages[i].spec.gpus[0] == choice.survivors[0].device &&
        replica->stages[i].spec.reserve_all) {
      return actions.merge(
          id, i, choice.kind == policy::ConsolidationKind::kScaleUp, Reason::kConsolidate);
    }
  }
}

void HydraServePlane::retry(const World& world, Actions& actions) {
  const std::set<ModelId> wanting = wanting_;
  for (const ModelId model : wanting) {
    scale(world, actions, model);
  }
}

/// Compares what the last windows made expect with what came, when windows have ended.
void HydraServePlane::judge_forecasts(Instant now) {
  while (now >= window_end_ && !counts_.empty()) {
    for (auto each = counts_.begin(); each != counts_.end();) {
      auto& [here, before] = each->second;
      record_.judge(static_cast<double>(before), static_cast<double>(here));
      before = std::exchange(here, 0);
      each = before == 0 ? counts_.erase(each) : std::next(each);
    }
    window_end_ += kWindow;
  }
  while (now >= window_end_) {
    window_end_ += kWindow;
  }
}

void HydraServePlane::decide(const Notice& notice, const World& world, Actions& actions) {
  switch (notice.kind) {
    case NoticeKind::kStart:
      for (const Host& host : world.hosts()) {
        nics_.emplace_back(
            static_cast<std::int64_t>(world.host_spec(host.id).links.nic),
            edf_ ? policy::NicRule::kEarliestDeadline : policy::NicRule::kEqualShare);
      }
      arrivals_.assign(world.models().size(), policy::SlidingSum(kWindow, world.now()));
      return;
    case NoticeKind::kArrival:
      judge_forecasts(world.now());
      counts_[notice.model].first += notice.tag == 0 ? 1 : 0;
      arrivals_[notice.model.value()].add(world.now(), notice.tag == 0 ? 1 : 0);
      queues_.push(world, notice.request);
      break;
    case NoticeKind::kTimer:
      if (notice.tag == kRetryTag) {
        retry_set_ = false;
        return retry(world, actions);
      }
      return evict_when_idle(world, actions, ReplicaId(notice.tag), keep_alive_);
    case NoticeKind::kServing:
      end_fetches(notice.replica);
      dispatch(world, actions, notice.model);
      return evict_when_idle(world, actions, notice.replica, keep_alive_);
    case NoticeKind::kFirstToken:
      return consolidate(world, actions, notice.replica);
    case NoticeKind::kFinished:
      dispatch(world, actions, notice.model);
      return evict_when_idle(world, actions, notice.replica, keep_alive_);
    case NoticeKind::kGone:
      end_fetches(notice.replica);
      retry(world, actions);
      break;
    case NoticeKind::kMerged:
      actions.set_kv_limit(notice.replica,
                           world.pages(static_cast<double>(policy::StartOptions{}.kv_share)) -
                               world.overhead_pages(notice.model),
                           Reason::kConsolidate);
      retry(world, actions);
      break;
    default:
      return;
  }
  dispatch(world, actions, notice.model);
  scale(world, actions, notice.model);
}

}  // namespace heddle::sim
