#include "engine/pass.h"

#include <algorithm>

#include "engine/philox.h"

namespace heddle::engine {
namespace {

ops::SampleRow sample_row(const Sequence& sequence) {
  const spec::SamplingParams& params = sequence.start.params;
  return {.temperature = params.temperature,
          .top_p = params.top_p,
          .min_p = params.min_p,
          .top_k = params.top_k,
          .uniform = uniform_draw(
              params.seed, params.choice, static_cast<std::uint64_t>(sequence.generated()))};
}

}  // namespace

void Pass::enqueue(ops::OpContext& context,
                   std::span<const PassSlice> slices,
                   const Decoder& decoder,
                   const ModelKv& kv,
                   const Activations& activations) {
  std::vector<BatchSlice> batch_slices;
  for (const PassSlice& slice : slices) {
    const Sequence& sequence = *slice.sequence;
    batch_slices.push_back({.ids = std::span(sequence.start.tokens)
                                       .subspan(static_cast<std::size_t>(sequence.computed),
                                                static_cast<std::size_t>(slice.tokens)),
                            .first_position = sequence.computed,
                            .kv = &sequence.kv});
  }
  upload_.clear();
  inputs_.gather(batch_slices, decoder, kv, upload_);
  gather_sampling(slices);
  upload_.send(context.stream);

  const Batch batch = inputs_.batch(upload_);
  decoder.embed(context, inputs_.ids(upload_), Activations::rows(activations.hidden, batch.tokens));
  decoder.run_layers(context, decoder.kv_plan().range, batch, activations);
  enqueue_sampling(context, decoder, activations);
}

void Pass::gather_sampling(std::span<const PassSlice> slices) {
  std::vector<std::int32_t> picks;
  std::vector<ops::SampleRow> sample_rows;
  std::vector<ops::PenaltyRow> penalty_rows;
  std::vector<ops::TokenUse> uses;
  std::int64_t row = -1;
  for (const PassSlice& slice : slices) {
    row += slice.tokens;
    if (!slice.samples()) {
      continue;
    }
    const Sequence& sequence = *slice.sequence;
    picks.push_back(static_cast<std::int32_t>(row));
    sample_rows.push_back(sample_row(sequence));
    const auto begin = static_cast<std::int32_t>(uses.size());
    uses.insert(uses.end(), sequence.uses.begin(), sequence.uses.end());
    penalty_rows.push_back({.repetition = sequence.start.params.repetition_penalty,
                            .presence = sequence.start.params.presence_penalty,
                            .frequency = sequence.start.params.frequency_penalty,
                            .begin = begin,
                            .end = static_cast<std::int32_t>(uses.size())});
  }
  picks_count_ = static_cast<std::int64_t>(picks.size());
  picks_ = upload_.add(picks);
  sample_rows_ = upload_.add(sample_rows);
  penalty_rows_ = upload_.add(penalty_rows);
  uses_ = upload_.add(uses);
  sampled_.assign(picks.size(), ops::kNoToken);
  device_sampled_.resize(picks.size());
}

void Pass::enqueue_sampling(ops::OpContext& context,
                            const Decoder& decoder,
                            const Activations& activations) {
  for (std::int64_t first = 0; first < picks_count_; first += kLogitRowsMax) {
    const std::int64_t n = std::min(kLogitRowsMax, picks_count_ - first);
    const auto logits = decoder.logits(
        context, ops::vector_of(upload_.at<std::int32_t>(picks_) + first, n), activations);
    ops::penalties(context,
                   {.logits = logits,
                    .rows = upload_.at<ops::PenaltyRow>(penalty_rows_) + first,
                    .uses = upload_.at<ops::TokenUse>(uses_)});
    ops::sample(context,
                {.logits = logits,
                 .rows = upload_.at<ops::SampleRow>(sample_rows_) + first,
                 .tokens = ops::vector_of(device_sampled_.data() + first, n)});
  }
  if (picks_count_ > 0) {
    context.stream.copy(reinterpret_cast<std::byte*>(sampled_.data()),
                        reinterpret_cast<const std::byte*>(device_sampled_.data()),
                        sampled_.size() * sizeof(std::int32_t));
  }
}

}  // namespace heddle::engine
