#include "gateway/model_queue.h"

namespace heddle::gateway {

/// Outlives the model where requests of it do.
struct QueueCounts {
  std::int64_t all = 0;
  std::map<std::string, std::int64_t, std::less<>> shares{};  ///< None is 0.
};

ModelQueue::Places& ModelQueue::Places::operator=(Places&& other) noexcept {
  if (this != &other) {
    give_back();
    counts_ = std::exchange(other.counts_, nullptr);
    share_ = std::move(other.share_);
    count_ = std::exchange(other.count_, 0);
  }
  return *this;
}

void ModelQueue::Places::give_back() {
  if (counts_ == nullptr) {
    return;
  }
  counts_->all -= count_;
  const auto found = counts_->shares.find(share_);
  if (found != counts_->shares.end() && (found->second -= count_) == 0) {
    counts_->shares.erase(found);
  }
  counts_.reset();
}

ModelQueue::ModelQueue() : counts_(std::make_shared<QueueCounts>()) {}

bool ModelQueue::has_room(std::int64_t limit, const std::string& share, std::int64_t count) const {
  const std::int64_t free = limit - size();
  return count <= free &&
         (share.empty() || size_of(share) + count <= kFreeTimes * (free - count + 1));
}

ModelQueue::Places ModelQueue::take(const std::string& share, std::int64_t count) {
  counts_->all += count;
  if (!share.empty() && count > 0) {
    counts_->shares[share] += count;
  }
  Places places;
  places.counts_ = counts_;
  places.share_ = share;
  places.count_ = count;
  return places;
}

std::int64_t ModelQueue::size() const {
  return counts_->all;
}

std::int64_t ModelQueue::size_of(const std::string& share) const {
  const auto found = counts_->shares.find(share);
  return found == counts_->shares.end() ? 0 : found->second;
}

}  // namespace heddle::gateway
