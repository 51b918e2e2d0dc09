#pragma once

#include <stop_token>
#include <string>

#include "base/result.h"
#include "fetch/object.h"
#include "fetch/ranged_read.h"

namespace heddle::fetch {

/// Another host that may have a model in its cache. Its calls block; any thread may make them, at
/// the same time.
class Peer {
 public:
  virtual ~Peer() = default;

  /// Of the host, for people.
  [[nodiscard]] virtual const std::string& name() const = 0;
  /// What the host has of a model that is whole there. Objects have no URL. kNotFound where it has
  /// none; kUnavailable where it does not answer; kCorrupt where what it says makes no sense;
  /// kCancelled after a stop.
  [[nodiscard]] virtual Result<Listing> list(const std::string& model,
                                             const std::stop_token& stop) = 0;
  /// Passes a range of an object to `sink`, in order, each byte once. The object is known by its
  /// name, size and identity. Nothing is tried again. What `sink` returns; else as list().
  [[nodiscard]] virtual Result<void> read(const std::string& model,
                                          const Object& object,
                                          Range range,
                                          const Sink& sink,
                                          const std::stop_token& stop) = 0;
  /// It gave wrong bytes of the model: from now on list() and read() of that model fail with
  /// kFailedPrecondition, and it is not asked.
  virtual void distrust(const std::string& model) = 0;
};

}  // namespace heddle::fetch
