#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string_view>
#include <variant>

#include "base/rng.h"
#include "twin/twin.h"

/// For tests: workers that die at a certain moment of a loan of memory for KV.
namespace heddle::twin::test {

enum class LoanMoment : std::uint8_t {
  kAsked,     ///< The host was asked for pages and has not answered.
  kLent,      ///< The hot worker was given pages, and nothing is on them.
  kMovesOut,  ///< KV is copied to them.
  kMovesHome,
  kRecalled,  ///< The hot worker was told to give them back.
  kReturned,  ///< It has.
  kDrains,    ///< The hot model is to leave its device.
};
inline constexpr std::array<std::string_view, 7> kLoanMoments{
    "asked", "lent", "moves out", "moves home", "recalled", "returned", "drains"};

enum class Victim : std::uint8_t { kHost, kHot, kBoth };

/// Looks at what has just been wanted, and strikes where that is the moment: half of the times.
class Strikes {
 public:
  Strikes(LoanMoment moment, Victim victim, std::uint64_t seed)
      : moment_(moment), victim_(victim), rng_(seed) {}

  void look(Twin& twin) {
    for (; agent_steps_ < twin.agent_record().size(); ++agent_steps_) {
      for (const core::AgentCommand& command : twin.agent_record()[agent_steps_].commands) {
        if (const auto* send = std::get_if<core::SendWorker>(&command); send && is(send->message)) {
          strike(twin, send->device);
        }
      }
    }
    for (const auto& life : twin.lives()) {
      std::size_t& steps = worker_steps_[life.get()];
      for (; steps < life->record().size(); ++steps) {
        for (const core::WorkerCommand& command : life->record()[steps].commands) {
          if (is(command)) {
            strike(twin, life->device());
          }
        }
      }
    }
  }

  [[nodiscard]] std::int64_t struck() const { return struck_; }

 private:
  [[nodiscard]] bool is(const core::WorkerMessage& message) const {
    switch (moment_) {
      case LoanMoment::kAsked:
        return std::holds_alternative<core::LendPages>(message);
      case LoanMoment::kLent:
        return std::holds_alternative<core::LendGuests>(message);
      case LoanMoment::kRecalled:
        return std::holds_alternative<core::RecallGuests>(message);
      case LoanMoment::kDrains:
        return std::holds_alternative<core::EvictModel>(message);
      default:
        return false;
    }
  }
  [[nodiscard]] bool is(const core::WorkerCommand& command) const {
    switch (moment_) {
      case LoanMoment::kMovesOut:
        return std::holds_alternative<core::MoveOut>(command);
      case LoanMoment::kMovesHome:
        return std::holds_alternative<core::MoveHome>(command);
      case LoanMoment::kReturned:
        return std::holds_alternative<core::ReturnGuestPages>(command);
      default:
        return false;
    }
  }

  /// The pair of which this device is one.
  void strike(Twin& twin, DeviceId device) {
    for (const core::DeviceStatus& host : twin.devices()) {
      for (const core::GuestStatus& guest : host.guests) {
        if ((host.id != device && guest.hot != device) || rng_.below(2) == 0) {
          continue;
        }
        ++struck_;
        if (victim_ != Victim::kHot) {
          twin.kill(host.id);
        }
        if (victim_ != Victim::kHost) {
          twin.kill(guest.hot);
        }
        return;
      }
    }
  }

  LoanMoment moment_;
  Victim victim_;
  Rng rng_;
  std::size_t agent_steps_ = 0;
  std::map<const Worker*, std::size_t> worker_steps_{};
  std::int64_t struck_ = 0;
};

}  // namespace heddle::twin::test
