#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "device/device.h"
#include "engine/engine.h"
#include "ops/guest_attention.h"

namespace heddle::engine {

/// KV of an engine's sequences on pages that another device lends (WEAVER;
/// docs/contracts/guests.md). Passed by value; used by the engine thread, between steps.
class Guests {
 public:
  /// Pages of another device, that this one can address, come in for KV of a model. They stay the
  /// other's. Page 0 of what they are of is at `memory`, the same for all that a model has;
  /// nullptr: with page 0 of this device, as parts of one arena are. kFailedPrecondition, with the
  /// reason, on devices that cannot have guests.
  Result<void> lend(ModelId model,
                    std::span<const device::PageId> pages,
                    std::byte* memory = nullptr);
  /// Gives up to `count` of them back that hold nothing, the highest first.
  std::vector<device::PageId> give_back(ModelId model, std::int64_t count);
  /// Who runs attention over what is on lent pages, from the next step on; nullptr: this engine,
  /// which gives the same bits. Outlives the model or the next call.
  void set_host(ModelId model, ops::AttentionHost* host);

  /// Moves the KV of the first positions of a decoding sequence to lent pages, as many as have been
  /// computed, are no more than `tokens` and can be moved; frees their pages here. How many are
  /// away then. kResourceExhausted, and nothing has changed, where too few lent pages are free.
  Result<std::int64_t> move_out(SequenceId id, std::int64_t tokens);
  /// Moves them back. kResourceExhausted, and nothing has changed, where too few pages are free;
  /// Engine::preempt gives the lent ones up all the same.
  Result<void> move_home(SequenceId id);

  /// Positions of the sequence that are away.
  [[nodiscard]] std::int64_t tokens(SequenceId id) const;
  /// Lent pages of a model, and those of them that hold guests.
  [[nodiscard]] std::int64_t lent_pages(ModelId model) const;
  [[nodiscard]] std::int64_t used_pages(ModelId model) const;

 private:
  friend class Engine;
  explicit Guests(Engine::Impl& engine) : engine_(&engine) {}
  Engine::Impl* engine_;
};

}  // namespace heddle::engine
