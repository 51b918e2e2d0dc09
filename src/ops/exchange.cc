#include "ops/exchange.h"

#include "ops/checks.h"

namespace heddle::ops {
namespace {

void check_peers(const collective::Collective& group, const PeerArea* peers) {
  HEDDLE_CHECK(peers == nullptr || (peers->rank == group.rank() && peers->ranks == group.size()));
}

}  // namespace

void all_reduce(OpContext& context, const AllReduceArgs& args) {
  HEDDLE_CHECK(args.group != nullptr);
  check_peers(*args.group, args.peers);
  check_matrix(args.data);
  HEDDLE_CHECK(args.data.dtype == DType::kF32);
  context.kernels.all_reduce(context.stream, args);
}

void all_gather(OpContext& context, const AllGatherArgs& args) {
  HEDDLE_CHECK(args.group != nullptr && args.ends != nullptr);
  check_peers(*args.group, args.peers);
  check_matrix(args.data);
  HEDDLE_CHECK(args.data.dtype == DType::kF32);
  HEDDLE_CHECK(static_cast<std::int64_t>(args.ends->size()) == args.group->size());
  HEDDLE_CHECK(args.ends->back() == args.data.shape[1]);
  context.kernels.all_gather(context.stream, args);
}

}  // namespace heddle::ops
