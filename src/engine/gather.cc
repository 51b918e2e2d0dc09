#include "engine/gather.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "base/div_up.h"
#include "engine/engine_impl.h"
#include "engine/kv_copy.h"
#include "engine/pipe.h"

namespace heddle::engine {
namespace {

/// Bytes that layers have of so many positions.
std::size_t bytes_of(const ModelKv& kv, spec::LayerRange layers, std::int64_t positions) {
  std::size_t bytes = 0;
  for (std::int64_t layer = layers.begin; layer < layers.end; ++layer) {
    bytes += kv.plan().position_bytes(layer) * static_cast<std::size_t>(positions);
  }
  return bytes;
}

/// Layers of the whole model that a piece carries: those behind the first stage's.
spec::LayerRange carried_layers(const ModelKv& stage, const ModelKv& whole) {
  return {.begin = stage.plan().range.end, .end = whole.plan().range.end};
}

bool alike(const ModelKv& stage, const ModelKv& whole) {
  return stage.plan().range.begin == 0 && whole.plan().range.contains(stage.plan().range) &&
         stage.plan().dtype == whole.plan().dtype &&
         bytes_of(stage, stage.plan().range, 1) == bytes_of(whole, stage.plan().range, 1);
}

}  // namespace

/// Begins, with what the whole model has of it already.
Engine::Impl::Gather& Engine::Impl::gather(SequenceId id, ModelId into) {
  const auto found = gathers_.find(id);
  if (found != gathers_.end()) {
    return found->second;
  }
  const Sequence& own = sequence(id);
  ModelKv& whole = mutable_model(into).kv;
  Gather begun{.model = own.start.model, .into = into, .kv = whole.make_sequence()};
  begun.incomplete.resize(whole.plan().groups.size());
  begun.failed = !own.prefix || pools(own.start.params) || scores_prompt(own) ||
                 !alike(model(own.start.model).kv, whole);
  if (!begun.failed) {
    const auto computed = std::span(own.start.tokens).first(static_cast<std::size_t>(own.computed));
    begun.keys = own.prefix;
    begun.usable = whole.take_prefix(begun.kv, *own.prefix, computed);
    begun.tokens.assign(computed.begin(), computed.begin() + begun.usable);
    begun.there = begun.usable;
  }
  return gathers_.emplace(id, std::move(begun)).first->second;
}

GatherState Engine::Impl::state_of(const Gather& gather) const {
  return {.asked = std::ssize(gather.tokens),
          .there = gather.there,
          .usable = gather.usable,
          .block_tokens = model(gather.into).kv.plan().aligned_tokens(),
          .failed = gather.failed};
}

/// One piece more, up to `end`: what the leader has of it is copied at once.
Result<KvPiece> Engine::Impl::ask_piece(Gather& gather, const Sequence& own, std::int64_t end) {
  ModelKv& whole = mutable_model(gather.into).kv;
  const ModelKv& stage = model(own.start.model).kv;
  const std::int64_t begin = std::ssize(gather.tokens);
  KvPiece piece{.model = own.start.model,
                .number = pieces_asked_ + 1,
                .sequence = own.start.id,
                .begin = begin,
                .end = end};
  if (!whole.grow(gather.kv, end)) {
    gather.failed = true;
    return piece;
  }
  Gather::Asked asked{.number = piece.number, .begin = begin, .end = end};
  const spec::LayerRange layers = stage.plan().range;
  for (std::int64_t layer = layers.begin; layer < layers.end; ++layer) {
    std::string bytes;
    const auto from = copy_out(device_, *stream_, stage, own.kv, layer, {begin, end}, bytes);
    if (!from) {
      return from.error();
    }
    if (const auto done = copy_in(device_, *stream_, whole, gather.kv, layer, {*from, end}, bytes);
        !done) {
      return done.error();
    }
    asked.from.push_back(*from);
  }
  ++pieces_asked_;
  gather.asked.push_back(std::move(asked));
  const auto tokens = std::span(own.start.tokens);
  gather.tokens.insert(gather.tokens.end(), tokens.begin() + begin, tokens.begin() + end);
  return piece;
}

Result<GatherState> Engine::Impl::ask(SequenceId id,
                                      ModelId into,
                                      std::int64_t tokens,
                                      std::vector<KvPiece>& pieces) {
  Gather& gathered = gather(id, into);
  const Sequence& own = sequence(id);
  tokens = std::min(tokens, own.computed);
  const ModelKv& whole = model(into).kv;
  const spec::LayerRange layers = carried_layers(model(own.start.model).kv, whole);
  const std::size_t each = std::max<std::size_t>(bytes_of(whole, layers, 1), 1);
  const auto most = static_cast<std::int64_t>(
      std::max<std::size_t>(options_.gather_bytes / kGatherPieces / each, 1));
  // Several, so that the stages add to them at the same time.
  const std::int64_t part =
      div_up(tokens - std::ssize(gathered.tokens), std::int64_t{kGatherPieces});
  while (!gathered.failed && std::ssize(gathered.tokens) < tokens &&
         gathered.asked.size() < kGatherPieces) {
    const std::int64_t end = std::min(std::ssize(gathered.tokens) + std::min(part, most), tokens);
    Result<KvPiece> piece = ask_piece(gathered, own, end);
    if (!piece) {
      return piece.error();
    }
    if (!gathered.failed) {
      pieces.push_back(std::move(*piece));
    }
  }
  return state_of(gathered);
}

Result<void> Engine::Impl::add_to(KvPiece& piece) {
  const Model& model = mutable_model(piece.model);
  const auto found = model.followed.find(piece.sequence);
  const bool right = found != model.followed.end() && piece.begin < piece.end &&
                     piece.end <= found->second.computed && !piece.refused;
  if (!right) {
    piece.refused = true;
    piece.from.clear();
    piece.bytes.clear();
    return {};
  }
  const spec::LayerRange layers = model.kv.plan().range;
  for (std::int64_t layer = layers.begin; layer < layers.end; ++layer) {
    const auto from = copy_out(device_,
                               *stream_,
                               model.kv,
                               found->second.kv,
                               layer,
                               {piece.begin, piece.end},
                               piece.bytes);
    if (!from) {
      return from.error();
    }
    piece.from.push_back(*from);
  }
  return {};
}

/// Whether a piece has what its frame says of it.
bool Engine::Impl::is_whole(const KvPiece& piece, const Gather& gather) const {
  const ModelKv& whole = model(gather.into).kv;
  const auto layers = carried_layers(model(piece.model).kv, whole);
  if (std::ssize(piece.from) != layers.size()) {
    return false;
  }
  std::size_t bytes = 0;
  std::int64_t layer = layers.begin;
  for (const std::int64_t from : piece.from) {
    if (from < piece.begin || from > piece.end) {
      return false;
    }
    bytes += bytes_of(whole, {.begin = layer, .end = layer + 1}, piece.end - from);
    ++layer;
  }
  return bytes == piece.bytes.size();
}

Result<std::optional<GatherState>> Engine::Impl::put(const KvPiece& piece) {
  const auto found = gathers_.find(piece.sequence);
  if (found == gathers_.end() || found->second.asked.empty() ||
      found->second.asked.front().number != piece.number) {
    return std::optional<GatherState>();
  }
  Gather& gather = found->second;
  const Gather::Asked asked = std::move(gather.asked.front());
  gather.asked.pop_front();
  gather.failed = gather.failed || piece.refused;
  if (gather.failed) {
    return std::optional(state_of(gather));
  }
  if (piece.begin != asked.begin || piece.end != asked.end || !is_whole(piece, gather)) {
    return Error{Code::kCorrupt,
                 "KV of positions " + std::to_string(asked.begin) + " to " +
                     std::to_string(asked.end) + " of a pipeline's sequence is not what was asked"};
  }
  ModelKv& whole = mutable_model(gather.into).kv;
  std::string_view rest = piece.bytes;
  std::int64_t layer = carried_layers(model(piece.model).kv, whole).begin;
  for (const std::int64_t from : piece.from) {
    const std::string_view part =
        rest.substr(0, bytes_of(whole, {.begin = layer, .end = layer + 1}, piece.end - from));
    rest.remove_prefix(part.size());
    if (const auto done =
            copy_in(device_, *stream_, whole, gather.kv, layer, {from, piece.end}, part);
        !done) {
      return done.error();
    }
    ++layer;
  }
  take_in(gather, asked, piece.from);
  return std::optional(state_of(gather));
}

/// All layers have it: blocks that are complete can be found. What a window has left goes.
void Engine::Impl::take_in(Gather& gather,
                           const Gather::Asked& asked,
                           const std::vector<std::int64_t>& others) {
  ModelKv& whole = mutable_model(gather.into).kv;
  std::vector<std::int64_t> from = asked.from;
  from.insert(from.end(), others.begin(), others.end());
  for (std::size_t layer = 0; layer < from.size(); ++layer) {
    const std::size_t group = whole.plan().place(static_cast<std::int64_t>(layer)).group;
    const std::int64_t lacks = from[layer] > asked.begin ? from[layer] : 0;
    gather.incomplete[group] = std::max(gather.incomplete[group], lacks);
    // What has no window lacks nothing, unless it is away on another device.
    gather.failed = gather.failed || (lacks > 0 && whole.plan().groups[group].window == 0);
  }
  if (gather.failed) {
    return;
  }
  gather.there = asked.end;
  const auto there = std::span(gather.tokens).first(static_cast<std::size_t>(gather.there));
  whole.keep_prefix(gather.kv, *gather.keys, there, gather.incomplete);
  gather.usable = whole.cached_length(gather.kv, gather.there);
  whole.slide(gather.kv, gather.there);
}

void Engine::Impl::end_gather(SequenceId id) {
  const auto found = gathers_.find(id);
  if (found != gathers_.end()) {
    mutable_model(found->second.into).kv.clear(found->second.kv);
    gathers_.erase(found);
  }
}

// ---- What others see ----

Gathers Pipes::gathers() const {
  return Gathers(*engine_);
}

Result<GatherState> Gathers::ask(SequenceId sequence,
                                 ModelId into,
                                 std::int64_t tokens,
                                 std::vector<KvPiece>& pieces) {
  return engine_->ask(sequence, into, tokens, pieces);
}

Result<void> Gathers::add(KvPiece& piece) {
  return engine_->add_to(piece);
}

Result<std::optional<GatherState>> Gathers::put(const KvPiece& piece) {
  return engine_->put(piece);
}

void Gathers::end(SequenceId sequence) {
  engine_->end_gather(sequence);
}

}  // namespace heddle::engine
