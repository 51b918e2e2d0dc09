#include "engine/pass.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "engine/banned_tokens.h"
#include "engine/philox.h"
#include "ops/send.h"
#include "spec/operations.h"

namespace heddle::engine {
namespace {

/// The id of a token that is not known yet.
constexpr TokenId kUnknown = 0;

ops::SampleRow sample_row(const PassSlice& slice) {
  const spec::SamplingParams& params = slice.sequence->start.params;
  const std::int64_t draw = slice.sequence->generated() + (slice.ahead() ? 1 : 0);
  return {.temperature = params.temperature,
          .top_p = params.top_p,
          .min_p = params.min_p,
          .top_k = params.top_k,
          .uniform = uniform_draw(params.seed, params.choice, static_cast<std::uint64_t>(draw))};
}

BatchSlice batch_slice(const PassSlice& slice) {
  const Sequence& sequence = *slice.sequence;
  return {.ids = slice.ahead() ? std::span(&kUnknown, 1)
                               : std::span(sequence.start.tokens)
                                     .subspan(static_cast<std::size_t>(sequence.computed),
                                              static_cast<std::size_t>(slice.tokens)),
          .first_position = slice.first_position(),
          .kv = &sequence.kv,
          .second_text = sequence.start.params.second_text};
}

/// The rows of slices whose sequences go through adapters, those side by side as one.
std::vector<AdapterRows> adapter_rows(std::span<const PassSlice> slices) {
  std::vector<AdapterRows> groups;
  std::int64_t first = 0;
  for (const PassSlice& slice : slices) {
    const AdapterWeights* weights = slice.sequence->adapter;
    const bool same = !groups.empty() && groups.back().weights == weights &&
                      groups.back().first + groups.back().rows == first;
    if (weights != nullptr && same) {
      groups.back().rows += slice.tokens;
    } else if (weights != nullptr) {
      groups.push_back({.first = first, .rows = slice.tokens, .weights = weights});
    }
    first += slice.tokens;
  }
  return groups;
}

/// Behind which of a pass's rows each slice ends, if each has so many.
std::vector<std::int64_t> ends_of(std::span<const PassSlice> slices,
                                  std::int64_t (*rows)(const PassSlice&)) {
  std::vector<std::int64_t> ends;
  std::int64_t end = 0;
  for (const PassSlice& slice : slices) {
    ends.push_back(end += rows(slice));
  }
  return ends;
}

}  // namespace

std::size_t recurring_rows(std::size_t sequences) {
  const std::size_t step = std::max<std::size_t>(std::bit_ceil(sequences) / 8, 1);
  return (sequences + step - 1) / step * step;
}

std::int64_t PassSlice::pooled_rows() const {
  switch (sequence->start.params.pooling) {
    case spec::Pooling::kNone:
      return 0;
    case spec::Pooling::kLast:
      return last() ? 1 : 0;
    case spec::Pooling::kMean:
      return tokens;
    case spec::Pooling::kFirst:
      return first_position() == 0 ? 1 : 0;
  }
  return 0;
}

std::int64_t PassSlice::scored_rows() const {
  // The last token of the prompt is followed by what is sampled.
  const std::int64_t left = sequence->start.prompt_tokens - 1 - first_position();
  return scores_prompt(*sequence) ? std::clamp<std::int64_t>(left, 0, tokens) : 0;
}

/// Whether it is a step of a kind that comes again: everybody's next token, of a model that is
/// there as a whole, as a CUDA graph does not wait for weights, and without guests, for whose host
/// it does not wait either. Of a shard, where kernels exchange with those of the other ranks.
bool Pass::recurs(std::span<const PassSlice> slices, const Decoder& decoder) const {
  const bool exchanges_recorded = decoder.group() == nullptr || decoder.peers() != nullptr;
  return device_.properties().records && !slices.empty() && exchanges_recorded && decoder.whole() &&
         std::all_of(slices.begin(), slices.end(), [](const PassSlice& slice) {
           return slice.tokens == 1 && slice.samples() &&
                  slice.sequence->kv.states().copies.empty() &&
                  ModelKv::guest_tokens(slice.sequence->kv) == 0;
         });
}

/// All that decides what is enqueued, and where it reads and writes.
GraphKey Pass::describe(const Decoder& decoder, const Activations& activations) const {
  GraphKey key{graphs_of(decoder),
               reinterpret_cast<std::uintptr_t>(activations.hidden.data),
               reinterpret_cast<std::uintptr_t>(mirror_.device<std::byte>(0)),
               static_cast<std::uint64_t>(picks_count_),
               static_cast<std::uint64_t>(turn_)};
  inputs_.describe(key);
  key.insert(key.end(),
             {picks_, sample_rows_, penalty_rows_, log_prob_rows_, told_tokens_, told_values_});
  key.insert(key.end(), {lists_, reinterpret_cast<std::uintptr_t>(memory_->sampled.data())});
  for (const Told& told : told_) {
    key.push_back(told.pick);
  }
  // Which adapters they are the kernels read from the mirror.
  key.insert(key.end(),
             {adapter_targets_, adapter_tiles_, static_cast<std::uint64_t>(adapter_tile_count_)});
  if (const ops::PeerArea* peers = decoder.peers(); peers != nullptr) {
    for (const std::byte* memory : peers->memory) {
      key.push_back(reinterpret_cast<std::uintptr_t>(memory));
    }
    key.push_back(reinterpret_cast<std::uintptr_t>(peers->abandoned));
  }
  return key;
}

Result<void> Pass::enqueue(ops::OpContext& context,
                           std::span<const PassSlice> slices,
                           const Decoder& decoder,
                           const ModelKv& kv,
                           const Activations& activations,
                           const Pass* before) {
  if (const auto over = wait(context.stream); !over) {
    return over;
  }
  const bool recurring = recurs(slices, decoder);
  std::vector<PassSlice> padded(slices.begin(), slices.end());
  if (recurring) {
    const auto most = static_cast<std::size_t>(activations.hidden.shape[0]);
    padded.resize(std::min(recurring_rows(slices.size()), most), slices.front());
  }
  std::vector<BatchSlice> batch_slices(padded.size());
  std::transform(padded.begin(), padded.end(), batch_slices.begin(), batch_slice);
  mirror_.clear();
  inputs_.gather(batch_slices, decoder, kv, mirror_, recurring);
  gather_adapters(padded, recurring);
  tell_host(padded, kv);
  const auto ends = ends_of(padded, [](const PassSlice& slice) { return slice.tokens; });
  gather_sampling(padded, ends, activations.logit_rows());
  gather_scores(padded, ends, activations.logit_rows());
  gather_pooling(padded, ends);
  reserve_results(decoder);
  sampling_ = static_cast<std::size_t>(std::count_if(
      slices.begin(), slices.end(), [](const auto& slice) { return slice.samples(); }));
  if (const auto sent = send(context); !sent) {
    return sent;
  }
  if (before != nullptr) {
    take_tokens(context, padded, slices.size(), *before);
  }
  const auto compute = [&] {
    Batch batch = inputs_.batch(mirror_);
    batch.guests.host = kv.host();
    batch.guests.base = kv.lent_memory();
    go_through_adapters(batch);
    if (spec::is_encoder(decoder.model())) {
      decoder.embed_text(context, inputs_.ids(mirror_), batch, activations);
    } else {
      decoder.embed(
          context, inputs_.ids(mirror_), Activations::rows(activations.hidden, batch.tokens));
    }
    decoder.run_layers(context, decoder.kv_plan().range, batch, activations);
    enqueue_sampling(context, decoder, activations);
    scores_.enqueue(context, decoder, activations, mirror_);
    enqueue_pooling(context, decoder, activations);
  };
  if (recurring) {
    graphs_.run(context.stream, describe(decoder, activations), compute);
  } else {
    compute();
  }
  fetch_sampled(context.stream);
  enqueued_ = context.stream.mark();
  return {};
}

void Pass::gather_adapters(std::span<const PassSlice> slices, bool recurring) {
  adapters_ = adapter_rows(slices);
  adapter_targets_ = 0;
  adapter_tile_count_ = 0;
  adapter_tiles_ = 0;
  for (const AdapterRows& group : adapters_) {
    adapter_targets_ |= group.weights->targets;
  }
  if (adapters_.empty() || device_.properties().kind != device::Kind::kCuda) {
    return;
  }
  std::int64_t tokens = 0;
  for (const PassSlice& slice : slices) {
    tokens += slice.tokens;
  }
  const std::vector<ops::LowRankTile> tiles = cut_into_tiles(adapters_, tokens, recurring);
  adapter_tiles_ = mirror_.add(tiles);
  adapter_tile_count_ = std::ssize(tiles);
}

/// What of the batch has to do with adapters, once the mirror was sent.
void Pass::go_through_adapters(Batch& batch) const {
  batch.adapters = adapters_;
  batch.adapter_targets = adapter_targets_;
  if (adapter_tile_count_ > 0) {
    batch.adapter_tiles = mirror_.device<const ops::LowRankTile>(adapter_tiles_);
    batch.adapter_tile_count = adapter_tile_count_;
  }
}

Result<void> Pass::enqueue_layers(ops::OpContext& context,
                                  std::span<const BatchSlice> slices,
                                  std::span<const float> rows,
                                  const Decoder& decoder,
                                  const ModelKv& kv,
                                  const Activations& activations) {
  if (const auto over = wait(context.stream); !over) {
    return over;
  }
  mirror_.clear();
  const std::size_t given = mirror_.add(rows);
  inputs_.gather(slices, decoder, kv, mirror_);
  std::size_t tokens = 0;
  for (const BatchSlice& slice : slices) {
    tokens += slice.ids.size();
  }
  rows_floats_ = tokens * static_cast<std::size_t>(decoder.model().hidden);
  rows_ = mirror_.reserve<float>(rows_floats_);
  HEDDLE_CHECK(rows.empty() || rows.size() == rows_floats_);
  if (const auto sent = mirror_.send(context); !sent) {
    return sent;
  }
  const Batch batch = inputs_.batch(mirror_);
  const ops::TensorRef hidden = Activations::rows(activations.hidden, batch.tokens);
  if (rows.empty()) {
    decoder.embed(context, inputs_.ids(mirror_), hidden);
  } else {
    context.stream.copy(hidden.data, mirror_.device<std::byte>(given), rows.size_bytes());
  }
  decoder.run_layers(context, decoder.kv_plan().range, batch, activations);
  context.stream.copy(mirror_.host<std::byte>(rows_), hidden.data, rows_floats_ * sizeof(float));
  enqueued_ = context.stream.mark();
  return {};
}

Result<void> Pass::enqueue_end(ops::OpContext& context,
                               std::span<const PassSlice> slices,
                               std::span<const float> rows,
                               const Decoder& decoder,
                               const Activations& activations) {
  if (const auto over = wait(context.stream); !over) {
    return over;
  }
  mirror_.clear();
  const std::size_t given = mirror_.add(rows);
  const auto ends = ends_of(slices, [](const PassSlice& slice) { return slice.wanted_rows(); });
  gather_sampling(slices, ends, activations.logit_rows());
  gather_scores(slices, ends, activations.logit_rows());
  gather_pooling(slices, ends);
  reserve_results(decoder);
  sampling_ = static_cast<std::size_t>(picks_count_);
  if (const auto sent = send(context); !sent) {
    return sent;
  }
  if (!rows.empty()) {
    context.stream.copy(
        activations.hidden.data, mirror_.device<std::byte>(given), rows.size_bytes());
  }
  enqueue_sampling(context, decoder, activations);
  scores_.enqueue(context, decoder, activations, mirror_);
  enqueue_pooling(context, decoder, activations);
  fetch_sampled(context.stream);
  enqueued_ = context.stream.mark();
  return {};
}

/// Tells the host of guests what of them the pass is about.
void Pass::tell_host(std::span<const PassSlice> slices, const ModelKv& kv) {
  std::vector<ops::GuestSequence> guests;
  for (const PassSlice& slice : slices) {
    if (kv.guest_tokens(slice.sequence->kv) > 0) {
      guests.push_back(kv.guest_sequence(slice.sequence->kv));
    }
  }
  if (kv.host() != nullptr && !guests.empty()) {
    kv.host()->begin_step(guests);
  }
}

Result<void> Pass::wait(device::Stream& stream) {
  const auto enqueued = std::exchange(enqueued_, std::nullopt);
  return enqueued ? stream.wait(*enqueued) : Result<void>();
}

/// Copies the tokens of slices that are ahead from where the pass before leaves them, on the
/// device, in as few pieces as can be. The rows of padding behind the first `slices` repeat the
/// first, as those of the pass before repeat its own.
void Pass::take_tokens(ops::OpContext& context,
                       std::span<const PassSlice> padded,
                       std::size_t slices,
                       const Pass& before) const {
  const auto source = [&](std::size_t row) {
    const auto pick = static_cast<std::size_t>(padded[row].pick);
    const std::size_t padding = before.sampling_ + row - slices;
    const bool same = row >= slices && pick == 0 && std::cmp_less(padding, before.picks_count_);
    return same ? padding : pick;
  };
  for (std::size_t row = 0; row < padded.size();) {
    HEDDLE_CHECK(padded[row].ahead());
    std::size_t end = row + 1;
    while (end < padded.size() && source(end) == source(row) + (end - row)) {
      ++end;
    }
    ops::send(context,
              {.source = before.memory_->sampled.data() + source(row) * sizeof(std::int32_t),
               .target = inputs_.ids_bytes(mirror_, row),
               .bytes = (end - row) * sizeof(std::int32_t)});
    row = end;
  }
}

void Pass::gather_sampling(std::span<const PassSlice> slices,
                           std::span<const std::int64_t> ends,
                           std::int64_t logit_rows) {
  std::vector<std::int32_t> picks;
  std::vector<ops::SampleRow> sample_rows;
  std::vector<ops::PenaltyRow> penalty_rows;
  std::vector<ops::LogProbRow> log_prob_rows;
  std::int32_t masked = 0;
  told_.clear();
  masks_.clear();
  uses_.clear();
  // What is told has its logits twice: so many may be, and where more are, turns are shorter.
  const auto tells = std::count_if(slices.begin(), slices.end(), [](const PassSlice& slice) {
    return slice.samples() && slice.sequence->start.params.logprobs >= 0;
  });
  turn_ = tells > kLogitRowsMin ? kLogitRowsMin : logit_rows;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const PassSlice& slice = slices[i];
    if (!slice.samples()) {
      continue;
    }
    const Sequence& sequence = *slice.sequence;
    if (const std::int32_t top = sequence.start.params.logprobs; top >= 0) {
      // The choice is counted within its turn.
      const auto choice = static_cast<std::int32_t>(std::ssize(picks) % turn_);
      log_prob_rows.push_back({.choice = choice, .top = std::min(top, ops::kLogProbsTopMax)});
      told_.push_back({.pick = picks.size()});
    }
    picks.push_back(static_cast<std::int32_t>(ends[i] - 1));
    sample_rows.push_back(sample_row(slice));
    if (!sequence.mask.empty()) {
      sample_rows.back().mask = masked++;
      masks_.insert(masks_.end(), sequence.mask.begin(), sequence.mask.end());
    }
    const auto begin = static_cast<std::int32_t>(uses_.size());
    append_uses(sequence, sequence.generated() + (slice.ahead() ? 1 : 0), uses_);
    penalty_rows.push_back({.repetition = sequence.start.params.repetition_penalty,
                            .presence = sequence.start.params.presence_penalty,
                            .frequency = sequence.start.params.frequency_penalty,
                            .begin = begin,
                            .end = static_cast<std::int32_t>(uses_.size())});
  }
  // Behind the masks, as they will lie.
  constexpr std::size_t kWordsOfUse = sizeof(ops::TokenUse) / sizeof(std::uint32_t);
  masks_.resize((masks_.size() + kWordsOfUse - 1) / kWordsOfUse * kWordsOfUse);
  for (ops::PenaltyRow& row : penalty_rows) {
    row.begin += static_cast<std::int32_t>(masks_.size() / kWordsOfUse);
    row.end += static_cast<std::int32_t>(masks_.size() / kWordsOfUse);
  }
  picks_count_ = static_cast<std::int64_t>(picks.size());
  picks_ = mirror_.add(picks);
  sample_rows_ = mirror_.add(sample_rows);
  penalty_rows_ = mirror_.add(penalty_rows);
  log_prob_rows_ = mirror_.add(log_prob_rows);
}

