#include "sim/planes/support.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include "base/check.h"

namespace heddle::sim {

double Flags::number(const std::string& name, double standard) {
  asked_.insert(name);
  const auto found = values_.find(name);
  if (found == values_.end()) {
    return standard;
  }
  double value = 0;
  const std::string& text = found->second;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    problem_ = "flag " + name + ": \"" + text + "\" is not a number";
  }
  return value;
}

void Flags::reject(const std::string& name, const std::string& why) {
  problem_ = "flag " + name + ": " + why;
}

policy::Calendar calendar_of(Flags& flags) {
  const Duration window = from_seconds(flags.number("window", 300));
  const Duration day = from_seconds(flags.number("day", 86400));
  if (window < std::chrono::milliseconds(1) || day < window || day % window != Duration{}) {
    flags.reject("window", "want a day that is a whole number of windows, of 1 ms or more");
    return {};
  }
  return {.window = window, .windows_per_day = day / window};
}

std::string Flags::problem() const {
  for (const auto& [name, value] : values_) {
    if (!asked_.contains(name)) {
      std::string known;
      for (const std::string& each : asked_) {
        known += " " + each;
      }
      return "there is no flag \"" + name + "\"; there are:" + (known.empty() ? " none" : known);
    }
  }
  return problem_;
}

void RequestQueues::push(const World& world, LiveId id) {
  const LiveRequest& request = world.request(id);
  queues_[request.model].emplace(request.number, id);
  waiting_.insert(request.model);
}

std::size_t RequestQueues::size(ModelId model) const {
  const auto found = queues_.find(model);
  return found == queues_.end() ? 0 : found->second.size();
}

LiveId RequestQueues::front(ModelId model) const {
  return queues_.at(model).begin()->second;
}

LiveId RequestQueues::pop(ModelId model) {
  Queue& queue = queues_.at(model);
  HEDDLE_CHECK(!queue.empty());
  const LiveId id = queue.begin()->second;
  queue.erase(queue.begin());
  if (queue.empty()) {
    waiting_.erase(model);
  }
  return id;
}

void ServersByRank::put(const World& world, HostId host, std::int64_t rank) {
  erase(host);
  const std::vector<GpuId>& gpus = world.host(host).gpus;
  const Kind kind(gpus.empty() ? 0 : world.gpu(gpus[0]).pages, gpus.size());
  by_kind_[kind].emplace(rank, host);
  placed_.emplace(host, std::pair(kind, rank));
}

void ServersByRank::erase(HostId host) {
  const auto found = placed_.find(host);
  if (found != placed_.end()) {
    by_kind_.at(found->second.first).erase({found->second.second, host});
    placed_.erase(found);
  }
}

std::vector<HostId> ServersByRank::first(const World& world,
                                         ModelId model,
                                         std::size_t count) const {
  std::vector<std::pair<std::int64_t, HostId>> best;
  for (const auto& [kind, servers] : by_kind_) {
    if (servers.empty() || !fits(world, model, servers.begin()->second)) {
      continue;
    }
    auto each = servers.begin();
    for (std::size_t i = 0; i < count && each != servers.end(); ++i, ++each) {
      best.push_back(*each);
    }
  }
  std::sort(best.begin(), best.end());
  std::vector<HostId> hosts;
  for (std::size_t i = 0; i < std::min(count, best.size()); ++i) {
    hosts.push_back(best[i].second);
  }
  return hosts;
}

void RoomIndex::put(const World& world, HostId host, std::int64_t room) {
  if (world.host(host).up) {
    by_room_.put(world, host, -room);
  } else {
    by_room_.erase(host);
  }
}

void RoomIndex::update(const World& world, HostId host) {
  std::int64_t room = 0;
  for (const GpuId gpu : world.host(host).gpus) {
    room += world.free_pages(gpu);
  }
  put(world, host, room);
}

void RoomIndex::update(const World& world,
                       HostId host,
                       const std::function<bool(const Gpu&)>& open) {
  constexpr std::int64_t kMostPages = std::int64_t{1} << 40;  // More than any server has.
  std::int64_t room = 0;
  for (const GpuId gpu : world.host(host).gpus) {
    room += open(world.gpu(gpu)) ? kMostPages + world.free_pages(gpu) : 0;
  }
  put(world, host, room);
}

std::vector<HostId> RoomIndex::near(const World& world, ModelId model, std::size_t count) const {
  std::vector<HostId> hosts = most(world, model, count);
  for (const ReplicaId id : world.replicas_of(model)) {
    hosts.push_back(world.gpu(world.replica(id)->gpus[0]).host);
  }
  std::sort(hosts.begin(), hosts.end());
  hosts.erase(std::unique(hosts.begin(), hosts.end()), hosts.end());
  return hosts;
}

std::vector<HostId> RoomIndex::most(const World& world, ModelId model, std::size_t count) const {
  return by_room_.first(world, model, count);
}

