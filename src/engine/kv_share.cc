#include "engine/kv_share.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "engine/engine_impl.h"
#include "engine/kv_copy.h"

namespace heddle::engine {
namespace {

std::int64_t positions_at_once(const KvPlan& plan) {
  const std::size_t each = plan.position_bytes() * static_cast<std::size_t>(plan.range.size());
  return static_cast<std::int64_t>(
      std::max<std::size_t>(kKvPartBytes / std::max<std::size_t>(each, 1), 1));
}

bool slides(const KvPlan& plan) {
  return std::ranges::any_of(plan.groups,
                             [](const KvGroupPlan& group) { return group.window > 0; });
}

/// Whether the parts, in order of their layers, have all layers of the plan at the same positions
/// from `begin` on, and as many bytes as they say.
bool are_whole(const KvPlan& plan, std::int64_t begin, const std::vector<KvPart>& parts) {
  std::int64_t layer = plan.range.begin;
  for (const KvPart& part : parts) {
    std::size_t bytes = 0;
    for (const std::int64_t from : part.from) {
      if (from < part.begin || from > part.end) {
        return false;
      }
      bytes += plan.position_bytes() * static_cast<std::size_t>(part.end - from);
    }
    if (part.first_layer != layer || part.begin != begin || part.end <= begin ||
        part.end != parts.front().end || bytes != part.bytes.size()) {
      return false;
    }
    layer += std::ssize(part.from);
  }
  return layer == plan.range.end;
}

}  // namespace

Result<KvPart> Engine::Impl::give_kv(const KvWanted& wanted) {
  KvPart part{.begin = wanted.begin, .end = wanted.begin};
  const auto found = models_.find(wanted.model);
  if (found == models_.end() || !options_.prefix_cache) {
    return part;
  }
  ModelKv& kv = found->second.kv;
  SequenceKv cached = kv.make_sequence();
  part.prefix =
      kv.take_prefix(cached, PrefixKeys(options_.prefix_secret, wanted.cache_salt), wanted.tokens);
  part.first_layer = kv.plan().range.begin;
  const std::int64_t end =
      std::min({wanted.end, part.prefix, wanted.begin + positions_at_once(kv.plan())});
  if (wanted.begin >= 0 && end > wanted.begin) {
    part.end = end;
    for (std::int64_t layer = part.first_layer; layer < kv.plan().range.end; ++layer) {
      const auto from =
          copy_out(device_, *stream_, kv, cached, layer, {part.begin, part.end}, part.bytes);
      if (!from) {
        return from.error();
      }
      part.from.push_back(*from);
    }
  }
  kv.clear(cached);
  return part;
}

std::optional<KvWanted> Engine::Impl::wanted_kv(SequenceId id) {
  const Sequence& own = sequence(id);
  const KvPlan& plan = model(own.start.model).kv.plan();
  if (!own.prefix || pools(own.start.params) || scores_prompt(own)) {
    return std::nullopt;
  }
  const Fetch begun{.goal = own.size() - 1,
                    .there = own.computed,
                    .incomplete = std::vector<std::int64_t>(plan.groups.size())};
  const Fetch& fetch = fetches_.try_emplace(id, begun).first->second;
  if (fetch.goal <= fetch.there) {
    return std::nullopt;
  }
  return KvWanted{.model = own.start.model,
                  .cache_salt = own.start.cache_salt,
                  .tokens = {own.start.tokens.begin(), own.start.tokens.begin() + fetch.goal},
                  .begin = fetch.there,
                  .end = std::min(fetch.goal, fetch.there + positions_at_once(plan))};
}

/// Copies the parts in, where there are pages. Whether there were.
Result<bool> Engine::Impl::copy_parts(const std::vector<KvPart>& parts,
                                      Sequence& own,
                                      Fetch& fetch) {
  ModelKv& kv = mutable_model(own.start.model).kv;
  const std::int64_t end = parts.front().end;
  if (!kv.grow(own.kv, end)) {
    return false;
  }
  std::int64_t layer = kv.plan().range.begin;
  for (const KvPart& part : parts) {
    std::string_view rest = part.bytes;
    for (const std::int64_t from : part.from) {
      const auto bytes = kv.plan().position_bytes() * static_cast<std::size_t>(end - from);
      if (const auto done =
              copy_in(device_, *stream_, kv, own.kv, layer, {from, end}, rest.substr(0, bytes));
          !done) {
        return done.error();
      }
      rest.remove_prefix(bytes);
      std::int64_t& incomplete = fetch.incomplete[kv.plan().place(layer).group];
      incomplete = std::max(incomplete, from > part.begin ? from : 0);
      ++layer;
    }
  }
  fetch.there = end;
  return true;
}

/// Whether a sequence can go on from where its KV has come to: what it attends to is there.
bool Engine::Impl::goes_on_from(const Fetch& fetch, const KvPlan& plan) {
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    const std::int64_t window = plan.groups[g].window;
    const std::int64_t first =
        window == 0 ? 0 : std::max<std::int64_t>(fetch.there - window + 1, 0);
    if (fetch.incomplete[g] > first) {
      return false;
    }
  }
  return true;
}

