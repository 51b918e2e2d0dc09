#include "policy/device_queue.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace heddle::policy {
namespace {

using Index = std::uint32_t;

/// Sorting moves these and looks at the requests only for ties.
struct Keyed {
  Duration first{};
  Duration second{};
  Index index = 0;
};

/// The pass over one device's requests.
class Pass {
 public:
  Pass(const QueueView& view, const QueueOptions& options)
      : requests_(view.requests),
        options_(options),
        now_(view.now),
        credit_(view.late_credit),
        pages_(view.free_pages),
        ahead_(view.dispatched),
        busy_until_(view.now + view.dispatched) {}

  QueuePlan run() {
    split_by_lateness();
    sort_late();
    serve_late_head();
    choose_on_time();
    serve_late_in_spare_time();
    for (const Index i : on_time_) {
      busy_until_ += requests_[i].prefill;
      plan_.on_time.push_back({requests_[i].id, busy_until_});
    }
    dispatch();
    for (const Index i : late_) {
      plan_.late.push_back(requests_[i].id);
    }
    std::sort(plan_.refused.begin(), plan_.refused.end());
    plan_.late_credit = late_.empty() ? Duration{} : credit_;
    return std::move(plan_);
  }

 private:
  void split_by_lateness() {
    for (Index i = 0; i < requests_.size(); ++i) {
      HEDDLE_CHECK(requests_[i].prefill > Duration{});
      if (!requests_[i].late) {
        waiting_.push_back(i);
      } else if (!too_late(requests_[i])) {
        late_.push_back(i);
      } else {
        plan_.aborted.push_back(requests_[i].id);
      }
    }
    std::sort(plan_.aborted.begin(), plan_.aborted.end());
  }

  [[nodiscard]] bool too_late(const QueuedRequest& r) const {
    return options_.abort_after && now_ + r.prefill > r.deadline + *options_.abort_after;
  }

  [[nodiscard]] bool precedes(const Keyed& a, const Keyed& b) const {
    if (a.first != b.first) {
      return a.first < b.first;
    }
    return a.second != b.second ? a.second < b.second
                                : requests_[a.index].id < requests_[b.index].id;
  }

  /// Sorts `indices` by what `key` makes of a request.
  template <class Key>
  void sort_by(std::vector<Index>& indices, const Key& key) {
    std::vector<Keyed> keyed;
    keyed.reserve(indices.size());
    for (const Index i : indices) {
      const auto [first, second] = key(requests_[i]);
      keyed.push_back({first, second, i});
    }
    std::sort(keyed.begin(), keyed.end(), [this](const Keyed& a, const Keyed& b) {
      return precedes(a, b);
    });
    std::transform(
        keyed.begin(), keyed.end(), indices.begin(), [](const Keyed& k) { return k.index; });
  }

  /// Shortest first; lateness counts against length. As all of them grow late together, the order
  /// between two never changes with time, and a newcomer's deadline is later: nobody is overtaken
  /// for ever.
  void sort_late() {
    sort_by(late_, [this](const QueuedRequest& r) {
      const Duration deadline = r.deadline.time_since_epoch();
      return std::pair(r.prefill + deadline / options_.ageing, deadline);
    });
  }

  /// The head of the late list goes first when it has earned that; until its pages come, nobody
  /// else may have any.
  void serve_late_head() {
    if (late_.empty() || credit_ < requests_[late_.front()].prefill) {
      return;
    }
    const QueuedRequest& head = requests_[late_.front()];
    if (head.kv_pages > pages_) {
      pages_ = 0;
    } else if (ahead_ < options_.ahead) {
      credit_ -= head.prefill;
      busy_until_ += head.prefill;
      send(late_.front());
      pages_ -= head.kv_pages;
      late_.erase(late_.begin());
    }
  }

  auto shorter() const {
    return [this](const Keyed& a, const Keyed& b) { return precedes(a, b); };
  }

