#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <set>

#include <boost/asio/any_io_executor.hpp>

#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"
#include "remote/messages.h"

namespace heddle::remote {

/// Has hosts send the files from which models' text is made, and puts them into folders: one model
/// after the other, from the first host that has it. Loop thread; files are written beside it.
class TextFetcher {
 public:
  /// Asks a host that is there.
  using Ask = std::function<void(HostId, const FetchText&)>;

  /// @param writer    Where files are written, one piece after the other: one thread, another.
  /// @param patience  For so long a fetch waits for hosts that are not there.
  TextFetcher(const boost::asio::any_io_executor& loop,
              const boost::asio::any_io_executor& writer,
              Ask ask,
              Duration patience);
  /// Nobody hears how fetches end that are under way.
  ~TextFetcher();
  TextFetcher(const TextFetcher&) = delete;
  TextFetcher& operator=(const TextFetcher&) = delete;

  /// `folder` is there when all files are in it, and not before. `done` is called once, on the
  /// loop, not from within this call; with the last of their Errors once all hosts have said that
  /// they cannot send it, and kUnavailable where others were not there in time.
  void fetch(FetchText wanted,
             std::filesystem::path folder,
             std::function<void(Result<void>)> done);

  /// The hosts that there are.
  void set_hosts(std::set<HostId> hosts);
  /// One of them can be asked from now on, or no longer.
  void come(HostId host);
  void go(HostId host);
  /// What a host sends. kCorrupt where it was not asked for it.
  Result<void> hear(HostId from, TextFile piece);
  Result<void> hear(HostId from, const TextFailed& failed);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace heddle::remote
