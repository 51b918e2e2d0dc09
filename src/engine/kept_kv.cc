#include "engine/kept_kv.h"

#include <algorithm>
#include <cstdint>

#include "base/clock.h"
#include "engine/engine_impl.h"
#include "engine/stored_kv.h"
#include "policy/kv_return.h"
#include "spec/operations.h"

/// KV that is kept beside the cached prefixes (memory::KvStore): which models' is, and when it is
/// brought back.
namespace heddle::engine {

/// Of whole models. The ranks of a sharded one run short together, and the stages of a cut one know
/// the same prefixes; what one of them kept, the others might not have.
memory::KvKeeper Engine::Impl::keeper_of(ModelId id, const spec::ModelSpec& spec) {
  const bool whole = spec.shard.ranks == 1 && spec.stage.ends.empty();
  return {.store = whole ? store_.get() : nullptr, .origin = {.model = id}};
}

/// Has come back what the sequence would find of its tokens, but for the last.
void Engine::Impl::bring_back(Sequence& own, Duration computing) {
  StoredKv stored(mutable_model(own.start.model).kv);
  const Duration per_token = computing / std::max<std::int64_t>(own.size(), 1);
  if (per_token > Duration{}) {
    stored.set_token_value(static_cast<double>(per_token.count()));
  }
  const auto worth = [&](const StoredKv::Found& found) {
    const bool quicker = policy::worth_bringing_back({.pages = found.pages,
                                                      .per_page = page_back_,
                                                      .tokens = found.tokens,
                                                      .per_token = per_token});
    declined_tokens_ += quicker ? 0 : static_cast<std::uint64_t>(found.tokens);
    return quicker;
  };
  const Instant began = steady_now();
  const auto all_but_last = std::span(own.start.tokens).first(own.start.tokens.size() - 1);
  const StoredKv::Found back = stored.bring_back(own.kv, *own.prefix, all_but_last, worth);
  if (back.pages > 0) {
    page_back_ = policy::with_measured(page_back_, (steady_now() - began) / back.pages);
    counts_[own.start.model].host_tokens += static_cast<std::uint64_t>(back.tokens);
  }
}

// ---- What others see ----

KeptKv::KeptKv(const Engine& engine) : engine_(engine.impl_.get()) {}

void KeptKv::forget(ModelId id) {
  if (const auto found = engine_->models_.find(id); found != engine_->models_.end()) {
    StoredKv(found->second.kv).keep_nothing();
  }
  if (engine_->store_ != nullptr) {
    engine_->store_->forget(id);
  }
}

KeptCounts KeptKv::counts() const {
  const memory::KvStore* store = engine_->store_.get();
  if (store == nullptr) {
    return {};
  }
  return {.pages = store->pages(),
          .held = store->held(),
          .store = store->counts(),
          .declined_tokens = engine_->declined_tokens_};
}

}  // namespace heddle::engine
