#pragma once

#include <functional>
#include <memory>
#include <string>

#include <boost/asio/any_io_executor.hpp>

#include "base/child.h"

namespace heddle::external {

/// A child of this process whose end a loop waits for. It is killed with this object, which takes
/// its exit status. Loop thread only.
class ChildWatch {
 public:
  /// @param on_exit  Told how it ended ("exit status 1", "signal 9 (Killed)"), on the loop, unless
  ///                 the object was destroyed before. It may destroy the object.
  ChildWatch(const boost::asio::any_io_executor& executor,
             Child child,
             std::function<void(const std::string& how)> on_exit);
  ~ChildWatch();
  ChildWatch(const ChildWatch&) = delete;
  ChildWatch& operator=(const ChildWatch&) = delete;

  [[nodiscard]] const Child& child() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace heddle::external
