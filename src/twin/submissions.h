#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "core/messages.h"
#include "twin/contents.h"

namespace heddle::twin {

/// The requests that run on a host, and over which link each was submitted: as
/// remote::Submitted.
class Submissions {
 public:
  using Link = std::uint64_t;  ///< Its number among all of the host's.

  void add(Link link, Life place, const core::Submit& submit);
  void finish(Link link, const core::FinishChoice& finished);
  [[nodiscard]] std::optional<Life> find(Link link, RequestId request) const;
  void remove(Link link, RequestId request);
  /// A worker may still speak of what was submitted over an earlier link, with which some of its
  /// tokens were lost: those after them are nobody's.
  [[nodiscard]] std::map<Link, std::vector<core::TokenEvent>> share_out(
      Life from, const std::vector<core::TokenEvent>& tokens);
  [[nodiscard]] std::optional<Link> given_up(Life from, RequestId request);
  void end(Life life);
  [[nodiscard]] std::vector<std::pair<RequestId, Life>> end(Link link);

  [[nodiscard]] std::size_t size() const { return requests_.size(); }

 private:
  struct Entry {
    Link link{};
    Life place{};
    /// Those that run, with the position of the token that comes next.
    std::map<std::uint32_t, std::int64_t> choices{};
  };
  using Entries = std::map<RequestId, Entry>;

  void finish(Entries::iterator entry, std::uint32_t choice);

  Entries requests_{};
};

}  // namespace heddle::twin
