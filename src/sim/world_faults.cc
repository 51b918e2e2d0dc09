#include <algorithm>

#include "base/check.h"
#include "sim/world.h"

namespace heddle::sim {

void World::inject(Instant at, Fault fault, std::uint64_t target, double factor) {
  ++planned_repairs_;
  queue_.push(at, {.kind = EventKind::kFault, .index = static_cast<std::uint32_t>(faults_.size())});
  faults_.push_back({.fault = fault, .target = target, .factor = factor});
}

void World::repair(Instant at, Fault fault, std::uint64_t target, double factor) {
  ++planned_repairs_;
  queue_.push(at,
              {.kind = EventKind::kRepair, .index = static_cast<std::uint32_t>(faults_.size())});
  faults_.push_back({.fault = fault, .target = target, .factor = factor});
}

/// What the link has when nothing is wrong [bytes/s].
double World::link_rate(HostId host, LinkId link) const {
  const Host& at = hosts_[host.value()];
  const LinkRates& rates = host_spec(host).links;
  return link == at.nic      ? rates.nic
         : link == at.memory ? rates.host_memory
         : link == at.nvlink ? rates.nvlink
         : link == at.disk   ? rates.disk
                             : rates.pcie;
}

/// A link gets slower by a factor, or the first of its faults with `factor` is mended (`begins`
/// false). Of several at once the worst counts.
void World::slow_link(HostId host, LinkId link, double factor, bool begins) {
  std::vector<double>& factors = slow_links_[{host, link}];
  if (begins) {
    factors.push_back(factor);
  } else if (const auto mended = std::find(factors.begin(), factors.end(), factor);
             mended != factors.end()) {
    factors.erase(mended);
  }
  const double worst =
      factors.empty() ? 1 : std::min(1.0, *std::min_element(factors.begin(), factors.end()));
  links_[host.value()].set_rate(now_, link, link_rate(host, link) * worst);
  schedule_links(host);
}

/// Begins or ends the slowness of a link that a fault is about.
void World::slow_link(const PlannedFault& planned, bool begins) {
  if (planned.fault == Fault::kNic) {
    return slow_link(HostId(planned.target), hosts_[planned.target].nic, planned.factor, begins);
  }
  const Gpu& gpu = gpus_[planned.target];
  slow_link(gpu.host, gpu.pcie, planned.fault == Fault::kRestore ? 0 : planned.factor, begins);
}

void World::fault(const PlannedFault& planned) {
  ++counts_.failures;
  mix(planned.target * 16 + static_cast<std::uint64_t>(planned.fault));
  switch (planned.fault) {
    case Fault::kGpu:
      return fail_gpu(GpuId(planned.target));
    case Fault::kHost: {
      Host& host = hosts_[planned.target];
      host.up = false;
      ++host.faults;
      for (const GpuId gpu : host.gpus) {
        fail_gpu(gpu);
      }
      for (const auto& [model, image] : host.cache) {
        memory_.release(now_, image.lease);
      }
      host.cache.clear();
      host.by_use.clear();
      return;
    }
    case Fault::kNic:
    case Fault::kPcie:
    case Fault::kRestore:
      return slow_link(planned, /*begins=*/true);
    case Fault::kWorker: {
      while (recall_guests(GpuId(planned.target), Reason::kFault)) {
      }
      const std::set<ReplicaId> users = gpus_[planned.target].replicas;
      for (const ReplicaId id : users) {
        if (at(id).engine) {
          evict(id, Reason::kFault, std::nullopt);
        }
      }
      return;
    }
  }
}

void World::mend(const PlannedFault& planned) {
  switch (planned.fault) {
    case Fault::kGpu:
      return mend_gpu(GpuId(planned.target));
    case Fault::kHost: {
      Host& host = hosts_[planned.target];
      host.up = --host.faults == 0;
      for (const GpuId gpu : host.gpus) {
        mend_gpu(gpu);
      }
      return;
    }
    case Fault::kNic:
    case Fault::kPcie:
    case Fault::kRestore:
      return slow_link(planned, /*begins=*/false);
    case Fault::kWorker:
      return;
  }
}

void World::mend_gpu(GpuId id) {
  Gpu& gpu = gpus_[id.value()];
  if (--gpu.faults == 0) {
    gpu.up = true;
    notify({.kind = NoticeKind::kGpuUp, .gpu = id});
  }
}

/// All that was on the GPU is gone at once: nothing is unmapped.
void World::fail_gpu(GpuId id) {
  Gpu& gpu = gpus_[id.value()];
  if (gpu.faults++ > 0) {
    return;  // It is down already.
  }
  gpu.up = false;
  while (recall_guests(id, Reason::kFault)) {
  }
  const std::set<ReplicaId> users = gpu.replicas;
  for (const ReplicaId user : users) {
    Replica& replica = at(user);
    note("lost", Reason::kFault, replica);
    requeue(replica, Reason::kFault);
    forget(replica);
  }
  notify({.kind = NoticeKind::kGpuDown, .gpu = id});
}

}  // namespace heddle::sim
