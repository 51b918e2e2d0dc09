#pragma once

#include <boost/intrusive/list.hpp>

#include "base/result.h"

namespace heddle::gateway {

/// A client's request that runs, as whoever ends the server sees it. Leaves the list of those that
/// run when it ends.
class RunningRequest : public boost::intrusive::list_base_hook<
                           boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
 public:
  virtual ~RunningRequest() = default;
  /// Makes it fail, whatever it waits for.
  virtual void fail(Error error) = 0;
};

/// Requests that run, in the order in which they came.
using RunningRequests =
    boost::intrusive::list<RunningRequest, boost::intrusive::constant_time_size<false>>;

}  // namespace heddle::gateway
