#pragma once

// For tests only: a worker's core with small models, told events one by one.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/worker_core.h"

namespace heddle::core::test {

inline constexpr std::int64_t kWorkerPages = 40;
inline const std::vector<policy::KvGroup> kWorkerKv{{.tokens_per_block = 4, .blocks_per_page = 2}};

/// A model of so many pages, one more for what it runs with, and KV of `least` at least.
inline LoadModel load_of(ModelId model, std::int64_t pages, std::int64_t least = 1) {
  LoadModel load{
      .model = model,
      .basis = {.epoch = WorkerEpoch(1)},
      .image_bytes = 1000,
      .ready_bytes = 1000,
      .footprint = {
          .image_pages = pages, .overhead_pages = 1, .min_kv_pages = least, .kv = kWorkerKv}};
  for (std::int64_t i = 0; i < pages; ++i) {
    load.pages.emplace_back(100 + static_cast<std::uint64_t>(i));
  }
  return load;
}

inline Submit submit_of(std::uint64_t request,
                        ModelId model,
                        std::size_t prompt,
                        std::int64_t max_tokens) {
  Submit submit{.request = RequestId(request), .model = model, .due = std::chrono::seconds(10)};
  submit.prompt.resize(prompt, 7);
  submit.choices.resize(1);
  submit.choices[0].params.max_tokens = max_tokens;
  return submit;
}

/// A core that is told events.
struct TestWorker {
  std::vector<WorkerCommand> tell(const WorkerEvent& event) {
    std::vector<WorkerCommand> commands;
    core.step(now, event, commands);
    core.check_invariants();
    return commands;
  }
  void serve(const LoadModel& load) {
    tell(WorkerMessage{load});
    tell(ModelOpened{.model = load.model});
  }

  Instant now{std::chrono::seconds(1)};
  WorkerCore core{{.epoch = WorkerEpoch(1),
                   .pages = kWorkerPages,
                   .step = {.budget = std::chrono::milliseconds(10), .max_batch_tokens = 64}}};
};

}  // namespace heddle::core::test