void Pass::gather_scores(std::span<const PassSlice> slices,
                         std::span<const std::int64_t> ends,
                         std::int64_t logit_rows) {
  std::vector<ScoredRow> rows;
  scored_ends_.clear();
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const PassSlice& slice = slices[i];
    const std::vector<TokenId>& tokens = slice.sequence->start.tokens;
    for (std::int64_t row = 0; row < slice.scored_rows(); ++row) {
      const std::int64_t next = slice.first_position() + row + 1;
      rows.push_back({.row = static_cast<std::int32_t>(ends[i] - slice.tokens + row),
                      .token = tokens[static_cast<std::size_t>(next)],
                      .top = slice.sequence->start.params.prompt_logprobs});
    }
    scored_ends_.push_back(rows.size());
  }
  scores_.gather(rows, logit_rows, mirror_);
}

std::vector<spec::PromptToken> Pass::scored(std::size_t i) const {
  std::vector<spec::PromptToken> tokens;
  for (std::size_t row = i == 0 ? 0 : scored_ends_[i - 1]; row < scored_ends_[i]; ++row) {
    tokens.push_back(scores_.of(row, mirror_));
  }
  return tokens;
}

void Pass::gather_pooling(std::span<const PassSlice> slices, std::span<const std::int64_t> ends) {
  std::vector<std::int32_t> picks;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const std::int64_t rows = slices[i].pooled_rows();
    const bool first = slices[i].sequence->start.params.pooling == spec::Pooling::kFirst;
    const std::int64_t begin = ends[i] - (first ? slices[i].tokens : rows);
    for (std::int64_t row = begin; row < begin + rows; ++row) {
      picks.push_back(static_cast<std::int32_t>(row));
    }
  }
  pooled_count_ = std::ssize(picks);
  pooled_picks_ = mirror_.add(picks);
}

