#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "core/manager/events.h"
#include "core/messages.h"
#include "core/serving.h"
#include "serving/place.h"

namespace heddle::serving {

/// The requests that have not ended: their records, which grow by the tokens that come, and who is
/// told of them. Sinks may call back into the owner, so whatever calls one may find requests gone
/// afterwards. Loop thread.
class RequestTable {
 public:
  struct Entry {
    std::shared_ptr<core::RequestRecord> record{};
    std::shared_ptr<core::RequestSink> sink{};
    std::optional<Place> place{};    ///< Where it runs; none while it waits.
    std::size_t tokens_brought = 0;  ///< That its record had when it came there.
    bool held = false;               ///< It waits for its model, and its sink was told so.

    /// It runs there from now on.
    void send_to(const Place& to);
  };

  /// The record's id is new; `generated` and `finished` get a place for each choice.
  void add(std::shared_ptr<core::RequestRecord> record, std::shared_ptr<core::RequestSink> sink);
  /// Null when it has ended.
  [[nodiscard]] Entry* find(RequestId request);
  [[nodiscard]] const Entry* find(RequestId request) const;
  /// Takes the request out; nothing when it has ended.
  std::optional<Entry> remove(RequestId request);
  /// A worker has died: its requests wait again. Gives what the manager is to hear of it.
  [[nodiscard]] core::PlaceLost lose(const Place& place, Instant now);
  /// The sinks of those that wait for the model and were told so.
  [[nodiscard]] std::vector<std::shared_ptr<core::RequestSink>> held_for(ModelId model) const;

  /// Appends tokens to the records and tells the sinks. A position that the record has already is
  /// a duplicate, from before a worker's death, and dropped; so is whatever comes for a choice or
  /// request that has ended. Returns the requests that are complete by it, out of the table; their
  /// sinks have yet to hear on_done.
  [[nodiscard]] std::vector<Entry> accept(const std::vector<core::TokenEvent>& tokens, Instant now);

  /// All of them, by id, for a manager that does not know where they are.
  [[nodiscard]] std::vector<core::Unfinished> unfinished(Instant now) const;

  /// What the core is to hear of a request when it comes. Clocks of other processes are not this
  /// one's: what they hear of is time that is left.
  [[nodiscard]] static core::RequestArrived arrival(const core::RequestRecord& record, Instant now);
  /// What a worker needs to run the rest of a request whose first token is due in `due`.
  [[nodiscard]] static core::Submit submission(const core::RequestRecord& record,
                                               Duration due,
                                               Instant now);
  /// What the core is to hear of a request that has ended well.
  [[nodiscard]] static core::RequestFinished report(const core::RequestRecord& record);
  /// Whether all choices have ended.
  [[nodiscard]] static bool complete(const core::RequestRecord& record);

 private:
  std::map<RequestId, Entry> entries_{};
};

}  // namespace heddle::serving
