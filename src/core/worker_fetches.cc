#include <algorithm>
#include <chrono>
#include <cstdint>

#include "core/worker_core_impl.h"

/// KV of requests that ran elsewhere, from those who have it (docs/contracts/kv.md). KV is a hint:
/// whatever cannot be had is computed.
namespace heddle::core {
namespace {

using namespace std::chrono_literals;

/// So long a request waits whatever computing is said to take: of a model that has just come that
/// is a guess.
constexpr Duration kPatience = 250ms;

}  // namespace

/// Once it is known what is cached here, and before anything of it is computed. It waits no longer
/// than computing all of it would take, as far as that is known.
void WorkerCore::Impl::begin_fetch(const Sequence& sequence) {
  act(FetchKv{.sequence = sequence.id, .from = sequence.kv});
  sequences_.set_fetch(sequence.id, now_ + std::max(kPatience, prefill_left(sequence)));
}

void WorkerCore::Impl::on(const KvFetched& fetched) {
  const Sequence* sequence = sequences_.find(fetched.sequence);
  if (sequence == nullptr || !sequence->fetches) {
    on(fetched.counted);
    return;
  }
  sequences_.take_prefix(fetched.sequence, fetched.computed);
  on(fetched.counted);
  const bool late = now_ >= *sequence->fetches;
  if (!fetched.done && !late) {
    act(FetchKv{.sequence = fetched.sequence, .from = sequence->kv});
    return;
  }
  if (!fetched.done) {
    act(EndFetch{.sequence = fetched.sequence});
  }
  end_fetch(fetched.sequence);
}

/// The sequence goes on with what it has. Once all choices do, nobody needs what others have.
void WorkerCore::Impl::end_fetch(SequenceId id) {
  sequences_.set_fetch(id, std::nullopt);
  const Sequence& sequence = *sequences_.find(id);
  const std::int64_t lacks = sequence.begun ? sequence.tokens - 1 - sequence.computed : 0;
  const std::vector<SequenceId> choices = sequences_.of_request(sequence.request);
  const bool all = std::ranges::all_of(
      choices, [this](SequenceId choice) { return sequences_.find(choice)->kv.empty(); });
  say(KvMoved{.model = sequence.model,
              .tokens = static_cast<std::uint64_t>(sequence.computed),
              .computed = static_cast<std::uint64_t>(lacks),
              .request = all ? sequence.request : RequestId{}});
}

}  // namespace heddle::core
