#include "ops/gather_rows.h"

#include <algorithm>
#include <cstring>

#include "ops/bf16.h"
#include "ops/cpu/kernels.h"
#include "spec/block_panels.h"

namespace heddle::ops::cpu {

void gather_rows(device::Stream& stream, const GatherRowsArgs& args) {
  cpu_stream(stream).enqueue([args](device::ThreadPool&) {
    const std::int64_t columns = args.table.shape[1];
    const auto* rows = args.rows.as<std::int32_t>();
    for (std::int64_t i = 0; i < args.rows.shape[0]; ++i) {
      float* out = args.out.as<float>() + i * args.out.stride[0];
      const std::int64_t row = rows[i] - args.first;
      if (row < 0 || row >= args.table.shape[0]) {
        std::fill_n(out, columns, 0.0F);
        continue;
      }
      if (args.table.dtype == DType::kF32) {
        std::memcpy(out,
                    args.table.as<float>() + row * columns,
                    static_cast<std::size_t>(columns) * sizeof(float));
        continue;
      }
      if (spec::is_blocks(args.table.dtype)) {
        const std::int64_t within = row % spec::kPanelRows;
        const std::byte* const panel =
            args.table.data + (row - within) * spec::row_bytes(args.table.dtype, columns);
        spec::read_panel_row(args.table.dtype, panel, within, columns, out);
        continue;
      }
      const auto* source = args.table.as<std::uint16_t>() + row * columns;
      for (std::int64_t c = 0; c < columns; ++c) {
        out[c] = from_bf16(source[c]);
      }
    }
  });
}

}  // namespace heddle::ops::cpu
