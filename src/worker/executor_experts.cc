#include <algorithm>
#include <string>
#include <utility>

#include "store/expert_parts.h"
#include "worker/device_executor.h"

namespace heddle::worker {

/// Slots lie behind what of the image the device has all of; experts come from the host's pages,
/// which stay what they are while the model is open.
Result<void> DeviceExecutor::place_experts(const core::OpenModel& command,
                                           const Described& model,
                                           std::span<const PageId> source,
                                           OpenedModel& opened) {
  if (model.spec.experts.slots == 0) {
    return {};
  }
  const std::size_t page_bytes = device_.properties().page_bytes;
  const store::PartPages part = store::part_pages(model.spec, model.layout, page_bytes);
  if (part.resident + part.slots != std::ssize(opened.weights) ||
      source.size() * page_bytes < model.layout.bytes) {
    return Error{Code::kFailedPrecondition,
                 "open model " + std::to_string(command.model.value()) + " with " +
                     std::to_string(opened.weights.size()) + " pages: it has " +
                     std::to_string(part.resident) + " and experts that take turns on " +
                     std::to_string(part.slots)};
  }
  engine::ExpertSlots::Memory memory{.page_bytes = page_bytes, .bandwidth = load_bandwidth_};
  for (const PageId page : source) {
    memory.image.push_back(device_.host_page_address(page));
  }
  const std::span<const PageId> slots =
      std::span(opened.weights).last(static_cast<std::size_t>(part.slots));
  for (const PageId page : slots) {
    memory.slots.push_back(device_.page_address(page));
  }
  memory.base = model.window->base() + static_cast<std::size_t>(part.resident) * page_bytes;
  mapper_->drop_kept(slots);  // They are about to be written.
  opened.experts =
      std::make_unique<engine::ExpertSlots>(model.spec, model.layout, std::move(memory));
  return {};
}

void DeviceExecutor::count_experts(ModelId model, const engine::ExpertSlots& experts) {
  core::ExpertStatus& counts = expert_counts_[model];
  counts.hits += experts.counts().hits;
  counts.misses += experts.counts().misses;
  counts.fetched_bytes += experts.counts().fetched_bytes;
  counts.experts = experts.experts();
}

void DeviceExecutor::tell_experts(rpc::WorkerStats& stats) const {
  std::map<ModelId, core::ExpertStatus> all = expert_counts_;
  for (const auto& [model, opened] : opened_) {
    if (opened.experts != nullptr) {
      const engine::ExpertSlots& experts = *opened.experts;
      core::ExpertStatus& status = all[model];
      status.experts = experts.experts();
      status.resident = experts.resident();
      status.hits += experts.counts().hits;
      status.misses += experts.counts().misses;
      status.fetched_bytes += experts.counts().fetched_bytes;
    }
  }
  for (auto& [model, status] : all) {
    status.model = model;
    stats.experts.push_back(status);
  }
}

/// Of an image whose experts stay at the host nothing is copied before all of it is there: what is
/// in place may be used.
bool DeviceExecutor::may_copy(const Open& open, std::uint64_t ready) {
  return open.resident_bytes == open.image_bytes || ready >= open.image_bytes;
}

/// With the lock.
void DeviceExecutor::allow_copy(ModelId model, std::uint64_t bytes) {
  const auto found = open_.find(model);
  if (found != open_.end() && may_copy(found->second, bytes)) {
    mapper_->allow_copy(model, bytes);
  }
}

/// How much of an image there is, of which the mapper has copied so many bytes.
std::uint64_t DeviceExecutor::in_place(ModelId model, std::uint64_t copied) {
  const std::lock_guard lock(open_mutex_);
  const auto found = open_.find(model);
  return found != open_.end() && copied >= found->second.resident_bytes
             ? std::max(copied, found->second.image_bytes)
             : copied;
}

}  // namespace heddle::worker
