#include "lab/op_times.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include "ops/attention.h"
#include "ops/context.h"
#include "ops/linear.h"

namespace heddle::lab {

namespace {

using device::Buffer;
using ops::DType;

constexpr std::int64_t kRecorded = 10;  ///< Of an operation in one CUDA graph.
constexpr std::int64_t kBlockTokens = 16;
constexpr std::int64_t kTokens[] = {1, 16, 128, 512, 2048};
constexpr std::int64_t kHeadTokensMax = 32;  ///< As many rows of logits the engine makes at once.
constexpr std::int64_t kBatches[] = {1, 8, 32, 128};
constexpr std::int64_t kContexts[] = {128, 1024, 8192};

/// A device's memory and stream, and how long work on it takes.
class Bed {
 public:
  static Result<Bed> make(device::Device& device, const OpLimits& limits) {
    const ops::KernelTable* const kernels = ops::kernels_for(device.properties().kind);
    if (kernels == nullptr || !device.properties().records) {
      return Error{.code = Code::kFailedPrecondition,
                   .message = "time operations: the device does not record"};
    }
    auto stream = device.create_stream();
    if (!stream) {
      return stream.error();
    }
    return Bed(device, std::move(*stream), *kernels, limits);
  }

  /// Zeros; nothing where there is no memory for them.
  std::optional<Buffer> zeros(std::int64_t bytes) {
    auto buffer = device_->allocate(device::Place::kDevice, static_cast<std::size_t>(bytes));
    return buffer ? std::optional(std::move(*buffer)) : std::nullopt;
  }
  std::optional<Buffer> integers(const std::vector<std::int32_t>& values) {
    auto buffer = zeros(std::ssize(values) * 4);
    if (buffer) {
      stream_->copy(buffer->data(),
                    reinterpret_cast<const std::byte*>(values.data()),
                    values.size() * sizeof(values[0]));
    }
    return buffer && stream_->synchronize() ? std::move(buffer) : std::nullopt;
  }

  /// Seconds of one such call.
  Result<double> measure(const std::function<void(ops::OpContext&)>& enqueue) {
    ops::OpContext context{.stream = *stream_, .kernels = *kernels_};
    enqueue(context);  // What it loads and allocates cannot be recorded.
    if (auto done = stream_->synchronize(); !done) {
      return done.error();
    }
    (void)stream_->begin_capture();
    for (std::int64_t i = 0; i < kRecorded; ++i) {
      enqueue(context);
    }
    auto graph = stream_->end_capture();
    if (!graph) {
      return graph.error();
    }
    std::vector<double> seconds;
    for (std::int64_t i = 0; i < limits_.repeats; ++i) {
      const auto before = std::chrono::steady_clock::now();
      stream_->replay(**graph);
      if (auto done = stream_->synchronize(); !done) {
        return done.error();
      }
      const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - before;
      seconds.push_back(passed.count() / kRecorded);
    }
    std::ranges::sort(seconds);
    return seconds[seconds.size() / 2];
  }

  [[nodiscard]] const OpLimits& limits() const { return limits_; }

 private:
  Bed(device::Device& device,
      std::unique_ptr<device::Stream> stream,
      const ops::KernelTable& kernels,
      const OpLimits& limits)
      : device_(&device), stream_(std::move(stream)), kernels_(&kernels), limits_(limits) {}