/// Places for what comes back: those for what is told are sent too, as rows that have nothing to
/// tell are left as they are.
void Pass::reserve_results(const Decoder& decoder) {
  const std::size_t told = told_.size() * ops::kLogProbsWidth;
  told_tokens_ = mirror_.add(std::vector<std::int32_t>(told, -1));
  told_values_ = mirror_.add(std::vector<float>(told, 0.0F));
  lists_ = mirror_.add(masks_);
  (void)mirror_.add(uses_);
  sampled_ = mirror_.reserve<std::int32_t>(static_cast<std::size_t>(picks_count_));
  pooled_floats_ = static_cast<std::size_t>(pooled_count_ * spec::pooled_width(decoder.model()));
  pooled_ = mirror_.reserve<float>(pooled_floats_);
}

void Pass::enqueue_sampling(ops::OpContext& context,
                            const Decoder& decoder,
                            const Activations& activations) {
  const std::int64_t vocab = decoder.model().vocab;
  const auto raw_logits = activations.told.as<float>();
  std::size_t told = 0;  // Of told_, those of the turns before.
  for (std::int64_t first = 0; first < picks_count_; first += turn_) {
    const std::int64_t n = std::min(turn_, picks_count_ - first);
    const auto logits = decoder.logits(
        context, ops::vector_of(mirror_.device<std::int32_t>(picks_) + first, n), activations);
    const std::size_t told_before = told;
    for (; told < told_.size() && std::cmp_less(told_[told].pick, first + n); ++told) {
      // What follows changes the logits, and what is told is what the model thought.
      const std::int64_t row = static_cast<std::int64_t>(told_[told].pick) - first;
      context.stream.copy(
          reinterpret_cast<std::byte*>(raw_logits +
                                       (told - told_before) * static_cast<std::size_t>(vocab)),
          reinterpret_cast<const std::byte*>(logits.as<float>() + row * logits.stride[0]),
          static_cast<std::size_t>(vocab) * sizeof(float));
    }
    auto* const sampled = reinterpret_cast<std::int32_t*>(memory_->sampled.data());
    const auto choices = ops::vector_of(sampled + first, n);
    ops::penalties(context,
                   {.logits = logits,
                    .rows = mirror_.device<ops::PenaltyRow>(penalty_rows_) + first,
                    .uses = mirror_.device<ops::TokenUse>(lists_)});
    ops::sample(context,
                {.logits = logits,
                 .rows = mirror_.device<ops::SampleRow>(sample_rows_) + first,
                 .masks = mirror_.device<std::uint32_t>(lists_),
                 .tokens = choices});
    const std::size_t place = told_before * ops::kLogProbsWidth;
    ops::log_probs(
        context,
        {.logits = ops::matrix_of(raw_logits, static_cast<std::int64_t>(told - told_before), vocab),
         .rows = mirror_.device<ops::LogProbRow>(log_prob_rows_) + told_before,
         .choices = choices,
         .tokens = mirror_.device<std::int32_t>(told_tokens_) + place,
         .log_probs = mirror_.device<float>(told_values_) + place});
  }
}

