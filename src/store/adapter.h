#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "spec/dtype.h"
#include "spec/model_spec.h"
#include "store/adapter_config.h"
#include "store/stored_tensor.h"

namespace heddle::store {

/// The product of a layer that an adapter adds to; store::Role in fewer words.
enum class AdapterTarget : std::uint8_t { kQkv, kOut, kGateUp, kDown };

/// The two matrices that an adapter has for one module of one layer. They add
/// scale B (A x) to outputs [first, first + outputs) of the product (E. Hu et al., "LoRA",
/// arXiv:2106.09685, Eq. (3)).
struct AdapterPair {
  std::int64_t layer = 0;
  AdapterTarget target = AdapterTarget::kQkv;
  std::int64_t first = 0;
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  std::uint64_t a_offset = 0;  ///< In its image: [rank, inputs].
  std::uint64_t b_offset = 0;  ///< [outputs, rank], times the scale.
  StoredTensor a{};            ///< In the file.
  StoredTensor b{};
};

/// A LoRA adapter whose files are open and agree with a base model: a directory of PEFT with
/// adapter_config.json and adapter_model.safetensors. Its image is one range of bytes that has the
/// matrices of all pairs, each from a multiple of 64 on. May be used by any thread.
class Adapter {
 public:
  /// Reads the configuration and the header, and holds them against `base`, whose matrices are of
  /// `weights`. Errors name file and tensor: as read_adapter_config() and SafetensorsFile::open();
  /// kInvalidArgument for a tensor or module that is none of the base's, a shape that does not fit
  /// it or the rank, A without B, a target without tensors, two for the same outputs, or a base
  /// that cannot have adapters: shards, stages, linear attention, gated attention.
  static Result<Adapter> open(const std::filesystem::path& directory,
                              const spec::ModelSpec& base,
                              spec::DType weights);

  [[nodiscard]] const AdapterConfig& config() const { return config_; }
  /// Of the image's matrices: compute_dtype() of the base's.
  [[nodiscard]] spec::DType dtype() const { return dtype_; }
  /// By layer, then target, then output.
  [[nodiscard]] std::span<const AdapterPair> pairs() const { return pairs_; }
  [[nodiscard]] std::uint64_t image_bytes() const { return image_bytes_; }
  /// Tells these files from any others on this host, and from what they were before they changed.
  [[nodiscard]] const std::string& identity() const { return identity_; }

  /// Fills `image`, of image_bytes(), from the file. Errors as File::read.
  Result<void> load(std::span<std::byte> image) const;
  /// Reads the file once, so that the system has it in its cache for load(). Errors likewise.
  Result<void> read_through() const;

 private:
  Adapter(AdapterConfig config, File file) : config_(std::move(config)), file_(std::move(file)) {}
  Result<void> load(const StoredTensor& tensor, float factor, std::byte* target) const;

  AdapterConfig config_;
  File file_;
  spec::DType dtype_ = spec::DType::kBf16;
  std::vector<AdapterPair> pairs_{};
  std::uint64_t image_bytes_ = 0;
  std::string identity_{};
};

/// The identity of the files that there are now. kNotFound where one of them is not.
[[nodiscard]] Result<std::string> adapter_identity(const std::filesystem::path& directory);

}  // namespace heddle::store
