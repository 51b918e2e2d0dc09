#pragma once

#include <cstdint>
#include <vector>

#include "collective/collective.h"
#include "ops/context.h"
#include "ops/peer_area.h"
#include "ops/tensor_ref.h"

/// What the streams of a group's ranks exchange. All ranks enqueue the same exchanges in the same
/// order; one that fails ends the stream's work with its error (collective::Collective), as does
/// one that another rank never comes to, once the group is abandoned.
///
/// On CUDA, ranks whose GPUs reach each other's memory exchange there (`peers`): kernels wait for
/// those of the other ranks, and can be recorded. Of an abandoned group they give up without an
/// error, which the group's next agreement has. Without `peers` data goes through the host: the
/// calling thread waits for the device and for the other ranks, and nothing can be recorded.
namespace heddle::ops {

struct AllReduceArgs {
  collective::Collective* group = nullptr;  ///< Outlives the work.
  TensorRef data{};                         ///< f32 [rows, columns], contiguous. In and out.
  const PeerArea* peers = nullptr;          ///< Of the same ranks; or none. Outlives the work.
};

/// data[i][j] = the sum of data[i][j] over all ranks, in rank order: the same bits everywhere.
/// Shapes and types that do not fit are bugs and CHECK-fail.
void all_reduce(OpContext& context, const AllReduceArgs& args);

struct AllGatherArgs {
  collective::Collective* group = nullptr;  ///< Outlives the work, as does what `ends` points to.
  TensorRef data{};                         ///< f32 [rows, columns], contiguous. In and out.
  /// Where the columns of each rank end; the last is `columns`.
  const std::vector<std::int64_t>* ends = nullptr;
  const PeerArea* peers = nullptr;  ///< As AllReduceArgs::peers.
};

/// Every rank has filled in its own columns of all rows; fills in the others'. Shapes and types
/// that do not fit are bugs and CHECK-fail.
void all_gather(OpContext& context, const AllGatherArgs& args);

}  // namespace heddle::ops
