#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "policy/admission.h"
#include "spec/dtype.h"
#include "spec/model_spec.h"
#include "store/model_source.h"

namespace heddle::agent {

/// A model as its host knows it before anybody loads it: what it is and what it needs.
struct HostModel {
  ModelId id{};
  std::string name{};
  std::filesystem::path directory{};
  spec::ModelSpec spec{};
  spec::DType dtype = spec::DType::kBf16;  ///< Of the image's matrices and of the KV.
  std::uint64_t image_bytes = 0;
  policy::Footprint footprint{};      ///< In the host's pages.
  std::vector<std::string> unused{};  ///< Tensors of the checkpoint that nothing reads.
};

/// What a device runs in a step at most, and the size of its pages: what needs depend on.
struct HostGeometry {
  std::size_t page_bytes = 0;
  std::int64_t max_batch_tokens = 0;
};

/// Finds the model `source` and reads its configuration and the headers of its tensors (files, so:
/// not on the loop). Errors as store::find_model and store::Checkpoint::open; kInvalidArgument
/// where a page cannot hold its KV. `id` and `name` are the caller's.
Result<HostModel> open_host_model(const std::string& source,
                                  const store::ModelPlaces& places,
                                  spec::DType dtype,
                                  const HostGeometry& geometry);

/// The most tokens of a step, a power of two from 16 to 512, whose workspace takes at most a
/// sixteenth of a device of `device_bytes` for every one of `models`; the least where none does.
[[nodiscard]] std::int64_t choose_batch_tokens(const std::vector<spec::ModelSpec>& models,
                                               std::uint64_t device_bytes);

}  // namespace heddle::agent