std::optional<ReplicaId> least_loaded(const World& world, ModelId model, std::int64_t limit) {
  std::optional<ReplicaId> best;
  std::size_t least = static_cast<std::size_t>(limit);
  for (const ReplicaId id : world.replicas_of(model)) {
    const Replica* replica = world.replica(id);
    if (replica->serves() && replica->load() < least) {
      least = replica->load();
      best = id;
    }
  }
  return best;
}

void dispatch_waiting(const World& world,
                      Actions& actions,
                      RequestQueues& queues,
                      ModelId model,
                      std::int64_t limit) {
  while (!queues.empty(model)) {
    const std::optional<ReplicaId> replica = least_loaded(world, model, limit);
    if (!replica) {
      return;
    }
    actions.dispatch(queues.pop(model), *replica, Reason::kRunning);
  }
}

std::int64_t count_replicas(const World& world,
                            ModelId model,
                            std::initializer_list<ReplicaPhase> states) {
  std::int64_t count = 0;
  for (const ReplicaId id : world.replicas_of(model)) {
    count += std::find(states.begin(), states.end(), world.replica(id)->state) != states.end();
  }
  return count;
}

void LoadMeter::change(Instant now, ModelId model, std::int64_t by) {
  PerModel& each = models_[model.value()];
  each.integral = integral(now, model);
  each.since = now;
  each.load += by;
}

double LoadMeter::integral(Instant now, ModelId model) const {
  const PerModel& each = models_[model.value()];
  return each.integral +
         static_cast<double>(each.load) * static_cast<double>((now - each.since).count());
}

std::optional<std::vector<GpuId>> first_group(const World& world,
                                              std::int64_t tp,
                                              const std::function<bool(const Gpu&)>& fits) {
  for (const Host& host : world.hosts()) {
    std::vector<GpuId> group;
    for (const GpuId id : host.gpus) {
      const Gpu& gpu = world.gpu(id);
      if (gpu.up && fits(gpu)) {
        group.push_back(id);
      }
      if (static_cast<std::int64_t>(group.size()) == tp) {
        return group;
      }
    }
  }
  return std::nullopt;
}

std::int64_t unpromised_pages(const World& world, GpuId gpu) {
  std::int64_t left = world.gpu(gpu).pages;
  for (const ReplicaId id : world.gpu(gpu).replicas) {
    const Replica& replica = *world.replica(id);
    for (const Stage& stage : replica.stages) {
      const bool here =
          std::find(stage.spec.gpus.begin(), stage.spec.gpus.end(), gpu) != stage.spec.gpus.end();
      left -= here ? stage.weight_pages : 0;
    }
    const std::int64_t kv = world.memory().reserved(replica.kv, ledger::device_pool(gpu));
    left -= world.overhead_pages(replica.model) + std::max(kv, replica.kv_limit);
  }
  return left;
}

std::int64_t start_pages(const World& world, const Replica& replica) {
  return replica.stages[0].weight_pages + world.overhead_pages(replica.model) +
         (replica.spec.kv_kept ? replica.kv_limit : 0);
}

void evict_when_idle(const World& world, Actions& actions, ReplicaId id, Duration keep_alive) {
  const Replica* replica = world.replica(id);
  if (replica == nullptr || !replica->serves() || replica->load() > 0) {
    return;
  }
  const Instant due = replica->used + keep_alive;
  if (world.now() >= due) {
    actions.evict(id, Reason::kIdle, std::nullopt);
  } else {
    actions.timer(due, id.value());
  }
}

StartSpec whole(const World& world, ModelId model, std::vector<GpuId> gpus) {
  const bool cached = world.cached(world.gpu(gpus[0]).host, model);
  return {.model = model,
          .stages = {{.gpus = std::move(gpus)}},
          .source = cached ? WeightSource::kHost : WeightSource::kRemote,
          .cache_image = !cached};
}

namespace {

/// Saving is that much faster than restoring: not published, assumed.
constexpr double kSaveSpeed = 1.2;

/// The GPUs of one server to which the least is assigned; none where it fits on no server.
std::vector<GpuId> least_assigned(const World& world,
                                  ModelId model,
                                  const std::vector<std::int64_t>& assigned) {
  const auto tp = static_cast<std::size_t>(world.model(model).tp);
  std::int64_t least = INT64_MAX;
  std::vector<GpuId> chosen;
  for (const Host& host : world.hosts()) {
    const std::int64_t usable =
        host.gpus.empty() ? 0 : world.gpu(host.gpus[0]).pages * (100 - kEngineMarginPercent) / 100;
    if (usable <= world.weight_pages(model) + world.overhead_pages(model)) {
      continue;  // It could never run there.
    }
    std::vector<GpuId> gpus = host.gpus;
    std::sort(gpus.begin(), gpus.end(), [&](GpuId a, GpuId b) {
      return std::pair(assigned[a.value()], a) < std::pair(assigned[b.value()], b);
    });
    if (gpus.size() >= tp && assigned[gpus[tp - 1].value()] < least) {
      least = assigned[gpus[tp - 1].value()];
      gpus.resize(tp);
      chosen = gpus;
    }
  }
  return chosen;
}

}  // namespace

