#pragma once

#include <functional>
#include <memory>
#include <string>

#include <boost/asio/any_io_executor.hpp>

#include "base/ids.h"
#include "base/time.h"
#include "manager/load_records.h"
#include "remote/messages.h"

namespace heddle::node {

/// How a leader speaks with a host about past loads.
struct LoadKeeper {
  std::string name{};
  std::function<void(const remote::TellLoads&)> ask{};  ///< Answered by LoadSync::hear().
  std::function<void(const remote::Loads&)> tell{};
};

struct LoadSyncOptions {
  Duration patience = std::chrono::seconds(10);   ///< For each answer; then the next host's turn.
  Duration pause = std::chrono::milliseconds(2);  ///< Between pieces that a host is told.
};

/// Has hosts remember a leader's records of past loads, and takes over what they remember of
/// leaders before. Hosts are asked in turn: the answer in pieces, each at once taken over; then the
/// host is told what it lacks, in pieces as well. One that has just what the leader has is neither
/// asked for more nor told. Windows that end meanwhile go to all hosts. Loop thread only.
class LoadSync {
 public:
  /// @param records  Outlives it, and has no other who hears of what is noted.
  LoadSync(const boost::asio::any_io_executor& executor,
           manager::LoadRecords& records,
           const LoadSyncOptions& options = {});
  ~LoadSync();
  LoadSync(const LoadSync&) = delete;
  LoadSync& operator=(const LoadSync&) = delete;

  /// A host is linked and remembers loads.
  void meet(HostId id, LoadKeeper host);
  /// It is linked no more. Of no effect for one that was not met.
  void lose(HostId id);
  /// What it says, when it was asked.
  void hear(HostId id, const remote::Loads& answer);
  /// Whether the leader has time for it: while it has not, no host's turn begins.
  void settle(bool settled);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace heddle::node
