#include "base/check.h"
#include "sim/world.h"

namespace heddle::sim {

void World::inject(Instant at, Fault fault, std::uint64_t target, double factor) {
  queue_.push(at, {.kind = EventKind::kFault, .index = static_cast<std::uint32_t>(faults_.size())});
  faults_.push_back({.fault = fault, .target = target, .factor = factor});
}

void World::repair(Instant at, Fault fault, std::uint64_t target) {
  queue_.push(at,
              {.kind = EventKind::kRepair, .index = static_cast<std::uint32_t>(faults_.size())});
  faults_.push_back({.fault = fault, .target = target});
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

void World::set_link_factor(HostId host, LinkId link, double factor) {
  links_[host.value()].set_rate(now_, link, link_rate(host, link) * factor);
  schedule_links(host);
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
      return set_link_factor(HostId(planned.target), hosts_[planned.target].nic, planned.factor);
    case Fault::kPcie:
    case Fault::kRestore:
      return set_link_factor(gpus_[planned.target].host,
                             gpus_[planned.target].pcie,
                             planned.fault == Fault::kRestore ? 0 : planned.factor);
    case Fault::kWorker: {
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
      gpus_[planned.target].up = true;
      return notify({.kind = NoticeKind::kGpuUp, .gpu = GpuId(planned.target)});
    case Fault::kHost: {
      Host& host = hosts_[planned.target];
      host.up = true;
      for (const GpuId gpu : host.gpus) {
        gpus_[gpu.value()].up = true;
        notify({.kind = NoticeKind::kGpuUp, .gpu = gpu});
      }
      return;
    }
    case Fault::kNic:
      return set_link_factor(HostId(planned.target), hosts_[planned.target].nic, 1);
    case Fault::kPcie:
    case Fault::kRestore:
      return set_link_factor(gpus_[planned.target].host, gpus_[planned.target].pcie, 1);
    case Fault::kWorker:
      return;
  }
}

/// All that was on the GPU is gone at once: nothing is unmapped.
void World::fail_gpu(GpuId id) {
  Gpu& gpu = gpus_[id.value()];
  if (!gpu.up) {
    return;
  }
  gpu.up = false;
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
