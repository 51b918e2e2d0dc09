#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/cpu/paced_copy.h"
#include "ops/experts.h"
#include "policy/expert_turns.h"
#include "spec/model_spec.h"
#include "store/expert_parts.h"
#include "store/image_layout.h"

namespace heddle::engine {

/// The experts of a model that take turns in the memory of a CPU device (spec::Experts::slots): has
/// those there that layers take, copied from the image at the host into slots. A layer reads one
/// expert after the other, so one slot is enough, and which are there changes no bit of what it
/// gives. Used by the thread that runs passes.
class ExpertSlots : public ops::ExpertSource {
 public:
  /// Where image and slots lie. All of it outlives this object, and the image is whole before the
  /// first bring().
  struct Memory {
    std::vector<const std::byte*> image{};  ///< By page: at the host.
    std::vector<std::byte*> slots{};        ///< By page: where they are written,
    const std::byte* base = nullptr;        ///< and all of them, contiguous, where they are read.
    std::size_t page_bytes = 0;
    std::uint64_t bandwidth = 0;  ///< Of copies [bytes/s]; 0: as fast as it goes.
  };
  /// `layout` is the model's.
  ExpertSlots(const spec::ModelSpec& model, const store::ImageLayout& layout, Memory memory);

  ops::ExpertWeights bring(std::int64_t layer, std::int64_t expert) override;

  /// What was done since it was made.
  struct Counts {
    std::uint64_t hits = 0;           ///< Experts that were there,
    std::uint64_t misses = 0;         ///< and that were copied.
    std::uint64_t fetched_bytes = 0;  ///< Of those.
  };
  [[nodiscard]] const Counts& counts() const { return counts_; }
  /// Experts of all layers, and those of them that are there.
  [[nodiscard]] std::int64_t experts() const { return experts_; }
  [[nodiscard]] std::int64_t resident() const { return turns_.resident(); }

 private:
  void fetch(const std::vector<store::ExpertPart>& parts, std::int64_t expert, std::uint64_t slot);

  std::int64_t per_layer_;
  std::int64_t experts_;
  store::ExpertParts parts_;
  Memory memory_;
  policy::ExpertTurns turns_;
  std::int64_t last_ = -1;  ///< That was brought.
  device::Pacer link_;
  Counts counts_{};
};

}  // namespace heddle::engine