Result<KvHave> Engine::Impl::put_kv(SequenceId id, std::vector<KvPart> parts) {
  Sequence& own = sequence(id);
  Fetch& fetch = fetches_.at(id);
  ModelKv& kv = mutable_model(own.start.model).kv;
  std::ranges::sort(parts, {}, &KvPart::first_layer);
  if (parts.empty() || !are_whole(kv.plan(), fetch.there, parts)) {
    return KvHave{.computed = end_fetch(id), .done = true};
  }
  for (const KvPart& part : parts) {
    fetch.goal = std::clamp(part.prefix, part.end, fetch.goal);
  }
  const Result<bool> copied = copy_parts(parts, own, fetch);
  if (!copied) {
    return copied.error();
  }
  if (!*copied) {
    return KvHave{.computed = end_fetch(id), .done = true};
  }
  // Before its end there is no place where a window is whole.
  const bool ends = fetch.there == fetch.goal;
  if ((ends || !slides(kv.plan())) && goes_on_from(fetch, kv.plan())) {
    own.computed = fetch.there;
    for (std::size_t g = 0; g < fetch.incomplete.size(); ++g) {
      const std::int64_t live = static_cast<std::int64_t>(own.kv.groups()[g].first_live) *
                                kv.plan().groups[g].geometry.block_tokens;
      fetch.incomplete[g] = std::max(fetch.incomplete[g], live);
    }
    const auto there = std::span(own.start.tokens).first(static_cast<std::size_t>(own.computed));
    kv.keep_prefix(own.kv, *own.prefix, there, fetch.incomplete);
    own.reused = own.begun ? own.reused : own.computed;
  }
  kv.slide(own.kv, slides(kv.plan()) ? fetch.goal : own.computed);
  return KvHave{.computed = ends ? end_fetch(id) : own.computed, .done = ends};
}

/// What has come beyond the place where it goes on is of no use; and where windows have slid on
/// meanwhile, nothing is.
std::int64_t Engine::Impl::end_fetch(SequenceId id) {
  const auto found = fetches_.find(id);
  if (found == fetches_.end()) {
    return sequence(id).computed;
  }
  Sequence& own = sequence(id);
  ModelKv& kv = mutable_model(own.start.model).kv;
  if (own.computed < found->second.there) {
    own.computed = slides(kv.plan()) ? 0 : own.computed;
    kv.shrink(own.kv, own.computed);
  }
  fetches_.erase(found);
  return own.computed;
}

// ---- What others see ----

KvShares::KvShares(Engine& engine) : engine_(engine.impl_.get()) {}

Result<KvPart> KvShares::give(const KvWanted& wanted) {
  return engine_->give_kv(wanted);
}

std::optional<KvWanted> KvShares::wanted(SequenceId sequence) {
  return engine_->wanted_kv(sequence);
}

Result<KvHave> KvShares::put(SequenceId sequence, std::vector<KvPart> parts) {
  return engine_->put_kv(sequence, std::move(parts));
}

std::int64_t KvShares::end(SequenceId sequence) {
  return engine_->end_fetch(sequence);
}

}  // namespace heddle::engine
