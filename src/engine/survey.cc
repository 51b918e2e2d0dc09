#include "engine/survey.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/tunables.h"
#include "engine/pass.h"
#include "spec/operations.h"

namespace heddle::engine {
namespace {

/// Decode steps of more sequences than that are few.
constexpr std::int64_t kSequencesMost = 128;

/// Tokens of passes that come again and again: first the most there are, then decode steps.
std::vector<std::int64_t> token_counts(std::int64_t most, std::int64_t from) {
  std::vector<std::int64_t> counts{most};
  for (std::int64_t n = from; n < std::min(most, kSequencesMost + 1);) {
    n = static_cast<std::int64_t>(recurring_rows(static_cast<std::size_t>(n)));
    if (n < most) {
      counts.push_back(n);
    }
    ++n;
  }
  return counts;
}

/// The first layer with attention and the first one with linear attention, as far as there are any.
std::vector<std::int64_t> layers_of_each_kind(const Decoder& decoder) {
  const LayerRange range = decoder.kv_plan().range;
  std::vector<std::int64_t> layers{range.begin};
  const auto keeps = [&](std::int64_t layer) {
    return std::pair(spec::keeps_state(decoder.model(), layer),
                     spec::heads_of(decoder.model(), layer).dim);
  };
  for (std::int64_t layer = range.begin; layer < range.end && layers.size() < 2; ++layer) {
    if (keeps(layer) != keeps(range.begin)) {
      layers.push_back(layer);
    }
  }
  return layers;
}

}  // namespace

void survey_products(ops::OpContext& context,
                     const Decoder& decoder,
                     const Activations& activations) {
  const Duration most = std::chrono::milliseconds(tuned(Tuned::kSurveyMs));
  const Instant began = steady_now();
  // Products of experts are of as many tokens as chance has it.
  const bool any = context.kernels.begin_survey != nullptr && decoder.model().experts.count == 0;
  const ops::KernelTable* kernels =
      any ? context.kernels.begin_survey(context.stream, most) : nullptr;
  if (kernels == nullptr) {
    return;
  }
  ops::OpContext surveying{.stream = context.stream, .kernels = *kernels};
  // Of a batch of one sequence, by kernels that read nothing of it.
  const std::int32_t* const numbers = activations.hidden.as<std::int32_t>();
  const std::vector<std::int64_t> layers = layers_of_each_kind(decoder);
  for (const std::int64_t tokens :
       token_counts(activations.hidden.shape[0], kernels->narrow_from)) {
    Batch batch{.tokens = tokens,
                .rows = {.begin = ops::vector_of(numbers, 2),
                         .first_position = ops::vector_of(numbers, 1)}};
    for (std::size_t kind = 0; kind < kLayerRopes; ++kind) {
      const spec::Heads heads = spec::heads_of(decoder.model(), static_cast<spec::LayerRope>(kind));
      batch.cos_sin[kind] = ops::matrix_of(activations.hidden.as<const float>(), tokens, heads.dim);
    }
    batch.block_tables.assign(decoder.kv_plan().groups.size(), ops::matrix_of(numbers, 1, 1));
    for (const std::int64_t layer : layers) {
      decoder.run_layers(surveying, {.begin = layer, .end = layer + 1}, batch, activations);
    }
  }
  const std::int64_t ways = context.kernels.end_survey(context.stream);
  log::info("ways of products were timed",
            {{"ways", ways},
             {"ms", std::chrono::duration<double, std::milli>(steady_now() - began).count()}});
}

}  // namespace heddle::engine
