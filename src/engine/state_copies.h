#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "engine/model_kv.h"
#include "engine/prefix_keys.h"

namespace heddle::engine {

/// Copies of the states of a model's layers of linear attention, which passes make for the prefix
/// cache: where they are made (policy/state_points.h), and who has them. Passed by value; used as
/// ModelKv is, which outlives it. Of a model without such layers nothing is done.
class StateCopies {
 public:
  explicit StateCopies(ModelKv& kv) : kv_(&kv) {}

  /// As KeptStates::copy_by().
  void copy_by(device::Stream& stream) { kv_->states_.copy_by(stream); }

  /// Has room for the copies that the next pass is to make of a sequence with so many tokens of
  /// prompt. The pass is over positions [begin, tokens.size()), whose blocks are there; `tokens`
  /// are those of the sequence up to its end. Where there is no room there are fewer copies.
  void prepare(SequenceKv& sequence,
               const PrefixKeys& keys,
               std::span<const TokenId> tokens,
               std::int64_t begin,
               std::int64_t prompt);
  /// The pass has made them: from now on they are found.
  void keep(SequenceKv& sequence) { kv_->states_.keep(sequence.states_); }
  /// It has given up.
  void drop(SequenceKv& sequence) { kv_->states_.drop(sequence.states_); }

 private:
  ModelKv* kv_;
};

}  // namespace heddle::engine
