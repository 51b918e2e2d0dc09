#pragma once

#include <memory>
#include <string>

#include <boost/asio/any_io_executor.hpp>

#include "base/time.h"
#include "cluster/registry.h"

namespace heddle::cluster {

/// Removes records whose life is over from a store that does not do it itself. Every process that
/// uses such a store has one; which of them comes first does not matter.
class Reaper {
 public:
  explicit Reaper(const boost::asio::any_io_executor& executor);
  ~Reaper();
  Reaper(const Reaper&) = delete;
  Reaper& operator=(const Reaper&) = delete;

  /// Whose records it removes; asked only while some record may expire.
  void serve(std::weak_ptr<Registry> registry);

  /// This revision of a record is there. @param life 0: it never expires.
  void saw(const std::string& key, Revision revision, Duration life);
  void forget(const std::string& key);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace heddle::cluster
