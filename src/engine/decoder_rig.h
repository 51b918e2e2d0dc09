#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/batch_inputs.h"
#include "engine/decoder.h"
#include "engine/image_gate.h"
#include "engine/survey.h"
#include "engine/test_host.h"
#include "ops/context.h"
#include "ops/cpu/kernels.h"
#include "spec/operations.h"

namespace heddle::engine {

/// Whether a rig's image counts as being in place from the start.
enum class ImageIs : std::uint8_t { kPresent, kAbsent };

/// A decoder over a range of layers, run by hand: for tests of what the Engine does not show.
class DecoderRig {
 public:
  static constexpr std::int64_t kTokensMax = 2048;

  DecoderRig(TestHost& host,
             const LoadedModel& model,
             LayerRange range,
             ImageIs image = ImageIs::kPresent,
             collective::Collective* group = nullptr)
      : stream_(host.device().create_stream().value()),
        kv_(host.pool(),
            kKvLease,
            plan_kv(model.spec, range, model.layout.dtype, host.device().properties().page_bytes)
                .value(),
            host.cached()),
        decoder_(Decoder::create(model.spec,
                                 model.layout,
                                 model.window.base(),
                                 gate_.watermark(),
                                 kv_.plan(),
                                 host.device().page_address(device::PageId{0}))
                     .value()),
        memory_(activation_bytes(model.spec, model.layout.dtype, kTokensMax)),
        activations_(place_activations(model.spec, model.layout.dtype, kTokensMax, memory_.data())),
        mirror_(host.device()) {
    if (image == ImageIs::kPresent) {
      gate_.advance(model.layout.bytes);
    }
    if (group != nullptr) {
      decoder_.join(*group);
    }
  }

  /// Runs tokens at positions [first, first + ids.size()) through layers `range`. `hidden` is
  /// [tokens, hidden]: what layer range.begin gets, replaced by what layer range.end - 1 gives. In
  /// front of layer 0, empty means: embed the ids. `rope_shift` is added to the positions that
  /// queries and keys are turned by, and to nothing else.
  void run(std::span<const TokenId> ids,
           std::int64_t first,
           SequenceKv& sequence,
           LayerRange range,
           std::vector<float>& hidden,
           std::int64_t rope_shift = 0) {
    const auto n = static_cast<std::int64_t>(ids.size());
    HEDDLE_CHECK(n <= kTokensMax && kv_.grow(sequence, first + n).has_value());
    ops::OpContext context = this->context();
    const BatchSlice slice{.ids = ids, .first_position = first, .kv = &sequence};
    mirror_.clear();
    inputs_.gather({&slice, 1}, decoder_, kv_, mirror_);
    HEDDLE_CHECK(mirror_.send(context).has_value());
    Batch batch = inputs_.batch(mirror_);
    const auto turned = turn(batch, first + rope_shift);
    const auto rows = Activations::rows(activations_.hidden, n);
    if (hidden.empty()) {
      decoder_.embed(context, inputs_.ids(mirror_), rows);
    } else {
      std::copy(hidden.begin(), hidden.end(), rows.as<float>());
    }
    decoder_.run_layers(context, range, batch, activations_);
    HEDDLE_CHECK(stream_->synchronize().has_value());
    hidden.assign(rows.as<float>(), rows.as<float>() + n * decoder_.model().hidden);
  }

  /// Logits [tokens, vocab] of `hidden`, which is what the last layer gave.
  std::vector<float> logits(const std::vector<float>& hidden) {
    const std::int64_t width = decoder_.model().hidden;
    const auto n = static_cast<std::int64_t>(hidden.size()) / width;
    std::vector<float> result;
    ops::OpContext context = this->context();
    for (std::int64_t first = 0; first < n; first += kLogitRowsMin) {
      std::copy(hidden.begin(), hidden.end(), activations_.hidden.as<float>());
      std::vector<std::int32_t> picks;
      for (std::int64_t i = first; i < std::min(n, first + kLogitRowsMin); ++i) {
        picks.push_back(static_cast<std::int32_t>(i));
      }
      const auto logits =
          decoder_.logits(context,
                          ops::vector_of(static_cast<const std::int32_t*>(picks.data()),
                                         static_cast<std::int64_t>(picks.size())),
                          activations_);
      HEDDLE_CHECK(stream_->synchronize().has_value());
      result.insert(
          result.end(), logits.as<float>(), logits.as<float>() + logits.shape[0] * logits.shape[1]);
    }
    return result;
  }

  /// As an engine does when it has a model.
  void survey() {
    ops::OpContext context = this->context();
    survey_products(context, decoder_, activations_);
  }

  /// Runs by other kernels than the CPU's from now on, which outlive it.
  void use(const ops::KernelTable& kernels) { kernels_ = &kernels; }
  [[nodiscard]] ModelKv& kv() { return kv_; }
  [[nodiscard]] ImageGate& gate() { return gate_; }

 private:
  ops::OpContext context() { return {.stream = *stream_, .kernels = *kernels_}; }

  /// Has tokens turned as if they were at positions from `first` on. What it returns is to outlive
  /// the pass.
  std::vector<std::vector<float>> turn(Batch& batch, std::int64_t first) const {
    std::vector<std::vector<float>> turned;
    for (ops::ConstTensorRef& rotations : batch.cos_sin) {
      if (!rotations.present()) {
        continue;
      }
      const auto kind = static_cast<spec::LayerRope>(&rotations - batch.cos_sin.data());
      const RopeFrequencies& frequencies = decoder_.rope(kind)->frequencies();
      const std::size_t width = 2 * frequencies.radians.size();
      std::vector<float>& rows = turned.emplace_back();
      for (std::int64_t i = 0; i < batch.tokens; ++i) {
        rows.resize(rows.size() + width);
        rope_cos_sin(frequencies, first + i, std::span(rows).last(width));
      }
      rotations = ops::matrix_of(rows.data(), batch.tokens, static_cast<std::int64_t>(width));
    }
    return turned;
  }

  std::unique_ptr<device::Stream> stream_;
  ImageGate gate_{};
  ModelKv kv_;
  Decoder decoder_;
  std::vector<std::byte> memory_;
  Activations activations_;
  Mirror mirror_;
  BatchInputs inputs_{};
  const ops::KernelTable* kernels_ = &ops::cpu::cpu_kernels();
};

}  // namespace heddle::engine
