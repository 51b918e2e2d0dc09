#include "engine/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "spec/operations.h"

namespace heddle::engine {
namespace {

using spec::RopeKind;

double original_positions(const spec::ModelSpec& model) {
  return static_cast<double>(model.rope.original_max_position > 0 ? model.rope.original_max_position
                                                                  : model.max_position);
}

double llama3_frequency(double plain, const spec::ModelSpec& model) {
  const spec::RopeScaling& rope = model.rope;
  const double turns = original_positions(model) * plain / (2.0 * std::numbers::pi);
  if (turns < rope.low_freq_factor) {
    return plain / rope.factor;
  }
  if (turns > rope.high_freq_factor) {
    return plain;
  }
  const double keep =
      (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1.0 - keep) * plain / rope.factor + keep * plain;
}

/// The dimension whose frequency makes `turns` turns over the original context.
double yarn_dimension(double turns, const spec::ModelSpec& model) {
  return static_cast<double>(spec::rotary_dim(model)) *
         std::log(original_positions(model) / (turns * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(model.rope_theta));
}

struct YarnRamp {
  double begin = 0.0;  ///< Dimensions up to here keep their frequency,
  double end = 0.0;    ///< and from here on it is divided by the factor.
};

YarnRamp yarn_ramp(const spec::ModelSpec& model) {
  YarnRamp ramp{.begin = yarn_dimension(model.rope.beta_fast, model),
                .end = yarn_dimension(model.rope.beta_slow, model)};
  if (model.rope.truncate) {
    ramp = {.begin = std::floor(ramp.begin), .end = std::ceil(ramp.end)};
  }
  ramp.begin = std::max(ramp.begin, 0.0);
  ramp.end = std::min(ramp.end, static_cast<double>(spec::rotary_dim(model) - 1));
  if (ramp.begin == ramp.end) {
    ramp.end += 0.001;  // As checkpoints were trained: no division by zero.
  }
  return ramp;
}

double yarn_mscale(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

double yarn_attention_factor(const spec::RopeScaling& rope) {
  if (rope.attention_factor > 0.0) {
    return rope.attention_factor;
  }
  if (rope.mscale > 0.0 && rope.mscale_all_dim > 0.0) {
    return yarn_mscale(rope.factor, rope.mscale) / yarn_mscale(rope.factor, rope.mscale_all_dim);
  }
  return yarn_mscale(rope.factor, 1.0);
}

double longrope_attention_factor(const spec::ModelSpec& model) {
  const spec::RopeScaling& rope = model.rope;
  if (rope.attention_factor > 0.0) {
    return rope.attention_factor;
  }
  return rope.factor <= 1.0
             ? 1.0
             : std::sqrt(1.0 + std::log(rope.factor) / std::log(original_positions(model)));
}

}  // namespace

RopeFrequencies rope_frequencies(const spec::ModelSpec& model, spec::LayerRope of) {
  if (of == spec::LayerRope::kLocal) {
    spec::ModelSpec local = model;
    local.rope = {};
    local.global_head_dim = 0;
    local.rope_theta = model.local_theta;
    return rope_frequencies(local);
  }
  if (of == spec::LayerRope::kNone) {
    return {.radians =
                std::vector<double>(static_cast<std::size_t>(spec::rotary_dim(model) / 2), 0.0)};
  }
  const spec::RopeScaling& rope = model.rope;
  RopeFrequencies result;
  const YarnRamp ramp = rope.kind == RopeKind::kYarn ? yarn_ramp(model) : YarnRamp{};
  const std::int64_t rotary = spec::rotary_dim(model);
  const auto turning = static_cast<std::int64_t>(rope.share * static_cast<double>(rotary) / 2.0);
  for (std::int64_t i = 0; i < rotary / 2; ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(rotary);
    double frequency = std::pow(model.rope_theta, -exponent);
    if (rope.kind == RopeKind::kLinear) {
      frequency /= rope.factor;
    } else if (rope.kind == RopeKind::kLlama3) {
      frequency = llama3_frequency(frequency, model);
    } else if (rope.kind == RopeKind::kYarn) {
      const double stretched =
          std::clamp((static_cast<double>(i) - ramp.begin) / (ramp.end - ramp.begin), 0.0, 1.0);
      frequency = stretched * frequency / rope.factor + (1.0 - stretched) * frequency;
    } else if (rope.kind == RopeKind::kProportional) {
      frequency = i < turning ? frequency / rope.factor : 0.0;
    } else if (rope.kind == RopeKind::kLongRope) {
      frequency /= rope.factors[static_cast<std::size_t>(i)];
    }
    result.radians.push_back(frequency);
  }
  if (rope.kind == RopeKind::kYarn) {
    result.scale = yarn_attention_factor(rope);
  } else if (rope.kind == RopeKind::kLongRope) {
    result.scale = longrope_attention_factor(model);
  }
  return result;
}

void rope_cos_sin(const RopeFrequencies& frequencies, std::int64_t position, std::span<float> out) {
  const std::size_t n = frequencies.radians.size();
  HEDDLE_CHECK(out.size() == 2 * n);
  for (std::size_t i = 0; i < n; ++i) {
    const double angle = static_cast<double>(position) * frequencies.radians[i];
    out[i] = static_cast<float>(std::cos(angle) * frequencies.scale);
    out[n + i] = static_cast<float>(std::sin(angle) * frequencies.scale);
  }
}

std::span<const float> RopeTable::row(std::int64_t position) {
  HEDDLE_CHECK(position >= 0);
  const std::size_t width = 2 * frequencies_.radians.size();
  if (position >= kKept) {
    beyond_.resize(width);
    rope_cos_sin(frequencies_, position, beyond_);
    return beyond_;
  }
  const std::size_t chunk = static_cast<std::size_t>(position) / kChunk;
  const std::size_t place = static_cast<std::size_t>(position) % kChunk;
  if (chunk >= chunks_.size()) {
    chunks_.resize(chunk + 1);
  }
  std::vector<float>& rows = chunks_[chunk];
  if (rows.empty()) {
    rows.resize(kChunk * width);
    for (std::size_t i = 0; i < kChunk; ++i) {
      rope_cos_sin(frequencies_,
                   static_cast<std::int64_t>(chunk * kChunk + i),
                   std::span(rows).subspan(i * width, width));
    }
  }
  return std::span<const float>(rows).subspan(place * width, width);
}

}  // namespace heddle::engine
