#include "engine/step_digest.h"

#include <vector>

#include "base/siphash.h"

namespace heddle::engine {

std::uint64_t step_digest(std::span<const PassSlice> slices, std::int64_t room) {
  std::vector<std::int64_t> facts{room};
  for (const PassSlice& slice : slices) {
    const Sequence& sequence = *slice.sequence;
    const auto tokens = std::span(sequence.start.tokens)
                            .subspan(static_cast<std::size_t>(sequence.computed),
                                     static_cast<std::size_t>(slice.tokens));
    facts.insert(facts.end(),
                 {sequence.computed,
                  slice.tokens,
                  slice.samples() ? 1 : 0,
                  slice.pooled_rows(),
                  slice.scored_rows()});
    facts.insert(facts.end(), tokens.begin(), tokens.end());
  }
  return siphash({}, std::as_bytes(std::span(facts))).low;
}

}  // namespace heddle::engine
