#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "base/result.h"
#include "base/siphash.h"
#include "gateway/task.h"
#include "sandbox/sandbox.h"

namespace heddle::gateway {

/// Tries grammars before they are used, one after the other on a thread of its own, and remembers
/// how that went. Equal ones that come at once are tried once; clients take turns. Loop thread.
class GrammarTrials {
 public:
  struct Bounds {
    std::size_t kept = 4096;             ///< Grammars of which the outcome is remembered.
    std::size_t waiting_per_client = 8;  ///< Different ones that wait or are tried, of one client.
    std::size_t waiting = 64;            ///< Of all clients.
  };

  /// @param secret  By which outcomes are kept; nobody else may know it.
  GrammarTrials(boost::asio::io_context& loop,
                std::shared_ptr<sandbox::Trier> trier,
                SipKey secret,
                Bounds bounds);
  /// Has the trial that runs given up; those that wait are dropped.
  ~GrammarTrials();
  GrammarTrials(const GrammarTrials&) = delete;
  GrammarTrials& operator=(const GrammarTrials&) = delete;

  /// Whether the grammar can be used: at once where that is known. kInvalidArgument, with the
  /// reason, where it cannot; kResourceExhausted where too many wait; other codes where it could
  /// not be tried, which is not remembered.
  Task<Result<void>> check(const std::string& client, sandbox::GrammarTrial trial);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace heddle::gateway
