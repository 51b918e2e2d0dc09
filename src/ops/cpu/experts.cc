#include "ops/experts.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "ops/cpu/kernels.h"
#include "ops/cpu/simd/kernels.h"
#include "ops/gelu_mul.h"
#include "ops/linear.h"
#include "ops/silu_mul.h"
#include "spec/block_panels.h"

namespace heddle::ops::cpu {
namespace {

/// NaN is the largest.
bool outweighs(float a, float b) {
  return std::isnan(a) ? !std::isnan(b) : a > b;
}

/// `order` has room for as many as there are experts.
void choose(const ChooseExpertsArgs& args, std::int64_t token, std::vector<std::int32_t>& order) {
  const std::int64_t experts = args.logits.shape[1];
  const std::int64_t active = args.chosen.shape[1];
  const float* const logits = args.logits.as<float>() + token * args.logits.stride[0];
  auto* const chosen = args.chosen.as<std::int32_t>() + token * args.chosen.stride[0];
  float* const weights = args.weights.as<float>() + token * args.weights.stride[0];
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(
      order.begin(), order.begin() + active, order.end(), [logits](std::int32_t a, std::int32_t b) {
        return outweighs(logits[a], logits[b]) || (!outweighs(logits[b], logits[a]) && a < b);
      });
  const float largest = logits[order.front()];
  std::copy_n(order.begin(), active, chosen);
  std::sort(chosen, chosen + active);
  float sum = 0;
  for (std::int64_t k = 0; k < active; ++k) {
    sum += weights[k] = std::exp(logits[chosen[k]] - largest);
  }
  if (!args.normalised) {
    sum = 0;
    for (std::int64_t e = 0; e < experts; ++e) {
      sum += std::exp(logits[e] - largest);
    }
  }
  for (std::int64_t k = 0; k < active; ++k) {
    weights[k] /= sum;
    weights[k] *= args.scale.present() ? args.scale.as<float>()[chosen[k]] : 1.0F;
  }
}

/// The rows of one expert in a matrix that has those of all, one after the other; `elsewhere` is
/// where they lie if not there.
ConstTensorRef part_of(const ConstTensorRef& all,
                       std::int64_t expert,
                       std::int64_t rows,
                       const std::byte* elsewhere) {
  ConstTensorRef part = all;
  part.data = elsewhere != nullptr
                  ? elsewhere
                  : all.data + expert * rows * spec::row_bytes(all.dtype, all.shape[1]);
  part.shape[0] = rows;
  return part;
}
/// Scales or biases of rows [first, first + rows).
ConstTensorRef numbers_of(const ConstTensorRef& all, std::int64_t first, std::int64_t rows) {
  return all.present() ? vector_of(all.as<float>() + first, rows) : ConstTensorRef{};
}
/// Likewise scales that may lie elsewhere.
ConstTensorRef scales_of(const ConstTensorRef& all,
                         std::int64_t first,
                         std::int64_t rows,
                         const std::byte* elsewhere) {
  return elsewhere == nullptr ? numbers_of(all, first, rows)
                              : vector_of(reinterpret_cast<const float*>(elsewhere), rows);
}

TensorRef first_rows(TensorRef tensor, std::int64_t rows) {
  tensor.shape[0] = rows;
  return tensor;
}

/// A token that an expert has, and what it weighs there.
struct Taken {
  std::int64_t token = 0;
  float weight = 0;
};

/// Who took the expert, in order.
void find_taken(const ExpertsArgs& args, std::int64_t expert, std::vector<Taken>& taken) {
  taken.clear();
  const std::int64_t active = args.chosen.shape[1];
  for (std::int64_t token = 0; token < args.x.shape[0]; ++token) {
    const auto* const row = args.chosen.as<std::int32_t>() + token * args.chosen.stride[0];
    const auto* const found = std::find(row, row + active, expert);
    if (found != row + active) {
      const float* const weights = args.weights.as<float>() + token * args.weights.stride[0];
      taken.push_back({.token = token, .weight = weights[found - row]});
    }
  }
}

void begin_sums(const ExpertsArgs& args) {
  const std::int64_t hidden = args.out.shape[1];
  for (std::int64_t token = 0; token < args.out.shape[0]; ++token) {
    float* const out = args.out.as<float>() + token * args.out.stride[0];
    if (!args.residual.present()) {
      std::fill_n(out, hidden, 0.0F);
    } else if (args.residual.data != args.out.data) {
      std::copy_n(args.residual.as<float>() + token * args.residual.stride[0], hidden, out);
    }
  }
}

/// Adds what one expert gives to the tokens that took it.
void add_expert(const ExpertsArgs& args,
                std::int64_t expert,
                const std::vector<Taken>& taken,
                device::CpuStream& stream,
                device::ThreadPool& pool) {
  const std::int64_t hidden = args.x.shape[1];
  const std::int64_t width = args.gated.shape[1];
  const auto count = static_cast<std::int64_t>(taken.size());
  const TensorRef rows = first_rows(args.rows, count);
  const TensorRef in = first_rows(args.in, count);
  const TensorRef gated = first_rows(args.gated, count);
  const TensorRef product = first_rows(args.product, count);
  const std::int64_t element = dtype_size(args.x.dtype);
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(rows.data + i * rows.stride[0] * element,
                args.x.data + taken[static_cast<std::size_t>(i)].token * args.x.stride[0] * element,
                static_cast<std::size_t>(hidden * element));
  }
  const std::int64_t first = args.up.present() ? width : 2 * width;
  const ExpertWeights own =
      args.source == nullptr ? ExpertWeights{} : args.source->bring(args.layer, expert);
  linear_here({.x = rows,
               .weight = part_of(args.gate_up, expert, first, own.gate_up),
               .scale = scales_of(args.gate_up_scale, expert * first, first, own.gate_up_scale),
               .bias = numbers_of(args.gate_up_bias, expert * 2 * width, first),
               .out = columns_of(in, 0, first)},
              stream,
              pool);
  if (args.up.present()) {
    linear_here({.x = rows,
                 .weight = part_of(args.up, expert, width, own.up),
                 .bias = numbers_of(args.gate_up_bias, (2 * expert + 1) * width, width),
                 .out = columns_of(in, width, width)},
                stream,
                pool);
  }
  if (args.gelu) {
    gelu_mul_here({.gate_up = in, .out = gated}, pool);
  } else {
    silu_mul_here({.gate_up = in, .out = gated, .limit = args.limit, .gain = args.gain}, pool);
  }
  linear_here({.x = gated,
               .weight = part_of(args.down, expert, hidden, own.down),
               .scale = scales_of(args.down_scale, expert * hidden, hidden, own.down_scale),
               .bias = numbers_of(args.down_bias, expert * hidden, hidden),
               .out = product},
              stream,
              pool);
  pool.parallel_for(count, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const Taken& one = taken[static_cast<std::size_t>(i)];
      float* const out = args.out.as<float>() + one.token * args.out.stride[0];
      const float* const gives = product.as<float>() + i * product.stride[0];
      for (std::int64_t c = 0; c < hidden; ++c) {
        out[c] += one.weight * gives[c];
      }
    }
  });
}

}  // namespace