std::vector<EnginePlace> place_engines(const World& world,
                                       const std::vector<ModelId>& models,
                                       double kv_bytes) {
  std::vector<std::int64_t> assigned(world.gpus().size(), 0);
  std::vector<EnginePlace> places;
  for (const ModelId model : models) {
    const ModelSpec& spec = world.model(model);
    EnginePlace& place = places.emplace_back();
    const std::int64_t fixed = world.weight_pages(model) + world.overhead_pages(model);
    place.pages = fixed + world.pages(kv_bytes / static_cast<double>(spec.tp));
    place.gpus = least_assigned(world, model, assigned);
    if (!place.gpus.empty()) {
      const StartupProfile& costs = world.host_spec(place.gpus[0]).startup;
      const double in =
          costs.swap_fixed + costs.swap_per_byte * static_cast<double>(spec.weight_bytes());
      place.swap_in = from_seconds(in);
      place.swap_out = from_seconds(in / kSaveSpeed);
      // What the margin leaves is the most that an engine can have been given.
      const std::int64_t pages = world.gpu(place.gpus[0]).pages;
      place.pages = std::min(place.pages, pages - pages * kEngineMarginPercent / 100);
    }
    place.kv_pages = place.pages - fixed;
    for (const GpuId gpu : place.gpus) {
      assigned[gpu.value()] += place.pages;
    }
  }
  return places;
}

StartSpec resume(const World& world, ModelId model, const EnginePlace& place) {
  const StartupProfile& costs = world.host_spec(place.gpus[0]).startup;
  StartSpec spec = whole(world, model, place.gpus);
  spec.kv_limit = place.kv_pages;
  spec.kv_kept = true;
  if (spec.source == WeightSource::kHost) {
    spec.source = WeightSource::kNothing;  // Part of what a swap takes.
    spec.after = place.swap_in;
  } else {
    spec.before = from_seconds(costs.container + costs.context + costs.library);
    spec.after = from_seconds(costs.engine);
  }
  return spec;
}

void restore(const World& world, Actions& actions, std::span<const StartSpec> placed) {
  for (const StartSpec& spec : placed) {
    const std::vector<GpuId>& gpus = spec.stages[0].gpus;
    const auto& replicas = world.replicas_of(spec.model);
    const bool there = std::any_of(replicas.begin(), replicas.end(), [&](ReplicaId id) {
      return world.replica(id)->gpus == gpus;
    });
    const bool up =
        std::all_of(gpus.begin(), gpus.end(), [&](GpuId gpu) { return world.gpu(gpu).up; });
    if (!there && up) {
      StartSpec again = spec;
      again.source = whole(world, spec.model, gpus).source;
      actions.start(again, Reason::kFault);
    }
  }
}

void serve_in_place(const Notice& notice,
                    const World& world,
                    Actions& actions,
                    RequestQueues& queues,
                    std::span<const StartSpec> placed) {
  switch (notice.kind) {
    case NoticeKind::kArrival:
      if (std::none_of(placed.begin(), placed.end(), [&](const StartSpec& spec) {
            return spec.model == notice.model;
          })) {
        return actions.reject(notice.request, Reason::kStatic);
      }
      queues.push(world, notice.request);
      break;
    case NoticeKind::kGone:
    case NoticeKind::kGpuUp:
      return restore(world, actions, placed);
    case NoticeKind::kFinished:
    case NoticeKind::kServing:
      break;
    default:
      return;
  }
  dispatch_waiting(
      world, actions, queues, notice.model, 4 * world.model(notice.model).max_sequences);
}

std::vector<std::vector<GpuId>> place_by_memory(const World& world,
                                                const std::vector<std::int64_t>& kv_pages) {
  const std::size_t count = world.models().size();
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const std::int64_t left = world.weight_pages(ModelId(a));
    const std::int64_t right = world.weight_pages(ModelId(b));
    return left != right ? left > right : a < b;
  });
  std::vector<std::int64_t> left;
  for (const Gpu& gpu : world.gpus()) {
    left.push_back(gpu.up ? gpu.pages : 0);
  }
  std::vector<std::vector<GpuId>> placed(count);
  for (const std::size_t index : order) {
    const ModelId model(index);
    const std::int64_t need =
        world.weight_pages(model) + world.overhead_pages(model) + kv_pages[index];
    const auto tp = static_cast<std::size_t>(world.model(model).tp);
    std::int64_t best = need - 1;
    for (const Host& host : world.hosts()) {
      std::vector<GpuId> gpus = host.gpus;
      std::sort(gpus.begin(), gpus.end(), [&](GpuId a, GpuId b) {
        const std::int64_t more = left[a.value()] - left[b.value()];
        return more != 0 ? more > 0 : a < b;
      });
      if (gpus.size() >= tp && left[gpus[tp - 1].value()] > best) {
        best = left[gpus[tp - 1].value()];
        placed[index].assign(gpus.begin(), gpus.begin() + static_cast<std::ptrdiff_t>(tp));
      }
    }
    for (const GpuId gpu : placed[index]) {
      left[gpu.value()] -= need;
    }
  }
  return placed;
}

}  // namespace heddle::sim
