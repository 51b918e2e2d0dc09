#pragma once

// What the host does between a request for another model and that its first step is enqueued.

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "bench/gpu_bed.h"
#include "engine/image_gate.h"
#include "engine/pass.h"
#include "memory/cached_pages.h"
#include "ops/context.h"

namespace heddle::bench {

/// Two models that are there, and the parts of an engine that run them by turns: those that
/// Engine::run() goes through, as it does not tell when it begins to wait.
class SwitchBench {
 public:
  /// Both models are the bed's weights.
  explicit SwitchBench(Bed& bed)
      : bed_(bed),
        stream_(must(bed.device().create_stream())),
        pass_(bed.device(), graphs_),
        workspace_(must(bed.device().allocate(
            device::Place::kDevice,
            engine::activation_bytes(bed.shape().model, spec::DType::kBf16, kPrompt)))) {
    gate_.advance(bed.layout().bytes);
    models_.reserve(2);
    for (int i = 0; i < 2; ++i) {
      models_.push_back(make_model());
    }
  }

  /// Seconds from the sequence's arrival to the end of the last enqueuing call, of the step that
  /// computes its prompt with model `which` (0 or 1). The step itself is awaited afterwards.
  double first_step(std::size_t which) {
    Model& model = *models_[which];
    engine::SequenceStart start{.id = engine::SequenceId{1}, .model = ModelId{which}};
    start.tokens.assign(kPrompt, TokenId{5});
    start.prompt_tokens = kPrompt;
    start.params.max_tokens = 1;
    std::unique_ptr<engine::Sequence> sequence;
    const double seconds = seconds_of([&] {
      sequence = std::make_unique<engine::Sequence>(
          engine::Sequence{.start = std::move(start), .kv = model.kv.make_sequence()});
      must(model.kv.grow(sequence->kv, kPrompt));
      const engine::PassSlice slice{.sequence = sequence.get(), .tokens = kPrompt};
      ops::OpContext context{.stream = *stream_, .kernels = *ops::kernels_for(device::Kind::kCuda)};
      const auto activations = engine::place_activations(
          bed_.shape().model, spec::DType::kBf16, kPrompt, workspace_.data());
      must(pass_.enqueue(context, {&slice, 1}, model.decoder, model.kv, activations));
    });
    must(stream_->synchronize());
    model.kv.clear(sequence->kv);
    return seconds;
  }

 private:
  static constexpr std::int64_t kPrompt = 16;

  struct Model {
    memory::Window window;
    engine::ModelKv kv;
    engine::Decoder decoder;
  };

  std::unique_ptr<Model> make_model() {
    const spec::ModelSpec& model = bed_.shape().model;
    memory::Window window = bed_.make_window();
    must(window.map(bed_.pages(), device::Access::kRead));
    engine::ModelKv kv(bed_.pool(),
                       kKvLease,
                       must(engine::plan_kv(model,
                                            {.begin = 0, .end = model.layers},
                                            spec::DType::kBf16,
                                            bed_.device().properties().page_bytes)),
                       cached_);
    auto decoder = must(engine::Decoder::create(model,
                                                bed_.layout(),
                                                window.base(),
                                                gate_.watermark(),
                                                kv.plan(),
                                                bed_.device().page_address(PageId{0})));
    return std::make_unique<Model>(std::move(window), std::move(kv), std::move(decoder));
  }

  Bed& bed_;
  std::unique_ptr<device::Stream> stream_;
  engine::ImageGate gate_{};
  memory::CachedPages cached_{};
  std::vector<std::unique_ptr<Model>> models_{};
  engine::StepGraphs graphs_{};
  engine::Pass pass_;
  device::Buffer workspace_;
};

}  // namespace heddle::bench
