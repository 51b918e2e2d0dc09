#include "engine/state_copies.h"

#include "policy/state_points.h"

namespace heddle::engine {
void StateCopies::prepare(SequenceKv& sequence,
                          const PrefixKeys& keys,
                          std::span<const TokenId> tokens,
                          std::int64_t begin,
                          std::int64_t prompt) {
  const KvPlan& plan = kv_->plan_;
  if (!kv_->states_.any()) {
    return;
  }
  const std::int64_t block = plan.aligned_tokens();
  const auto points = policy::state_points(
      {.begin = begin,
       .end = std::ssize(tokens),
       .prompt = prompt,
       .block = block,
       .apart = policy::state_spacing(plan.state_bytes(), plan.token_bytes(), block),
       .parted = sequence.states_.parted});
  kv_->extend_keys(sequence, keys, tokens);
  for (const policy::StatePoint& point : points) {
    kv_->states_.prepare(sequence.states_,
                         {.length = point.length,
                          .key = ModelKv::key_of(sequence, plan, point.length),
                          .lasting = point.lasting},
                         kv_->pages_used());
  }
}

}  // namespace heddle::engine
