#include "engine/adapters.h"
#include "engine/decoder.h"
#include "ops/linear.h"
#include "ops/rescale.h"

namespace heddle::engine {
namespace {

ops::TensorRef rows_of(ops::TensorRef tensor, std::int64_t first, std::int64_t rows) {
  tensor.data += first * tensor.stride[0] * ops::dtype_size(tensor.dtype);
  tensor.shape[0] = rows;
  return tensor;
}

}  // namespace

/// out += B (A x) for the rows of each adapter: two products of few inputs or outputs, each over
/// all rows that share the adapter. What A gives is rounded to the type of B's inputs once, as all
/// inputs of products are. Rows without an adapter are neither read nor written.
void Decoder::add_adapters(ops::OpContext& context,
                           const Batch& batch,
                           std::int64_t layer,
                           store::AdapterTarget target,
                           const ops::TensorRef& x,
                           const ops::TensorRef& out,
                           const Activations& activations) const {
  for (const AdapterRows& group : batch.adapters) {
    for (const AdapterDelta& delta : group.weights->of(layer, target)) {
      const std::int64_t rank = delta.a.shape[0];
      const auto inner =
          ops::columns_of(Activations::rows(activations.adapter_inner, group.rows), 0, rank);
      ops::TensorRef narrow = inner;
      ops::linear(context,
                  {.x = rows_of(x, group.first, group.rows), .weight = delta.a, .out = inner});
      if (delta.b.dtype != inner.dtype) {
        narrow = ops::columns_of(Activations::rows(activations.adapter_in, group.rows), 0, rank);
        ops::rescale(context, {.x = inner, .out = narrow});
      }
      const auto to =
          rows_of(ops::columns_of(out, delta.first, delta.b.shape[0]), group.first, group.rows);
      ops::linear(context, {.x = narrow, .weight = delta.b, .residual = to, .out = to});
    }
  }
}

}  // namespace heddle::engine
