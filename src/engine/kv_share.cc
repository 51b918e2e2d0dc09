#include "engine/kv_share.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/engine_impl.h"
#include "engine/kv_copy.h"

namespace heddle::engine {
namespace {

/// Of a prefix of so many tokens, whose states go with it in equal parts.
std::int64_t positions_at_once(const KvPlan& plan, std::int64_t prefix) {
  auto each = static_cast<std::size_t>(state_size(plan) / std::max<std::int64_t>(prefix, 1));
  for (std::int64_t layer = plan.range.begin; layer < plan.range.end; ++layer) {
    each += plan.state_parts(layer).empty() ? plan.position_bytes(layer) : 0;
  }
  return static_cast<std::int64_t>(
      std::max<std::size_t>(kKvPartBytes / std::max<std::size_t>(each, 1), 1));
}

/// Whether a layer is on its way by positions.
bool has_positions(const KvPlan& plan, std::int64_t layer) {
  return plan.state_parts(layer).empty();
}

/// The part of the states that goes with positions [0, position) of a prefix.
std::int64_t state_part(const KvPlan& plan, std::int64_t position, std::int64_t prefix) {
  return prefix == 0 ? 0 : state_size(plan) * position / prefix;
}

bool slides(const KvPlan& plan) {
  return std::any_of(plan.groups.begin(),
                     plan.groups.begin() + static_cast<std::ptrdiff_t>(plan.kv_groups()),
                     [](const KvGroupPlan& group) { return group.window > 0; });
}

/// Whether the parts, in order of their layers, have all layers of the plan at the same positions
/// from `begin` on, and as many bytes as they say.
bool are_whole(const KvPlan& plan, std::int64_t begin, const std::vector<KvPart>& parts) {
  std::int64_t layer = plan.range.begin;
  for (const KvPart& part : parts) {
    std::size_t bytes = static_cast<std::size_t>(state_part(plan, part.end, part.prefix) -
                                                 state_part(plan, part.begin, part.prefix));
    for (const std::int64_t from : part.from) {
      const bool stands =
          layer < plan.range.end && (has_positions(plan, layer) || from == part.end);
      if (from < part.begin || from > part.end || !stands) {
        return false;
      }
      bytes += plan.position_bytes(layer) * static_cast<std::size_t>(part.end - from);
      ++layer;
    }
    const bool beyond = state_size(plan) > 0 && part.end > part.prefix;
    if (part.first_layer != layer - std::ssize(part.from) || part.begin != begin ||
        part.end <= begin || part.end != parts.front().end || beyond ||
        bytes != part.bytes.size()) {
      return false;
    }
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
      std::min({wanted.end, part.prefix, wanted.begin + positions_at_once(kv.plan(), part.prefix)});
  if (wanted.begin >= 0 && end > wanted.begin) {
    part.end = end;
    for (std::int64_t layer = part.first_layer; layer < kv.plan().range.end; ++layer) {
      if (!has_positions(kv.plan(), layer)) {
        part.from.push_back(part.end);
        continue;
      }
      const auto from =
          copy_out(device_, *stream_, kv, cached, layer, {part.begin, part.end}, part.bytes);
      if (!from) {
        return from.error();
      }
      part.from.push_back(*from);
    }
    if (cached.states().resumed) {
      const auto copied = copy_states_out(device_,
                                          *stream_,
                                          kv,
                                          cached.states().resumed->blocks,
                                          state_part(kv.plan(), part.begin, part.prefix),
                                          state_part(kv.plan(), part.end, part.prefix),
                                          part.bytes);
      if (!copied) {
        return copied.error();
      }
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
  // States come with all of a prefix, what is here of it too.
  const Fetch begun{.goal = own.size() - 1,
                    .there = state_size(plan) > 0 ? 0 : own.computed,
                    .incomplete = std::vector<std::int64_t>(plan.groups.size()),
                    .states = {}};
  const Fetch& fetch = fetches_.try_emplace(id, begun).first->second;
  if (fetch.goal <= std::max(fetch.there, own.computed)) {
    return std::nullopt;
  }
  const std::int64_t border = fetch.there < own.computed ? own.computed : fetch.goal;
  return KvWanted{.model = own.start.model,
                  .cache_salt = own.start.cache_salt,
                  .tokens = {own.start.tokens.begin(), own.start.tokens.begin() + fetch.goal},
                  .begin = fetch.there,
                  .end = std::min(border, fetch.there + positions_at_once(plan, fetch.goal))};
}

/// Copies the parts in, where there are pages. Whether there were.
Result<bool> Engine::Impl::copy_parts(const std::vector<KvPart>& parts,
                                      Sequence& own,
                                      Fetch& fetch) {
  ModelKv& kv = mutable_model(own.start.model).kv;
  const std::int64_t end = parts.front().end;
  const bool lacks = end > own.computed;  // Else they are of a prefix that was found here.
  if (lacks && !kv.grow(own.kv, end)) {
    return false;
  }
  std::int64_t layer = kv.plan().range.begin;
  for (const KvPart& part : parts) {
    std::string_view rest = part.bytes;
    for (const std::int64_t from : part.from) {
      const auto bytes = kv.plan().position_bytes(layer) * static_cast<std::size_t>(end - from);
      if (lacks && has_positions(kv.plan(), layer)) {
        if (const auto done =
                copy_in(device_, *stream_, kv, own.kv, layer, {from, end}, rest.substr(0, bytes));
            !done) {
          return done.error();
        }
        std::int64_t& incomplete = fetch.incomplete[kv.plan().place(layer).group];
        incomplete = std::max(incomplete, from > part.begin ? from : 0);
      }
      rest.remove_prefix(bytes);
      ++layer;
    }
    fetch.states += rest;
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
  const bool states = state_size(kv.plan()) > 0;
  const std::int64_t prefix = parts.front().prefix;
  const bool another = fetch.there > 0 && prefix != fetch.prefix;
  if (states && (another || prefix <= own.computed)) {
    return KvHave{.computed = end_fetch(id), .done = true};
  }
  fetch.prefix = prefix;
  const Result<bool> copied = copy_parts(parts, own, fetch);
  if (!copied) {
    return copied.error();
  }
  if (!*copied) {
    return KvHave{.computed = end_fetch(id), .done = true};
  }
  // Before its end there is no place where a window is whole, or a state.
  const bool ends = fetch.there == fetch.goal;
  if (ends && states) {
    std::vector<memory::KvBlockRef> blocks;
    for (std::size_t g = kv.plan().kv_groups(); g < kv.plan().groups.size(); ++g) {
      blocks.push_back(own.kv.groups()[g].blocks.front());
    }
    if (const auto put = copy_states_in(device_, *stream_, kv, blocks, fetch.states); !put) {
      return put.error();
    }
  }
  if ((ends || !(states || slides(kv.plan()))) && goes_on_from(fetch, kv.plan())) {
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
