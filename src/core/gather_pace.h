#pragma once

#include <cstdint>
#include <optional>

#include "base/time.h"
#include "policy/batching.h"

namespace heddle::core {

/// How much KV of a pipeline's requests is on its way to the whole model at once. Messages between
/// stages wait behind it, and every token waits for those. So it is doubled while it comes back
/// about as soon as a little does, and halved where it takes longer: then it waits in the queues of
/// a link, or of a stage. A value; `now` does not go back.
class GatherPace {
 public:
  /// Tokens beyond those that have come for which KV may be asked.
  [[nodiscard]] std::int64_t tokens() const { return tokens_; }

  /// KV of the sequence's first `end` positions has been asked for.
  void asked(policy::SequenceId sequence, std::int64_t end, Instant now);
  /// Its first `there` positions have come, and come in blocks of so many.
  void came(policy::SequenceId sequence,
            std::int64_t there,
            std::int64_t block_tokens,
            Instant now);
  /// What was asked for is for nobody any more.
  void forget() { timed_.reset(); }

 private:
  /// What is awaited, to see how long it takes.
  struct Timed {
    policy::SequenceId sequence{};
    std::int64_t end = 0;
    Instant since{};
  };
  std::int64_t tokens_ = 1;
  std::optional<Duration> quickest_{};
  std::optional<Timed> timed_{};
};

}  // namespace heddle::core