  void choose_on_time() {
    const bool by_arrival = options_.rule == QueueRule::kArrival;
    sort_by(waiting_, [by_arrival](const QueuedRequest& r) {
      // Of equal deadlines the shorter first, which Moore-Hodgson does not mind.
      return by_arrival ? std::pair(r.arrived.time_since_epoch(), Duration{})
                        : std::pair(r.deadline.time_since_epoch(), r.prefill);
    });
    gone_.assign(requests_.size(), false);
    Instant finish = busy_until_;
    for (const Index i : waiting_) {
      const QueuedRequest& r = requests_[i];
      if (!claim_pages(r)) {
        plan_.blocked.push_back(r.id);
        gone_[i] = true;
        continue;
      }
      finish += r.prefill;
      if (by_arrival) {
        continue;
      }
      longest_.push_back({r.prefill, r.deadline.time_since_epoch(), i});
      std::push_heap(longest_.begin(), longest_.end(), shorter());
      if (finish > r.deadline) {
        finish -= give_up_longest();
      }
    }
    std::copy_if(waiting_.begin(), waiting_.end(), std::back_inserter(on_time_), [&](Index i) {
      return !gone_[i];
    });
    if (!plan_.refused.empty()) {
      sort_late();
    }
  }

  /// One is enough: without the newest request all were in time, and the longest is no shorter.
  Duration give_up_longest() {
    std::pop_heap(longest_.begin(), longest_.end(), shorter());
    const Index i = longest_.back().index;
    longest_.pop_back();
    gone_[i] = true;
    pages_ += requests_[i].kv_pages;
    plan_.refused.push_back(requests_[i].id);
    late_.push_back(i);
    return requests_[i].prefill;
  }

  /// Nobody overtakes a request of its own model that waits for pages.
  bool claim_pages(const QueuedRequest& r) {
    const auto at = std::lower_bound(blocked_models_.begin(), blocked_models_.end(), r.model);
    if (at != blocked_models_.end() && *at == r.model) {
      return false;
    }
    if (r.kv_pages > pages_) {
      blocked_models_.insert(at, r.model);
      return false;
    }
    pages_ -= r.kv_pages;
    return true;
  }

  void serve_late_in_spare_time() {
    if (!options_.spare_time || on_time_.empty()) {
      return;
    }
    Duration spare = Duration::max();
    Instant finish = busy_until_;
    for (const Index i : on_time_) {
      finish += requests_[i].prefill;
      spare = std::min(spare, requests_[i].deadline - finish);
    }
    std::erase_if(late_, [&](Index i) {
      const Duration prefill = requests_[i].prefill;
      if (prefill > spare || ahead_ >= options_.ahead || !claim_pages(requests_[i])) {
        return false;
      }
      spare -= prefill;
      busy_until_ += prefill;
      send(i);
      return true;
    });
  }

  void dispatch() {
    Duration longest_late{};  // More credit than it takes to serve anyone is not saved up.
    for (const Index i : late_) {
      longest_late = std::max(longest_late, requests_[i].prefill);
    }
    for (const Index i : on_time_) {
      if (ahead_ >= options_.ahead || delays(i)) {
        return;
      }
      send(i);
      if (!late_.empty()) {
        credit_ = std::min(credit_ + requests_[i].prefill / options_.late_part, longest_late);
      }
    }
    std::vector<Index> left;
    for (const Index i : late_) {
      if (ahead_ < options_.ahead && !delays(i) && claim_pages(requests_[i])) {
        send(i);
      } else {
        left.push_back(i);
      }
    }
    late_ = std::move(left);
  }

  /// Whether one more would make the step end too late for one that is in it.
  [[nodiscard]] bool delays(Index i) const {
    return options_.together && due_ && now_ + ahead_ + requests_[i].prefill > *due_;
  }

  void send(Index i) {
    plan_.dispatch.push_back(requests_[i].id);
    ahead_ += requests_[i].prefill;
    if (!requests_[i].late && !gone_[i]) {
      due_ = std::min(due_.value_or(Instant::max()), requests_[i].deadline);
    }
  }

  std::span<const QueuedRequest> requests_;
  const QueueOptions& options_;
  Instant now_;
  Duration credit_;
  std::int64_t pages_;
  Duration ahead_;
  Instant busy_until_;
  std::vector<Index> waiting_{};
  std::vector<Index> late_{};
  std::vector<Index> on_time_{};
  std::vector<Keyed> longest_{};  ///< A heap; those on time so far.
  std::vector<bool> gone_{};
  std::vector<ModelId> blocked_models_{};  ///< Sorted.
  std::optional<Instant> due_{};           ///< The first deadline of those sent that are on time.
  QueuePlan plan_{};
};

}  // namespace

QueuePlan plan_queue(const QueueView& view, const QueueOptions& options) {
  HEDDLE_CHECK(options.late_part > 0 && options.ageing > 0);
  return Pass(view, options).run();
}

}  // namespace heddle::policy
