#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "agent/host_model.h"
#include "base/ids.h"
#include "base/result.h"
#include "spec/dtype.h"
#include "spec/model_spec.h"
#include "store/checkpoint.h"
#include "store/image_layout.h"
#include "store/image_loader.h"

namespace heddle::agent {

/// An image to read from a checkpoint into pages of the arena.
struct ImageJob {
  ModelId model{};
  std::filesystem::path directory{};
  spec::DType dtype = spec::DType::kBf16;
  spec::Shard shard{};            ///< What is read of it.
  spec::PipeStage stage{};        ///< Likewise.
  std::int64_t expert_slots = 0;  ///< As spec::Experts::slots: it decides where experts lie.
  std::uint64_t image_bytes = 0;  ///< As it was when the model was configured.
  std::vector<std::byte*> pages{};
  std::size_t page_bytes = 0;
};

/// Of a model of the host, without pages.
[[nodiscard]] ImageJob image_job(ModelId id, const HostModel& model, std::size_t page_bytes);

/// The checkpoint of a job, open, and what is read of it.
struct OpenedImage {
  store::Checkpoint checkpoint{};
  store::ImageLayout layout{};
};

/// Opens it anew, so that no file stays open between, and checks it again: kFailedPrecondition
/// where it has changed since it was configured; else as store::Checkpoint::open().
[[nodiscard]] Result<OpenedImage> open_image(const ImageJob& job);

/// Fills the job's pages. As store::load_image().
[[nodiscard]] Result<void> read_image(const ImageJob& job,
                                      const OpenedImage& opened,
                                      const store::LoadOptions& options);

}  // namespace heddle::agent
