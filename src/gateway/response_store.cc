#include "gateway/response_store.h"

#include <utility>

namespace heddle::gateway {

bool ResponseStore::keep(const std::string& tenant,
                         const std::string& id,
                         KeptResponse response,
                         Instant now) {
  expire(now);
  const std::size_t size = response.bytes();
  if (size > limits_.key_bytes || size > limits_.bytes) {
    return false;
  }
  for (auto own = shares_.find(tenant);
       own != shares_.end() && (own->second.sizes.size() >= limits_.key_count ||
                                own->second.bytes + size > limits_.key_bytes);
       own = shares_.find(tenant)) {
    remove(own->second.sizes.begin()->first);
  }
  while (!entries_.empty() && (entries_.size() >= limits_.count || bytes_ + size > limits_.bytes)) {
    remove(entries_.begin()->first);
  }
  const std::uint64_t entry = next_++;
  entries_[entry] = {.tenant = tenant,
                     .id = id,
                     .response = std::make_shared<const KeptResponse>(std::move(response)),
                     .kept = now};
  by_id_[id] = entry;
  Share& share = shares_[tenant];
  share.sizes[entry] = size;
  share.bytes += size;
  bytes_ += size;
  return true;
}

std::shared_ptr<const KeptResponse> ResponseStore::find(const std::string& tenant,
                                                        const std::string& id,
                                                        Instant now) {
  expire(now);
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) {
    return nullptr;
  }
  const Entry& entry = entries_.at(found->second);
  return entry.tenant == tenant ? entry.response : nullptr;
}

bool ResponseStore::erase(const std::string& tenant, const std::string& id, Instant now) {
  if (find(tenant, id, now) == nullptr) {
    return false;
  }
  remove(by_id_.at(id));
  return true;
}

void ResponseStore::remove(std::uint64_t entry) {
  const auto found = entries_.find(entry);
  const auto share = shares_.find(found->second.tenant);
  const std::size_t size = share->second.sizes.at(entry);
  bytes_ -= size;
  share->second.bytes -= size;
  share->second.sizes.erase(entry);
  if (share->second.sizes.empty()) {
    shares_.erase(share);
  }
  by_id_.erase(found->second.id);
  entries_.erase(found);
}

void ResponseStore::expire(Instant now) {
  while (!entries_.empty() && now - entries_.begin()->second.kept >= limits_.age) {
    remove(entries_.begin()->first);
  }
}

}  // namespace heddle::gateway
