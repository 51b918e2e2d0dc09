#pragma once

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "core/manager/events.h"
#include "core/serving.h"

namespace heddle::serving {

/// The requests for external engines that have not ended. Sinks may call back into the
/// owner, so whatever calls one may find requests gone afterwards. Loop thread.
class ExternalRequests {
 public:
  struct Entry {
    std::shared_ptr<core::ExternalRequest> request{};
    std::shared_ptr<core::ExternalSink> sink{};
    bool forwarded = false;  ///< Its sink was told to, and it has not come back.
    bool held = false;       ///< It waits, or waited, for its engine.
  };

  /// The request's id is new.
  void add(std::shared_ptr<core::ExternalRequest> request,
           std::shared_ptr<core::ExternalSink> sink);
  /// Null when it has ended.
  [[nodiscard]] Entry* find(RequestId request);
  /// Takes the request out; nothing when it has ended.
  std::optional<Entry> remove(RequestId request);

  /// Those forwarded to the model's engine, which has died: they count as waiting from now on.
  [[nodiscard]] std::vector<Entry> lose(ModelId model, Instant now);
  /// Notes of those that were forwarded to the model's engine what happened to that; only those
  /// that it was suspended with are awoken.
  void note(ModelId model, core::IncidentKind kind, Instant now);
  /// What a manager hears of the request that it has not heard of.
  [[nodiscard]] static core::RequestArrived arrival(const core::ExternalRequest& request,
                                                    Instant now);
  /// All, by id, with the device of the engine that each was forwarded to.
  [[nodiscard]] std::vector<core::Unfinished> unfinished(Instant now) const;

  /// When the model's engine last sent something of an answer, or was last asked for one; nothing
  /// where nobody waits for its answer.
  [[nodiscard]] std::optional<Instant> silent_since(ModelId model) const;

 private:
  /// Ids are drawn one after the other.
  struct Hash {
    std::size_t operator()(RequestId id) const { return id.value(); }
  };
  std::unordered_map<RequestId, Entry, Hash> entries_{};
};

}  // namespace heddle::serving