void Pass::fetch_sampled(device::Stream& stream) {
  if (picks_count_ > 0) {
    stream.copy(mirror_.host<std::byte>(sampled_),
                memory_->sampled.data(),
                static_cast<std::size_t>(picks_count_) * sizeof(std::int32_t));
  }
  if (!told_.empty()) {
    mirror_.fetch(stream, told_tokens_, lists_ - told_tokens_);
  }
  scores_.fetch(stream, mirror_);
}

/// Sends what was gathered, where there is also room for what will be sampled. Tokens that the pass
/// before sampled stay.
Result<void> Pass::send(ops::OpContext& context) {
  constexpr std::size_t kTokensMin = 1024;
  const auto picks = static_cast<std::size_t>(picks_count_);
  const std::size_t have = memory_->sampled.bytes();
  if (have < picks * sizeof(std::int32_t) || have == 0) {
    auto made = device_.allocate(device::Place::kDevice,
                                 std::bit_ceil(std::max(picks, kTokensMin)) * sizeof(std::int32_t));
    if (!made) {
      return made.error();
    }
    if (have > 0) {
      context.stream.copy(made->data(), memory_->sampled.data(), have);
    }
    if (const auto over = context.stream.synchronize(); !over) {
      return over.error();  // What is enqueued may refer to what is given up here.
    }
    memory_->sampled = std::move(*made);
  }
  return mirror_.send(context);
}

