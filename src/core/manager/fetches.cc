#include "core/manager/fetches.h"

#include <algorithm>
#include <vector>

#include "core/manager/images.h"
#include "core/manager/index.h"

namespace heddle::core::manager {

void Fetches::configure(const Configure& configure) {
  for (const auto& [host, rate] : configure.networks) {
    policy::Nic fresh(rate, policy::NicRule::kEarliestDeadline);
    fresh.advance(state_.now);
    const auto known = state_.networks.find(host);
    if (known != state_.networks.end()) {
      for (const policy::Fetch& fetch : known->second.fetches()) {
        fresh.start(fetch);
      }
    }
    state_.networks.insert_or_assign(host, std::move(fresh));
    count_busy(host);
  }
}

void Fetches::advance() {
  each(busy_, [this](HostId host) {
    state_.networks.at(host).advance(state_.now);
    count_busy(host);
  });
}

void Fetches::count_busy(HostId host) {
  if (state_.networks.at(host).fetches().empty()) {
    busy_.erase(host);
  } else {
    busy_.insert(host);
  }
}

void Fetches::begin(HostId host, ModelId id) {
  const ModelState& model = state_.models.at(id);
  const auto network = state_.networks.find(host);
  if (network == state_.networks.end() || to_fetch(model, host) == 0) {
    return;
  }
  const policy::Fetch fetch = fetch_of(state_, id, host);
  const auto same = [&](const policy::Fetch& each) { return each.id == fetch.id; };
  if (std::ranges::none_of(network->second.fetches(), same)) {
    network->second.advance(state_.now);
    network->second.start(fetch);
    count_busy(host);
  }
}

void Fetches::heard(const ImageState& image) {
  const auto network = state_.networks.find(image.host);
  const auto model = state_.models.find(image.model);
  if (network == state_.networks.end() || model == state_.models.end()) {
    return;
  }
  if (image.host_cached || image.bytes == 0 || image.bytes >= model->second.config.image_bytes) {
    end(image.host, image.model);
  } else {
    network->second.observe(
        policy::FetchId(image.model.value()),
        static_cast<std::int64_t>(to_fetch(model->second, image.host) -
                                  std::min(image.bytes, to_fetch(model->second, image.host))));
    count_busy(image.host);
  }
}

void Fetches::end(HostId host, ModelId model) {
  if (const auto network = state_.networks.find(host); network != state_.networks.end()) {
    network->second.end(policy::FetchId(model.value()));
    count_busy(host);
  }
}

void Fetches::lose(HostId host) {
  const auto network = state_.networks.find(host);
  if (network == state_.networks.end()) {
    return;
  }
  for (const policy::Fetch& fetch : std::vector(network->second.fetches())) {
    network->second.end(fetch.id);
  }
  count_busy(host);
}

}  // namespace heddle::core::manager
