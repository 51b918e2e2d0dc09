#include "core/manager/guest_loans.h"

#include <algorithm>
#include <utility>

#include "core/manager/index.h"
#include "core/manager/pages.h"
#include "policy/backoff.h"

namespace heddle::core::manager {
namespace {

/// Between two grants, so that what the first did shows before the next.
constexpr Duration kBetweenGrants = std::chrono::seconds(1);
/// After refusals in a row, at most.
constexpr Duration kBetweenRefusals = std::chrono::minutes(5);

}  // namespace

void GuestLoans::lend(
    DeviceId host, DeviceId hot, ModelId model, std::int64_t pages, std::string why) {
  DeviceState& device = state_.devices.at(host);
  const WorkerEpoch hot_epoch = state_.devices.at(hot).epoch;
  GuestLoan& loan = device.guests[model];
  reindex(state_, host);
  loan.hot = hot;
  loan.hot_epoch = hot_epoch;
  loan.asked = pages;
  loan.more_at = state_.now + kBetweenGrants;
  loan.used_at = state_.now;
  out_.note(DecisionKind::kLend, model, host, std::move(why));
  out_.act(Weave{.host = host,
                 .basis = {.epoch = device.epoch, .version = device.version},
                 .hot = hot,
                 .hot_epoch = hot_epoch,
                 .model = model,
                 .pages = pages});
}

void GuestLoans::recall(DeviceId host,
                        ModelId model,
                        std::int64_t pages,
                        const std::string& why,
                        std::optional<ModelId> for_model) {
  GuestLoan& loan = state_.devices.at(host).guests.at(model);
  const std::int64_t count = std::min(pages, loan.pages - loan.recalled);
  if (count <= 0) {
    return;
  }
  loan.recalled += count;
  loan.more_at = state_.now + kBetweenGrants;
  out_.note(DecisionKind::kRecall, model, host, why, for_model);
  out_.act(Unweave{.host = host, .model = model, .pages = count});
}

void GuestLoans::recall_any(DeviceId host,
                            std::int64_t pages,
                            const std::string& why,
                            std::optional<ModelId> for_model) {
  for (const auto& [model, loan] : state_.devices.at(host).guests) {
    const std::int64_t count = std::min(pages, loan.pages - loan.recalled);
    recall(host, model, count, why, for_model);
    pages -= std::max<std::int64_t>(count, 0);
  }
}

void GuestLoans::make_room(DeviceId host, ModelId model) {
  const DeviceState& device = state_.devices.at(host);
  if (device.guests.empty()) {
    return;
  }
  const std::int64_t workspace = workspace_of(state_, device, model);
  const std::int64_t lacks =
      lent_pages(device) - (free_pages(state_, device, workspace) - workspace);
  if (lacks > 0) {
    recall_any(host, lacks, "a model is loaded that needs the memory", model);
  }
}

void GuestLoans::heard(const GuestState& said) {
  DeviceState& device = state_.devices.at(said.device);
  const auto found = device.guests.find(said.model);
  if (found == device.guests.end()) {
    return;
  }
  GuestLoan& loan = found->second;
  if (said.pages < loan.pages) {
    loan.recalled = std::max<std::int64_t>(0, loan.recalled - (loan.pages - said.pages));
  }
  if (said.refused || said.pages > loan.pages) {
    loan.asked = 0;
  }
  if (said.refused) {
    device.lends_at =
        state_.now + policy::backoff(++device.lend_refusals, kBetweenGrants, kBetweenRefusals);
  }
  loan.pages = said.pages;
  if (loan.pages == 0 && loan.asked == 0) {
    // A host that has just taken all back does not lend it again in the same breath.
    device.lends_at = std::max(device.lends_at, loan.more_at);
    device.guests.erase(found);
  }
  reindex(state_, said.device);
}

void GuestLoans::forget(DeviceId host) {
  state_.devices.at(host).guests.clear();
  reindex(state_, host);
}

void GuestLoans::used(DeviceId host, ModelId model) {
  DeviceState& device = state_.devices.at(host);
  device.guests.at(model).used_at = state_.now;
  device.lend_refusals = 0;
}

void GuestLoans::heard(const GuestPeers& said) {
  state_.guest_peers.clear();
  for (const auto& [one, other] : said.pairs) {
    state_.guest_peers.emplace(one, other);
    state_.guest_peers.emplace(other, one);
  }
}

std::int64_t lent_pages(const DeviceState& device) {
  std::int64_t pages = 0;
  for (const auto& [model, loan] : device.guests) {
    pages += loan.pages + loan.asked - loan.recalled;
  }
  return pages;
}

bool has_guests_elsewhere(const State& state, DeviceId device) {
  return std::ranges::any_of(state.index.lending, [&](DeviceId host) {
    const auto& guests = state.devices.at(host).guests;
    return std::any_of(guests.begin(), guests.end(), [&](const auto& guest) {
      return guest.second.hot == device;
    });
  });
}

}  // namespace heddle::core::manager
