#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "device/device.h"
#include "policy/admission.h"
#include "spec/adapter_source.h"
#include "spec/dtype.h"
#include "spec/model_spec.h"

namespace heddle::agent {

/// A model as its host knows it before anybody loads it: what it is and what it needs.
struct HostModel {
  ModelId id{};
  std::string name{};
  std::filesystem::path directory{};
  /// Where its weights are fetched from when they are read, as fetch::pull() takes it; the
  /// directory has its outline (fetch/outline.h). Empty where the directory has all of it.
  std::string source{};
  spec::ModelSpec spec{};
  spec::DType dtype = spec::DType::kBf16;  ///< Of the image's matrices.
  std::uint64_t image_bytes = 0;
  /// As core::AgentModel has it: of a model whose experts take turns in a device's memory.
  std::int64_t host_pages = 0;
  policy::Footprint footprint{};                ///< In the host's pages, on a CPU device.
  policy::Footprint gpu_footprint{};            ///< The same on a GPU, whose workspace is larger.
  bool shares = false;                          ///< Of a stage: it runs beside other models.
  std::vector<std::string> unused{};            ///< Tensors of the checkpoint that nothing reads.
  std::vector<spec::AdapterSource> adapters{};  ///< Those that requests may name.
  /// When the newest of its files was written: another time, another model.
  std::filesystem::file_time_type written{};
};

/// What a device runs in a step at most, and the size of its pages: what needs depend on.
struct HostGeometry {
  std::size_t page_bytes = 0;
  std::int64_t max_batch_tokens = 0;
  /// Whether images of kStored have FP8 as it is, as is best where there is a GPU. CPUs alone are
  /// quicker with bfloat16, which they would make of it in each product, to the same bits.
  bool keeps_f8 = false;
};

/// How one device is to have a whole model.
struct WholeModel {
  std::int64_t adapter_rank = 0;  ///< It has room for adapters of so much; 0: of none.
  double experts_resident = 1.0;  ///< Share of its experts that are in memory at once.
};

/// Finds the model `source` (a path, which may be relative to `base`, or a name in the hub's cache)
/// and reads its configuration and the headers of its tensors: files, so not on the loop. Errors
/// as store::find_model and store::Checkpoint::open; kInvalidArgument where a page cannot hold its
/// KV. kStored is bfloat16 where the model has no blocks. Its keys and values are kept as `kv`
/// says. `id`, `name` and `adapters` are the caller's to set.
Result<HostModel> open_host_model(const std::string& source,
                                  const std::filesystem::path& base,
                                  spec::DType dtype,
                                  const HostGeometry& geometry,
                                  spec::KvType kv = spec::KvType::kComputed);

/// The same for a model that is sharded over `ranks` devices: its shards, by rank. With one rank
/// the model itself. All need equally many pages beside their KV (the smaller ones have some as
/// overhead), so that on devices of one size they have equally many for it. kInvalidArgument also
/// where the model cannot be sharded so: spec::divides. `settings` are of a whole model: where
/// fewer of its experts than all are to be there, at least one is, and the footprint on a CPU
/// device is smaller, if that saves a page. kInvalidArgument where it has no experts.
Result<std::vector<HostModel>> open_host_shards(const std::string& source,
                                                const std::filesystem::path& base,
                                                spec::DType dtype,
                                                const HostGeometry& geometry,
                                                std::int64_t ranks,
                                                const WholeModel& settings = {},
                                                spec::KvType kv = spec::KvType::kComputed);

/// The same for a model that is cut into `stages` stages of a pipeline: its stages, in order. Each
/// needs its own. kInvalidArgument also where it has too few layers: spec::cut_layers.
Result<std::vector<HostModel>> open_host_stages(const std::string& source,
                                                const std::filesystem::path& base,
                                                spec::DType dtype,
                                                const HostGeometry& geometry,
                                                std::int64_t stages,
                                                spec::KvType kv = spec::KvType::kComputed);

/// The most tokens of a step, a power of two from 16 to `most`, whose workspace takes at most a
/// sixteenth of a device of `device_bytes` and that kind for every one of the models (those that
/// can be found); 16 where none does. Reads files.
[[nodiscard]] std::int64_t choose_batch_tokens(const std::vector<std::string>& sources,
                                               const std::filesystem::path& base,
                                               device::Kind kind,
                                               std::uint64_t device_bytes,
                                               std::int64_t most);

}  // namespace heddle::agent