void choose_experts(device::Stream& stream, const ChooseExpertsArgs& args) {
  cpu_stream(stream).enqueue([args](device::ThreadPool& pool) {
    pool.parallel_for(args.logits.shape[0], 16, [&](std::int64_t begin, std::int64_t end, int) {
      std::vector<std::int32_t> order(static_cast<std::size_t>(args.logits.shape[1]));
      for (std::int64_t token = begin; token < end; ++token) {
        choose(args, token, order);
      }
    });
  });
}

void experts(device::Stream& stream, const ExpertsArgs& args) {
  device::CpuStream& cpu = cpu_stream(stream);
  cpu.enqueue([args, &cpu](device::ThreadPool& pool) {
    begin_sums(args);
    std::vector<Taken> taken;
    const std::int64_t count = args.down.shape[0] / args.x.shape[1];
    for (std::int64_t expert = 0; expert < count; ++expert) {
      find_taken(args, expert, taken);
      if (!taken.empty()) {
        add_expert(args, expert, taken, cpu, pool);
      }
    }
  });
}

void share_rows(device::Stream& stream, const ShareRowsArgs& args) {
  cpu_stream(stream).enqueue([args](device::ThreadPool&) {
    for (std::int64_t token = 0; token < args.rows.shape[0]; ++token) {
      const float gate = *(args.gate.as<float>() + token * args.gate.stride[0]);
      const float share = 1.0F / (1.0F + std::exp(-gate));
      float* const row = args.rows.as<float>() + token * args.rows.stride[0];
      for (std::int64_t i = 0; i < args.rows.shape[1]; ++i) {
        row[i] *= share;
      }
    }
  });
}

}  // namespace heddle::ops::cpu
