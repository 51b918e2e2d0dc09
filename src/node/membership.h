#pragma once

#include <functional>
#include <memory>

#include "base/result.h"
#include "config/config.h"
#include "net/identity.h"
#include "node/self.h"

namespace boost::asio {
class io_context;
}

namespace heddle::node {

/// A host or gateway as a member of its cluster: one that the configuration lists is one by that;
/// any other joins by the registry, for as long as this lives. Loop thread only.
class Membership {
 public:
  /// Joins where that is needed, and runs the loop until it has. Waits for a registry that is away,
  /// and for the record of an earlier life of this name; says so in the log. `self` gets its number
  /// and its incarnation. Errors as cluster::open_registry and cluster::Member::join. Where another
  /// process takes the name later, this one is told to end.
  static Result<std::unique_ptr<Membership>> begin(boost::asio::io_context& loop,
                                                   const config::Config& config,
                                                   net::Role role,
                                                   NodeSelf& self);
  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  /// Frees the name at once; `done` is called when that is said.
  void leave(std::function<void()> done);

 private:
  class Impl;
  explicit Membership(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::node
