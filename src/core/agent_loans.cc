#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "core/agent_core_impl.h"

namespace heddle::core {

void AgentCore::Impl::on(const Borrow& borrow) {
  WorkerState* worker = live(borrow.device, borrow.basis.epoch);
  if (worker == nullptr) {
    commands_->push_back(
        RefuseLoan{.model = borrow.model,
                   .reason = {Code::kUnavailable, "the device's worker has ended meanwhile"}});
    return;
  }
  worker->operations.emplace_back(borrow);
}

/// In order with loads and evictions, as those before it may bring the pages.
bool AgentCore::Impl::send(WorkerState& worker, const Borrow& borrow) {
  if (recalls_guests(worker)) {
    return false;
  }
  worker.asked[borrow.model] = borrow.pages;
  commands_->push_back(SendWorker{
      .device = worker.device.id,
      .epoch = worker.epoch,
      .message = LendPages{.model = borrow.model, .basis = borrow.basis, .count = borrow.pages}});
  return true;
}

/// Whether the pages are an answer to LendPages; then they leave the worker's pool.
bool AgentCore::Impl::take_loan(WorkerState& worker, const PagesReturned& returned) {
  const auto asked = worker.asked.find(returned.model);
  if (asked == worker.asked.end()) {
    return false;
  }
  const bool its_own = std::all_of(returned.pages.begin(), returned.pages.end(), [&](PageId page) {
    return worker.pool.contains(page);
  });
  if (!its_own || std::ssize(returned.pages) != asked->second) {
    doom(worker, {Code::kCorrupt, "lent other pages than it was asked for"});
    return true;
  }
  worker.asked.erase(asked);
  for (const PageId page : returned.pages) {
    worker.pool.erase(page);
    worker.lent[returned.model].insert(page);
  }
  if (worker.guests.contains(returned.model)) {
    grant_guests(worker, returned.model, returned.pages);
    return true;
  }
  commands_->push_back(
      GrantLoan{.device = worker.device.id, .model = returned.model, .pages = returned.pages});
  return true;
}

/// Whether what was refused is a loan.
bool AgentCore::Impl::miss_loan(WorkerState& worker, const LoadRefused& refused) {
  if (worker.asked.erase(refused.model) == 0) {
    return false;
  }
  if (worker.guests.contains(refused.model)) {
    tell_guests(worker, refused.model, true);
    return true;
  }
  commands_->push_back(RefuseLoan{.model = refused.model, .reason = refused.reason});
  return true;
}

/// The worker has ended: what it had not lent is its next life's.
void AgentCore::Impl::refuse_loans(WorkerState& worker) {
  const Error reason{Code::kUnavailable, "the device's worker ended before it lent any pages"};
  for (const auto& [model, count] : std::exchange(worker.asked, {})) {
    if (worker.guests.contains(model)) {
      tell_guests(worker, model, true);
    } else {
      commands_->push_back(RefuseLoan{.model = model, .reason = reason});
    }
  }
  for (const HostOperation& operation : worker.operations) {
    if (const auto* borrow = std::get_if<Borrow>(&operation)) {
      commands_->push_back(RefuseLoan{.model = borrow->model, .reason = reason});
    } else if (const auto* weave = std::get_if<Weave>(&operation)) {
      tell_guests(worker, weave->model, true);
    }
  }
}

void AgentCore::Impl::on(const Repay& repay) {
  WorkerState& worker = workers_.at(repay.device);
  const auto found = worker.lent.find(repay.model);
  HEDDLE_CHECK(found != worker.lent.end() && std::ssize(found->second) >= repay.pages);
  BackPages back{.device = repay.device, .model = repay.model};
  for (std::int64_t i = 0; i < repay.pages; ++i) {
    const PageId page = *found->second.begin();
    found->second.erase(page);
    worker.unbacked.insert(page);
    back.pages.push_back(page);
  }
  if (found->second.empty()) {
    worker.lent.erase(found);
  }
  commands_->push_back(std::move(back));
}

void AgentCore::Impl::on(const PagesBacked& backed) {
  WorkerState& worker = workers_.at(backed.device);
  for (const PageId page : backed.pages) {
    HEDDLE_CHECK(worker.unbacked.erase(page) == 1);
  }
  give_pages(worker, backed.pages);
  // Whatever the manager orders when it hears of it, the worker hears after it has the pages.
  commands_->push_back(EndLoan{.model = backed.model});
}

}  // namespace heddle::core
