#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include "cluster/election_core.h"
#include "cluster/registry.h"

namespace heddle::cluster {

/// What a candidate is told, on the executor's thread.
struct ElectionHandlers {
  std::function<void(Term)> elected{};
  /// It leads no longer, and why: in a word by which to decide, and in words for people.
  std::function<void(election::Why, std::string_view)> lost{};
  /// Who leads; term 0: nobody that is known.
  std::function<void(const election::Leader&)> leader{};
};

/// One candidate for the leadership that a record of the registry stands for. Any number of
/// processes may be candidates; terms have one leader at most (election_core.h). Where the registry
/// is away nobody is elected, and the leader is told that it is `lost` as kUnreached.
class Election {
 public:
  /// Begins at once. @param key Of the record.
  Election(const boost::asio::any_io_executor& executor,
           std::shared_ptr<Registry> registry,
           std::string key,
           std::string name,
           std::string address,
           ElectionHandlers handlers,
           ElectionTimes times = {});
  /// Is silent from here on. The record stays, so that others wait for a lease: see leave().
  ~Election();
  Election(const Election&) = delete;
  Election& operator=(const Election&) = delete;

  /// The term in which this one leads now. Whoever acts as the leader asks right before.
  [[nodiscard]] std::optional<Term> leads() const;
  /// Somebody has spoken of a term: no leader has one before it any more.
  void heard_of(Term term);
  /// Leads no longer, and frees the record for the next one at once; ends when that is done, or
  /// the registry does not answer for a second.
  boost::asio::awaitable<void> leave();

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

/// A number like no other one: for the holder of a record.
[[nodiscard]] std::uint64_t draw_holder();

}  // namespace heddle::cluster
