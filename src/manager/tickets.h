#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/result.h"
#include "core/manager/manager_core.h"

namespace heddle::manager {

/// Loads and unloads that somebody waits for.
class Tickets {
 public:
  using Done = std::function<void(Result<void>)>;

  core::TicketId open(Done done) {
    const core::TicketId ticket(++given_);
    waiting_[ticket] = std::move(done);
    return ticket;
  }

  /// Calls what was given to open(); once for each ticket.
  void answer(core::TicketId ticket, const std::optional<Error>& error) {
    const auto found = waiting_.find(ticket);
    HEDDLE_CHECK(found != waiting_.end());
    const Done done = std::move(found->second);
    waiting_.erase(found);
    done(error ? Result<void>(*error) : Result<void>());
  }

 private:
  std::map<core::TicketId, Done> waiting_{};
  std::uint64_t given_ = 0;
};

}  // namespace heddle::manager