  device::Device* device_;
  std::unique_ptr<device::Stream> stream_;
  const ops::KernelTable* kernels_;
  OpLimits limits_;
};

struct Product {
  const char* op;
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
};

/// One product with 1 to limits.tokens tokens. Appends what fits.
Result<void> time_product(Bed& bed,
                          const Product& product,
                          DType dtype,
                          std::int64_t most,
                          std::vector<OpSample>& samples) {
  const std::int64_t weights = product.inputs * product.outputs * ops::dtype_size(dtype);
  const DType x_type = dtype == DType::kI8 ? DType::kBf16 : dtype;
  const auto weight = bed.zeros(weights);
  const auto scale = bed.zeros(product.outputs * 4);
  for (const std::int64_t tokens : kTokens) {
    if (tokens > std::min(most, bed.limits().tokens)) {
      break;
    }
    const auto x = bed.zeros(tokens * product.inputs * ops::dtype_size(x_type));
    const auto out = bed.zeros(tokens * product.outputs * 4);
    if (!weight || !scale || !x || !out) {
      break;
    }
    const std::byte* const scales = dtype == DType::kI8 ? scale->data() : nullptr;
    const ops::LinearArgs args{
        .x = ops::tensor_2d<const std::byte>(x->data(), x_type, tokens, product.inputs),
        .weight =
            ops::tensor_2d<const std::byte>(weight->data(), dtype, product.outputs, product.inputs),
        .scale = scales == nullptr ? ops::ConstTensorRef{}
                                   : ops::tensor_1d(scales, DType::kF32, product.outputs),
        .out = ops::tensor_2d(out->data(), DType::kF32, tokens, product.outputs)};
    const Result<double> seconds =
        bed.measure([&](ops::OpContext& context) { ops::linear(context, args); });
    if (!seconds) {
      return seconds.error();
    }
    samples.push_back(
        {.op = product.op,
         .tokens = tokens,
         .seconds = *seconds,
         .bytes = static_cast<double>(weights),
         .flops = 2.0 * static_cast<double>(tokens * product.inputs * product.outputs)});
  }
  return {};
}

/// `batch` sequences with `fresh` tokens each behind `context` of them.
Result<void> time_attention(Bed& bed,
                            const spec::ModelSpec& model,
                            std::int64_t batch,
                            std::int64_t fresh,
                            std::int64_t context,
                            std::vector<OpSample>& samples) {
  const std::int64_t tokens = batch * fresh;
  const std::int64_t blocks = (context + fresh + kBlockTokens - 1) / kBlockTokens;
  const std::int64_t half = model.kv_heads * kBlockTokens * model.head_dim;
  const std::int64_t width = model.heads * model.head_dim;
  std::vector<std::int32_t> table(static_cast<std::size_t>(batch * blocks));
  std::iota(table.begin(), table.end(), 0);
  std::vector<std::int32_t> begin(static_cast<std::size_t>(batch + 1));
  for (std::size_t i = 0; i < begin.size(); ++i) {
    begin[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) * fresh);
  }
  const std::vector<std::int32_t> first(static_cast<std::size_t>(batch),
                                        static_cast<std::int32_t>(context));
  const auto cache = bed.zeros(batch * blocks * 2 * half * 2);
  const auto query = bed.zeros(tokens * width * 4);
  const auto out = bed.zeros(tokens * width * 2);
  const auto table_on = bed.integers(table);
  const auto begin_on = bed.integers(begin);
  const auto first_on = bed.integers(first);
  if (!cache || !query || !out || !table_on || !begin_on || !first_on) {
    return {};
  }
  const auto heads = [&](const Buffer& buffer, DType dtype) {
    return ops::heads_of(
        ops::tensor_2d(buffer.data(), dtype, tokens, width), 0, model.heads, model.head_dim);
  };
  const auto ints = [](const Buffer& buffer, std::int64_t count) {
    return ops::tensor_1d<const std::byte>(buffer.data(), DType::kI32, count);
  };
  const ops::AttentionArgs args{
      .rows = {.begin = ints(*begin_on, batch + 1), .first_position = ints(*first_on, batch)},
      .query = heads(*query, DType::kF32),
      .kv = {.base = cache->data(),
             .block_bytes = 2 * half * 2,
             .block_tokens = kBlockTokens,
             .key_offset = 0,
             .value_offset = half * 2,
             .kv_heads = model.kv_heads,
             .head_dim = model.head_dim,
             .dtype = DType::kBf16,
             .table =
                 ops::tensor_2d<const std::byte>(table_on->data(), DType::kI32, batch, blocks)},
      .scale = 0.1F,
      .out = heads(*out, DType::kBf16)};
  const Result<double> seconds = bed.measure([&](ops::OpContext& of) { ops::attention(of, args); });
  if (!seconds) {
    return seconds.error();
  }
  const double attended = static_cast<double>(context) + (static_cast<double>(fresh) + 1) / 2;
  samples.push_back(
      {.op = fresh > 1 ? "attention of a prompt" : "attention in decode",
       .tokens = tokens,
       .context = context,
       .seconds = *seconds,
       .bytes = static_cast<double>(batch * (context + fresh) * 2 * half / kBlockTokens * 2),
       .flops = 4 * static_cast<double>(tokens * width) * attended});
  return {};
}

}  // namespace

Result<std::vector<OpSample>> time_ops(device::Device& device,
                                       const spec::ModelSpec& model,
                                       spec::DType dtype,
                                       const OpLimits& limits) {
  Result<Bed> bed = Bed::make(device, limits);
  if (!bed) {
    return bed.error();
  }
  std::vector<OpSample> samples;
  Result<void> done;
  const std::int64_t width = model.heads * model.head_dim;
  for (const Product& product :
       {Product{"qkv", model.hidden, width + 2 * model.kv_heads * model.head_dim},
        Product{"attention's output", width, model.hidden},
        Product{"gate and up", model.hidden, 2 * model.intermediate},
        Product{"down", model.intermediate, model.hidden}}) {
    if (product.inputs == 0 || product.outputs == 0) {
      continue;  // All of its MLP is experts.
    }
    done = done ? time_product(*bed, product, dtype, limits.tokens, samples) : done;
  }
  const Product head{"head", model.hidden, model.vocab};
  done = done ? time_product(*bed, head, dtype, kHeadTokensMax, samples) : done;
  for (const std::int64_t context : kContexts) {
    for (const std::int64_t batch : kBatches) {
      if (batch <= limits.tokens && context <= std::min(limits.context, model.max_position - 1)) {
        done = done ? time_attention(*bed, model, batch, 1, context, samples) : done;
      }
    }
  }
  for (const std::int64_t tokens : kTokens) {
    if (tokens > 1 && tokens <= std::min(limits.tokens, model.max_position)) {
      done = done ? time_attention(*bed, model, 1, tokens, 0, samples) : done;
    }
  }
  return done ? Result<std::vector<OpSample>>(std::move(samples)) : done.error();
}

}  // namespace heddle::lab
