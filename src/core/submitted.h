#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "core/life.h"
#include "core/messages.h"

namespace heddle::core {

/// A link of a gateway with a host, of its many in time.
using LinkId = Id<struct LinkIdTag>;

/// The requests that run on a host, and over which link each was submitted. What workers say of
/// them goes there.
class Submitted {
 public:
  /// In place of what there was of the same request.
  void add(LinkId link, const Life& place, const Submit& submit);
  /// One choice of a request needs no more tokens.
  void finish(LinkId link, const FinishChoice& finished);
  /// Where the request is, if it is there and of this link.
  [[nodiscard]] std::optional<Life> find(LinkId link, RequestId request) const;
  /// Forgets a request: it is not to be heard of again.
  void remove(LinkId link, RequestId request);

  /// Tokens of that life, by the links that they are for. Those of other requests nobody gets, nor
  /// those that do not follow upon the one before: the worker still spoke of what was submitted
  /// over an earlier link, with which some were lost.
  [[nodiscard]] std::map<LinkId, std::vector<TokenEvent>> share_out(const Life& from,
                                                                    std::vector<TokenEvent> tokens);
  /// That life gives up the request: whose it was, and nothing where it is not there.
  [[nodiscard]] std::optional<LinkId> given_up(const Life& from, RequestId request);
  /// That life has ended, with its requests.
  void end(const Life& life);
  /// The link has ended: what its requests are, and where, each to be cancelled there.
  [[nodiscard]] std::vector<std::pair<RequestId, Life>> end(LinkId link);

  [[nodiscard]] std::size_t size() const { return requests_.size(); }

 private:
  struct Entry {
    LinkId link{};
    Life place{};
    /// Those that run, with the position of the token that comes next.
    std::map<std::uint32_t, std::int64_t> choices{};
  };
  using Entries = std::map<RequestId, Entry>;

  void finish(Entries::iterator entry, std::uint32_t choice);

  Entries requests_{};
};

}  // namespace heddle::core
