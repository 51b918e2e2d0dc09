#include "rpc/convert.h"

#include <algorithm>
#include <utility>

namespace heddle::rpc {

namespace {

void to_wire(const spec::RopeScaling& rope, wire::RopeScaling& out) {
  out.set_kind(static_cast<std::uint32_t>(rope.kind));
  out.set_factor(rope.factor);
  out.set_low_freq_factor(rope.low_freq_factor);
  out.set_high_freq_factor(rope.high_freq_factor);
  out.set_beta_fast(rope.beta_fast);
  out.set_beta_slow(rope.beta_slow);
  out.set_attention_factor(rope.attention_factor);
  out.set_mscale(rope.mscale);
  out.set_mscale_all_dim(rope.mscale_all_dim);
  out.set_truncate(rope.truncate);
  out.set_original_max_position(rope.original_max_position);
}

spec::RopeScaling from_wire(const wire::RopeScaling& in, WireCheck& check) {
  return {.kind = check.enumerator(in.kind(), spec::RopeKind::kYarn, "kind of rope"),
          .factor = in.factor(),
          .low_freq_factor = in.low_freq_factor(),
          .high_freq_factor = in.high_freq_factor(),
          .beta_fast = in.beta_fast(),
          .beta_slow = in.beta_slow(),
          .attention_factor = in.attention_factor(),
          .mscale = in.mscale(),
          .mscale_all_dim = in.mscale_all_dim(),
          .truncate = in.truncate(),
          .original_max_position = in.original_max_position()};
}

}  // namespace

std::int64_t WireCheck::count(std::int64_t value, const char* what) {
  if (value < 0) {
    fail(std::string(what) + " " + std::to_string(value) + "; it cannot be negative");
    return 0;
  }
  return value;
}

void WireCheck::fail(std::string message) {
  if (!failure_.has_value()) {
    failure_ = Error{Code::kCorrupt, std::move(message)};
  }
}

void to_wire(const Error& error, wire::Failure& out) {
  out.set_code(static_cast<std::uint32_t>(error.code));
  out.set_message(error.message);
}

Error from_wire(const wire::Failure& in, WireCheck& check) {
  return {check.enumerator(in.code(), Code::kCorrupt, "error code"), in.message()};
}

wire::DType to_wire(spec::DType dtype) {
  switch (dtype) {
    case spec::DType::kF32:
      return wire::D_TYPE_F32;
    case spec::DType::kF16:
      return wire::D_TYPE_F16;
    case spec::DType::kBf16:
      return wire::D_TYPE_BF16;
    case spec::DType::kI32:
      return wire::D_TYPE_I32;
    case spec::DType::kI8:
      return wire::D_TYPE_I8;
  }
  return wire::D_TYPE_UNKNOWN;
}

spec::DType from_wire(wire::DType dtype, WireCheck& check) {
  switch (dtype) {
    case wire::D_TYPE_F32:
      return spec::DType::kF32;
    case wire::D_TYPE_F16:
      return spec::DType::kF16;
    case wire::D_TYPE_BF16:
      return spec::DType::kBf16;
    case wire::D_TYPE_I32:
      return spec::DType::kI32;
    case wire::D_TYPE_I8:
      return spec::DType::kI8;
    default:
      check.fail("dtype " + std::to_string(static_cast<int>(dtype)) + ", which is not known");
      return spec::DType::kF32;
  }
}

void to_wire(const spec::ModelSpec& model, wire::ModelSpec& out) {
  out.set_architecture(static_cast<std::uint32_t>(model.architecture));
  out.set_hidden(model.hidden);
  out.set_layers(model.layers);
  out.set_heads(model.heads);
  out.set_kv_heads(model.kv_heads);
  out.set_head_dim(model.head_dim);
  out.set_intermediate(model.intermediate);
  out.set_vocab(model.vocab);
  out.set_max_position(model.max_position);
  out.set_rms_eps(model.rms_eps);
  out.set_rope_theta(model.rope_theta);
  to_wire(model.rope, *out.mutable_rope());
  out.set_qkv_bias(model.qkv_bias);
  out.set_out_bias(model.out_bias);
  out.set_mlp_bias(model.mlp_bias);
  out.set_qk_norm(model.qk_norm);
  out.set_tied_embeddings(model.tied_embeddings);
  out.mutable_window()->Assign(model.window.begin(), model.window.end());
  out.set_stored_dtype(to_wire(model.stored_dtype));
  out.set_bos(model.bos);
  out.mutable_eos()->Assign(model.eos.begin(), model.eos.end());
  out.set_rank(model.shard.rank);
  out.set_ranks(model.shard.ranks);
}

spec::ModelSpec from_wire(const wire::ModelSpec& in, WireCheck& check) {
  spec::ModelSpec model;
  model.architecture =
      check.enumerator(in.architecture(), spec::Architecture::kQwen3, "architecture");
  model.hidden = check.count(in.hidden(), "hidden");
  model.layers = check.count(in.layers(), "layers");
  model.heads = check.count(in.heads(), "heads");
  model.kv_heads = check.count(in.kv_heads(), "kv_heads");
  model.head_dim = check.count(in.head_dim(), "head_dim");
  model.intermediate = check.count(in.intermediate(), "intermediate");
  model.vocab = check.count(in.vocab(), "vocab");
  model.max_position = check.count(in.max_position(), "max_position");
  model.rms_eps = in.rms_eps();
  model.rope_theta = in.rope_theta();
  model.rope = from_wire(in.rope(), check);
  model.qkv_bias = in.qkv_bias();
  model.out_bias = in.out_bias();
  model.mlp_bias = in.mlp_bias();
  model.qk_norm = in.qk_norm();
  model.tied_embeddings = in.tied_embeddings();
  for (const std::int64_t window : in.window()) {
    model.window.push_back(check.count(window, "window"));
  }
  model.stored_dtype = from_wire(in.stored_dtype(), check);
  model.bos = in.bos();
  model.eos.assign(in.eos().begin(), in.eos().end());
  model.shard = {.rank = in.rank(), .ranks = in.ranks()};
  if (in.rank() < 0 || in.rank() >= in.ranks() ||
      in.ranks() > std::max<std::int64_t>(1, model.vocab)) {
    check.fail("rank " + std::to_string(in.rank()) + " of " + std::to_string(in.ranks()) +
               " ranks of a vocabulary of " + std::to_string(model.vocab));
    model.shard = {};
  }
  return model;
}

void to_wire(const spec::SamplingParams& params, wire::SamplingParams& out) {
  out.set_temperature(params.temperature);
  out.set_top_p(params.top_p);
  out.set_top_k(params.top_k);
  out.set_min_p(params.min_p);
  out.set_presence_penalty(params.presence_penalty);
  out.set_frequency_penalty(params.frequency_penalty);
  out.set_repetition_penalty(params.repetition_penalty);
  for (const auto& [token, bias] : params.logit_bias) {
    wire::LogitBias& entry = *out.add_logit_bias();
    entry.set_token(token);
    entry.set_bias(bias);
  }
  out.set_seed(params.seed);
  out.set_choice(params.choice);
  out.set_max_tokens(params.max_tokens);
  out.set_ignore_eos(params.ignore_eos);
  out.mutable_stop_tokens()->Assign(params.stop_tokens.begin(), params.stop_tokens.end());
  out.set_logprobs(params.logprobs);
  if (params.grammar.constrains()) {
    out.mutable_grammar()->set_kind(static_cast<std::uint32_t>(params.grammar.kind));
    out.mutable_grammar()->set_text(params.grammar.text);
    out.mutable_grammar()->set_thought(static_cast<std::uint32_t>(params.grammar.thought));
  }
  out.set_pooling(static_cast<std::uint32_t>(params.pooling));
}

spec::SamplingParams from_wire(const wire::SamplingParams& in, WireCheck& check) {
  spec::SamplingParams params;
  params.temperature = in.temperature();
  params.top_p = in.top_p();
  params.top_k = in.top_k();
  params.min_p = in.min_p();
  params.presence_penalty = in.presence_penalty();
  params.frequency_penalty = in.frequency_penalty();
  params.repetition_penalty = in.repetition_penalty();
  for (const wire::LogitBias& entry : in.logit_bias()) {
    params.logit_bias.emplace_back(entry.token(), entry.bias());
  }
  params.seed = in.seed();
  params.choice = in.choice();
  params.max_tokens = check.count(in.max_tokens(), "max_tokens");
  params.ignore_eos = in.ignore_eos();
  params.stop_tokens.assign(in.stop_tokens().begin(), in.stop_tokens().end());
  params.logprobs = in.logprobs();
  params.grammar = {
      .kind = check.enumerator(in.grammar().kind(), spec::GrammarKind::kLark, "kind of grammar"),
      .text = in.grammar().text(),
      .thought = check.enumerator(in.grammar().thought(), spec::Thought::kBegun, "thought")};
  params.pooling = check.enumerator(in.pooling(), spec::Pooling::kMean, "pooling");
  return params;
}

void to_wire(const policy::Footprint& footprint, wire::Footprint& out) {
  out.set_image_pages(footprint.image_pages);
  out.set_overhead_pages(footprint.overhead_pages);
  out.set_min_kv_pages(footprint.min_kv_pages);
  out.set_recording_pages(footprint.recording_pages);
  for (const policy::KvGroup& group : footprint.kv) {
    wire::KvGroup& entry = *out.add_kv();
    entry.set_tokens_per_block(group.tokens_per_block);
    entry.set_blocks_per_page(group.blocks_per_page);
    entry.set_window(group.window);
  }
}

policy::Footprint from_wire(const wire::Footprint& in, WireCheck& check) {
  policy::Footprint footprint;
  footprint.image_pages = check.count(in.image_pages(), "image pages");
  footprint.overhead_pages = check.count(in.overhead_pages(), "overhead pages");
  footprint.min_kv_pages = check.count(in.min_kv_pages(), "smallest KV pages");
  footprint.recording_pages = check.count(in.recording_pages(), "pages for recordings");
  for (const wire::KvGroup& entry : in.kv()) {
    if (entry.tokens_per_block() < 1 || entry.blocks_per_page() < 1) {
      check.fail("KV blocks that hold nothing");
    }
    footprint.kv.push_back({.tokens_per_block = entry.tokens_per_block(),
                            .blocks_per_page = entry.blocks_per_page(),
                            .window = check.count(entry.window(), "KV window")});
  }
  return footprint;
}

void to_wire(const ledger::PoolUsage& usage, wire::PoolUsage& out) {
  out.set_total(usage.total);
  out.set_free(usage.free);
  out.set_version(usage.version);
  for (std::size_t kind = 0; kind < usage.by_kind.size(); ++kind) {
    if (usage.by_kind[kind] == ledger::Share{}) {
      continue;
    }
    wire::LeasePages& entry = *out.add_leases();
    entry.set_kind(static_cast<std::uint32_t>(kind));
    entry.set_reserved(usage.by_kind[kind].reserved);
    entry.set_held(usage.by_kind[kind].held);
  }
}

ledger::PoolUsage from_wire(const wire::PoolUsage& in, WireCheck& check) {
  ledger::PoolUsage usage;
  usage.total = check.count(in.total(), "pages of a pool");
  usage.free = check.count(in.free(), "free pages of a pool");
  usage.version = in.version();
  for (const wire::LeasePages& entry : in.leases()) {
    const auto kind = check.enumerator(entry.kind(), ledger::LeaseKind::kImage, "kind of lease");
    usage.by_kind[static_cast<std::size_t>(kind)] = {
        .reserved = check.count(entry.reserved(), "reserved pages"),
        .held = check.count(entry.held(), "held pages")};
  }
  return usage;
}

void to_wire(const Beat& beat, wire::Beat& out) {
  for (const policy::ThreadPulse& thread : beat.threads) {
    wire::ThreadPulse& entry = *out.add_threads();
    entry.set_name(thread.name);
    entry.set_doing(static_cast<std::uint32_t>(thread.doing));
    entry.set_progress(thread.progress);
    entry.set_expected_ns(thread.expected.count());
  }
}

Beat from_wire(const wire::Beat& in, WireCheck& check) {
  Beat beat;
  if (in.threads_size() > kBeatThreadsMost) {
    check.fail("a beat of " + std::to_string(in.threads_size()) + " threads; there are at most " +
               std::to_string(kBeatThreadsMost));
    return beat;
  }
  for (const wire::ThreadPulse& entry : in.threads()) {
    beat.threads.push_back(
        {.name = entry.name(),
         .doing = check.enumerator(entry.doing(), policy::Doing::kCopy, "what a thread does"),
         .progress = entry.progress(),
         .expected = Duration(check.count(entry.expected_ns(), "expected time"))});
  }
  return beat;
}

}  // namespace heddle::rpc
