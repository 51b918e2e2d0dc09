#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include <boost/asio/any_io_executor.hpp>

#include "base/time.h"
#include "cluster/registry.h"

namespace heddle::cluster {

/// The records whose keys begin alike, as they are now. While the registry is away they stay as
/// they were last heard of.
class Mirror {
 public:
  /// Begins at once.
  /// @param changed  Called on the executor's thread after the first listing, and whenever
  ///                 something has changed since.
  /// @param pause    Before the records are listed again, where that failed.
  Mirror(const boost::asio::any_io_executor& executor,
         std::shared_ptr<Registry> registry,
         std::string prefix,
         std::function<void()> changed,
         Duration pause = std::chrono::milliseconds(250));
  ~Mirror();
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;

  /// They have been listed.
  [[nodiscard]] bool known() const;
  /// By key.
  [[nodiscard]] const std::map<std::string, Record>& records() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace heddle::cluster
