#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "cluster/registry.h"
#include "cluster/watched_time.h"

namespace heddle::cluster {

/// Which records nobody has put for their life: for stores that do not remove them themselves.
/// It trusts no clock but its own, and counts only time in which the store could be reached, as
/// else the owner of a record may have been unable to put it. Whoever removes what is due has to
/// do it under the condition that the revision is the same, so that a wrong guess harms nobody.
class Expiry {
 public:
  /// This revision of a record is there. Nothing changes where that is known.
  void saw(const std::string& key, Revision revision, Duration life);
  void forget(const std::string& key) { records_.erase(key); }
  /// The store was reached just now.
  void reached(Instant now);
  /// It was not.
  void not_reached() { time_.look_away(); }

  /// Records whose life is over; each counts as seen anew.
  [[nodiscard]] std::vector<Record> take_due();
  /// How often reached() has to be said; nothing where no record is watched.
  [[nodiscard]] std::optional<Duration> interval() const;
  /// One of the records, whose revision says whether the store can be reached.
  [[nodiscard]] std::string any() const { return records_.begin()->first; }

 private:
  struct Seen {
    Revision revision;
    Duration life;
    Duration at;  ///< In watched time.
  };
  WatchedTime time_{};
  std::map<std::string, Seen> records_{};
};

}  // namespace heddle::cluster
