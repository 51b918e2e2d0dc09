#include "ops/gather_rows.h"

#include "ops/cuda/kernels.h"
#include "ops/cuda/kernels/gather_rows_params.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/panel_type.h"

namespace heddle::ops::cuda {
namespace {

void gather_panels(device::CudaStream& stream, const GatherRowsArgs& args) {
  const PanelRowsParams params{.weight = args.table.data,
                               .type = panel_type(args.table.dtype),
                               .inputs = static_cast<std::int32_t>(args.table.shape[1]),
                               .outputs = args.table.shape[0],
                               .out = args.out.data,
                               .rows = args.rows.as<std::int32_t>(),
                               .first = args.first,
                               .out_stride = args.out.stride[0]};
  stream.launch(kernel("heddle_panel_rows"),
                {.grid = {static_cast<std::uint32_t>(args.rows.shape[0]), 1, 1},
                 .block = {kPanelRowsThreads, 1, 1}},
                params);
}

}  // namespace

void gather_rows(device::Stream& stream, const GatherRowsArgs& args) {
  if (spec::is_blocks(args.table.dtype)) {
    gather_panels(cuda_stream(stream), args);
    return;
  }
  const std::int64_t columns = args.table.shape[1];
  const bool quads = moves_by(4, args.table.data, args.table.dtype, columns) &&
                     moves_by(4, args.out.data, args.out.dtype, args.out.stride[0]);
  const GatherRowsParams params{.table = args.table.data,
                                .rows = args.rows.as<std::int32_t>(),
                                .out = args.out.as<float>(),
                                .out_stride = args.out.stride[0],
                                .first = args.first,
                                .entries = args.table.shape[0],
                                .columns = columns,
                                .bf16 = args.table.dtype == DType::kBf16,
                                .quads = quads};
  cuda_stream(stream).launch(kernel("heddle_gather_rows"),
                             shape_of_rows(args.rows.shape[0], quads ? columns / 4 : columns),
                             params);
}

}  // namespace heddle::ops::cuda
