#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "engine/decoder.h"
#include "engine/mirror.h"
#include "engine/model_kv.h"
#include "engine/step_graphs.h"

namespace heddle::engine {

/// Consecutive tokens of one sequence that go through a model in one pass.
struct BatchSlice {
  std::span<const TokenId> ids{};
  std::int64_t first_position = 0;  ///< Of ids[0].
  const SequenceKv* kv = nullptr;   ///< Has the blocks of all positions up to the last.
  /// Of an encoder: from which position on tokens are of the second of two texts; 0: of one text.
  std::int64_t second_text = 0;
};

/// Makes a Batch of slices: token ids, rows, positions and block tables. Slices with guests come
/// last, and have one token. Used by one thread.
class BatchInputs {
 public:
  /// Gathers `slices` into `mirror`, after clearing nothing: the caller sends it. Block tables are
  /// as wide as the longest sequence needs, or, where `recurring`, the next power of two, so that
  /// steps of growing sequences have the same shapes for long.
  void gather(std::span<const BatchSlice> slices,
              const Decoder& decoder,
              const ModelKv& kv,
              Mirror& mirror,
              bool recurring = false);

  /// Appends what addresses and shapes of the batch depend on.
  void describe(GraphKey& key) const;

  /// The batch, once `mirror` was sent; its guests have no host.
  [[nodiscard]] Batch batch(const Mirror& mirror) const;
  /// i32 [tokens]
  [[nodiscard]] ops::ConstTensorRef ids(const Mirror& mirror) const;
  /// Where the id of row `row` is on the device, for ids that come from elsewhere on the device.
  [[nodiscard]] std::byte* ids_bytes(const Mirror& mirror, std::size_t row) const {
    return mirror.device<std::byte>(ids_) + row * sizeof(std::int32_t);
  }

 private:
  void gather_rows(std::span<const BatchSlice> slices, const Decoder& decoder, Mirror& mirror);
  void gather_places(std::span<const BatchSlice> slices, const Decoder& decoder, Mirror& mirror);
  void gather_rotations(std::span<const BatchSlice> slices, const Decoder& decoder, Mirror& mirror);
  void gather_copies(std::span<const BatchSlice> slices, const ModelKv& kv, Mirror& mirror);
  void gather_guests(std::span<const BatchSlice> slices, const ModelKv& kv, Mirror& mirror);
  void gather_table(std::span<const BatchSlice> slices,
                    std::size_t group,
                    const ModelKv& kv,
                    Mirror& mirror,
                    bool recurring);

  struct Table {
    std::size_t offset = 0;
    std::int64_t width = 0;
  };

  std::int64_t tokens_ = 0;
  std::int64_t sequences_ = 0;
  bool resumes_ = false;
  std::array<std::int64_t, kLayerRopes> rotary_dims_{};  ///< By LayerRope.
  std::size_t ids_ = 0;  ///< Offsets in the mirror, as the following.
  std::size_t begin_ = 0;
  std::size_t first_position_ = 0;
  std::optional<std::size_t> positions_{};  ///< Of encoders, as the next.
  std::size_t types_ = 0;
  std::array<std::optional<std::size_t>, kLayerRopes> cos_sin_{};
  std::vector<Table> tables_{};
  std::int64_t copies_ = 0;  ///< Of states, that a sequence has at most.
  std::size_t copy_behind_ = 0;
  std::vector<std::size_t> copy_tables_{};  ///< Per block of the states.
  std::int64_t guests_ = 0;                 ///< Sequences.
  std::size_t border_ = 0;
  std::vector<Table> guest_tables_{};
};

}  // namespace heddle::engine