void Pass::enqueue_pooling(ops::OpContext& context,
                           const Decoder& decoder,
                           const Activations& activations) {
  const auto width = static_cast<std::size_t>(spec::pooled_width(decoder.model()));
  const std::int64_t turn = activations.logit_rows();
  for (std::int64_t first = 0; first < pooled_count_; first += turn) {
    const std::int64_t n = std::min(turn, pooled_count_ - first);
    const auto states =
        decoder.final_hidden(context,
                             ops::vector_of(mirror_.device<std::int32_t>(pooled_picks_) + first, n),
                             activations);
    context.stream.copy(reinterpret_cast<std::byte*>(mirror_.host<float>(pooled_) +
                                                     static_cast<std::size_t>(first) * width),
                        reinterpret_cast<const std::byte*>(states.as<float>()),
                        static_cast<std::size_t>(n) * width * sizeof(float));
  }
}

spec::TokenDetails Pass::details(std::size_t i) const {
  spec::TokenDetails details;
  const auto told =
      std::lower_bound(told_.begin(), told_.end(), i, [](const Told& row, std::size_t pick) {
        return row.pick < pick;
      });
  if (told == told_.end() || told->pick != i) {
    return details;
  }
  const auto place = static_cast<std::size_t>(told - told_.begin()) *
                     static_cast<std::size_t>(ops::kLogProbsWidth);
  const std::int32_t* const tokens = mirror_.host<std::int32_t>(told_tokens_) + place;
  const float* const values = mirror_.host<float>(told_values_) + place;
  for (std::int64_t k = 0; k < ops::kLogProbsWidth && tokens[k] >= 0; ++k) {
    details.logprobs.push_back({.token = tokens[k], .logprob = values[k]});
  }
  return details;
}

}  // namespace heddle::engine
