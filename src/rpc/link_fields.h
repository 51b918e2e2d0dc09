#pragma once

#include <algorithm>
#include <iterator>

#include "core/message_fields.h"
#include "rpc/frame.h"
#include "rpc/messages.h"
#include "spec/operations.h"

/// As core/message_fields.h, for what the shells of serve and worker say beside their cores.
namespace heddle {

inline void fields(Fields& v, spec::RopeScaling& x) {
  v.type("RopeScaling");
  v(1, "kind", x.kind);
  v(2, "factor", x.factor);
  v(3, "low_freq_factor", x.low_freq_factor);
  v(4, "high_freq_factor", x.high_freq_factor);
  v(5, "beta_fast", x.beta_fast);
  v(6, "beta_slow", x.beta_slow);
  v(7, "attention_factor", x.attention_factor);
  v(8, "mscale", x.mscale);
  v(9, "mscale_all_dim", x.mscale_all_dim);
  v(10, "truncate", x.truncate);
  v(11, "original_max_position", x.original_max_position, kCount);
  v(12, "factors", x.factors);
  v(13, "short_factors", x.short_factors);
  v(14, "share", x.share);
}

inline void fields(Fields& v, spec::Shard& x) {
  v.type("Shard");
  v(1, "rank", x.rank, kCount);
  v(2, "ranks", x.ranks);
  v.require(
      x, "a rank below ranks", [](const spec::Shard& shard) { return shard.rank < shard.ranks; });
}

inline void fields(Fields& v, spec::PipeStage& x) {
  v.type("PipeStage");
  v(1, "index", x.index, kCount);
  v(2, "ends", x.ends, kCount);
}

inline void fields(Fields& v, spec::Experts& x) {
  v.type("Experts");
  v(1, "count", x.count, kCount);
  v(2, "active", x.active, kCount);
  v(3, "intermediate", x.intermediate, kCount);
  v(4, "normalised", x.normalised);
  v(5, "biased", x.biased);
  v(6, "gate_limit", x.gate_limit);
  v(7, "gate_gain", x.gate_gain);
  v(8, "slots", x.slots, kCount);
  v(9, "beside", x.beside);
  v.require(x, "no more active experts than there are", [](const spec::Experts& experts) {
    return experts.active <= experts.count;
  });
}

inline void fields(Fields& v, spec::Scales& x) {
  v.type("Scales");
  v(1, "embedding", x.embedding);
  v(2, "attention", x.attention);
  v(3, "residual", x.residual);
  v(4, "logits", x.logits);
  v(5, "attention_cap", x.attention_cap);
  v(6, "logit_cap", x.logit_cap);
}

inline void fields(Fields& v, spec::LinearAttention& x) {
  v.type("LinearAttention");
  v(1, "key_heads", x.key_heads, kCount);
  v(2, "value_heads", x.value_heads, kCount);
  v(3, "key_dim", x.key_dim, kCount);
  v(4, "value_dim", x.value_dim, kCount);
  v(5, "kernel", x.kernel, kCount);
  v(6, "tiled", x.tiled);
  v(7, "gates_apart", x.gates_apart);
  v.require(x, "value heads that are a multiple of key heads", [](const spec::LinearAttention& of) {
    return of.key_heads == 0 ? of.value_heads == 0 : of.value_heads % of.key_heads == 0;
  });
}

inline void fields(Fields& v, spec::AdapterSource& x) {
  v.type("AdapterSource");
  v(1, "name", x.name);
  v(2, "directory", x.directory);
}

inline void fields(Fields& v, spec::Encoder& x) {
  v.type("Encoder");
  v(1, "positions", x.positions, kCount);
  v(2, "first_position", x.first_position, kCount);
  v(3, "types", x.types, kCount);
  v(4, "scores", x.scores);
  v(5, "bare", x.bare);
}

inline void fields(Fields& v, spec::ModelSpec& x) {
  v.type("ModelSpec");
  v(1, "architecture", x.architecture);
  v(2, "hidden", x.hidden, kCount);
  v(3, "layers", x.layers, kCount);
  v(4, "heads", x.heads, kCount);
  v(5, "kv_heads", x.kv_heads, kCount);
  v(6, "head_dim", x.head_dim, kCount);
  v(7, "intermediate", x.intermediate, kCount);
  v(8, "vocab", x.vocab, kCount);
  v(9, "max_position", x.max_position, kCount);
  v(10, "rms_eps", x.rms_eps);
  v(11, "rope_theta", x.rope_theta);
  v(12, "rope", x.rope);
  v(13, "qkv_bias", x.qkv_bias);
  v(14, "out_bias", x.out_bias);
  v(15, "mlp_bias", x.mlp_bias);
  v(16, "qk_norm", x.qk_norm);
  v(17, "tied_embeddings", x.tied_embeddings);
  v(18, "window", x.window, kCount);
  v(19, "stored_dtype", x.stored_dtype);
  v(20, "bos", x.bos);
  v(21, "eos", x.eos);
  v(22, "shard", x.shard);
  v(23, "stage", x.stage);
  v(24, "formats", x.formats);
  v(25, "experts", x.experts);
  v(26, "qk_norm_whole", x.qk_norm_whole);
  v(27, "activation", x.activation);
  v(28, "norms", x.norms);
  v(29, "norm_less_one", x.norm_less_one);
  v(30, "scales", x.scales);
  v(31, "layer_rope", x.layer_rope);
  v(32, "local_theta", x.local_theta);
  v(33, "rotary_dim", x.rotary_dim, kCount);
  v(34, "attention_gate", x.attention_gate);
  v(35, "linear", x.linear);
  v(36, "mixer", x.mixer);
  v(37, "sinks", x.sinks);
  v(58, "encoder", x.encoder);
  v(59, "global_kv_heads", x.global_kv_heads, kCount);
  v(60, "global_head_dim", x.global_head_dim, kCount);
  v(61, "keys_are_values", x.keys_are_values);
  v(62, "value_norm", x.value_norm);
  v(63, "layer_scale", x.layer_scale);
  v(48, "adapter_rank", x.adapter_rank, kCount);
  v(49, "kv", x.kv);
  v.require(x,
            "at most as many ranks as tokens in the vocabulary, and a factor for each pair that "
            "rotates by one",
            [](const spec::ModelSpec& model) {
              return model.shard.ranks <= std::max<std::int64_t>(1, model.vocab) &&
                     (model.rope.kind != spec::RopeKind::kLongRope ||
                      std::ssize(model.rope.factors) >= spec::rotary_dim(model) / 2);
            });
}

inline void fields(Fields& v, policy::StepOptions& x) {
  v.type("StepOptions");
  v(1, "budget", x.budget, kCount);
  v(2, "max_batch_tokens", x.max_batch_tokens, kCount);
  v(3, "min_prefill_tokens", x.min_prefill_tokens, kCount);
}

inline void fields(Fields& v, policy::ThreadPulse& x) {
  v.type("ThreadPulse");
  v(1, "name", x.name);
  v(2, "doing", x.doing);
  v(3, "progress", x.progress);
  v(4, "expected", x.expected, kCount);
}

namespace core {

inline void fields(Fields& v, PrefixCounts& x) {
  v.type("PrefixCounts");
  v(1, "model", x.model);
  v(2, "queried_tokens", x.queried_tokens);
  v(3, "hit_tokens", x.hit_tokens);
  v(4, "host_tokens", x.host_tokens);
}

inline void fields(Fields& v, ExpertStatus& x) {
  v.type("ExpertStatus");
  v(1, "model", x.model);
  v(2, "experts", x.experts, kCount);
  v(3, "resident", x.resident, kCount);
  v(4, "hits", x.hits);
  v(5, "misses", x.misses);
  v(6, "fetched_bytes", x.fetched_bytes);
}

inline void fields(Fields& v, AdapterStatus& x) {
  v.type("AdapterStatus");
  v(1, "model", x.model);
  v(2, "name", x.name);
  v(3, "pages", x.pages, kCount);
  v(4, "sequences", x.sequences, kCount);
  v(5, "loads", x.loads);
}

inline void fields(Fields& v, KvStoreCounts& x) {
  v.type("KvStoreCounts");
  v(1, "pages", x.pages, kCount);
  v(2, "held", x.held, kCount);
  v(3, "kept_pages", x.kept_pages);
  v(4, "kept_blocks", x.kept_blocks);
  v(5, "returned_pages", x.returned_pages);
  v(6, "displaced_pages", x.displaced_pages);
  v(7, "declined_tokens", x.declined_tokens);
}

}  // namespace core

namespace rpc {

inline void fields(Fields& v, Pace& x) {
  v.type("Pace");
  v(1, "step", x.step, kCount);
  v(2, "token", x.token, kCount);
  v(3, "context", x.context, kCount);
}

inline void fields(Fields& v, WorkerHello& x) {
  constexpr Range kNumberOfDevice{.least = 0, .most = 65535};
  v.message(1, "WorkerHello");
  v(1, "device", x.device);
  v(2, "epoch", x.epoch);
  v(3, "name", x.name);
  v(4, "cores", x.cores, kNumberOfDevice);
  v(5, "gpu", x.gpu, kNumberOfDevice);
  v(6, "page_bytes", x.page_bytes);
  v(7, "pages", x.pages);
  v(8, "load_bandwidth", x.load_bandwidth);
  v(9, "pace", x.pace);
  v(10, "step", x.step);
  v(11, "log_level", x.log_level);
  v(12, "log_format", x.log_format);
  v(13, "event_log", x.event_log);
  v(14, "prefix_cache", x.prefix_cache, kCount);
  v(15, "device_pages", x.device_pages, kCount);
  v(16, "queue", x.queue);
  v(17, "fixed_parts", x.fixed_parts, kCount);
  v(18, "kv_pages", x.kv_pages, kCount);
}

inline void fields(Fields& v, ModelDescription& x) {
  v.message(2, "ModelDescription");
  v(1, "model", x.model);
  v(2, "name", x.name);
  v(3, "spec", x.spec);
  v(4, "dtype", x.dtype);
  v(5, "directory", x.directory);
  v(6, "adapters", x.adapters);
}

inline void fields(Fields& v, JoinGroup& x) {
  v.message(3, "JoinGroup");
  v(1, "model", x.model);
  v(2, "rank", x.rank, kCount);
  v(3, "ranks", x.ranks);
  v.require(x, "a rank below ranks, which are several", [](const JoinGroup& join) {
    return join.ranks > 1 && join.rank < join.ranks;
  });
}

inline void fields(Fields& v, JoinPipe& x) {
  v.message(215, "JoinPipe");
  v(1, "model", x.model);
  v(2, "stage", x.stage, kCount);
  v(3, "stages", x.stages);
  v(4, "shared", x.shared);
  v.require(x, "a stage below stages, which are several", [](const JoinPipe& join) {
    return join.stages > 1 && join.stage < join.stages;
  });
}

inline void fields(Fields& v, PipeSlice& x) {
  v.type("PipeSlice");
  v(1, "sequence", x.sequence);
  v(2, "position", x.position, kCount);
  v(3, "tokens", x.tokens);
  v(4, "prefix", x.prefix);
  v(5, "cache_salt", x.cache_salt);
  v(6, "wanted", x.wanted, kCount);
}

inline void fields(Fields& v, PipeStep& x) {
  v.message(216, "PipeStep");
  v(1, "number", x.number);
  v(2, "dropped", x.dropped);
  v(3, "slices", x.slices);
  v(4, "refused", x.refused);
  v(5, "floats", x.floats);
  v(6, "checksum", x.checksum);
}

inline void fields(Fields& v, PipeFollower& x) {
  v.message(217, "PipeFollower");
  v(1, "stage", x.stage, kCount);
  v(2, "kv", x.kv);
  v(3, "pages", x.pages, kCount);
}

inline void fields(Fields& v, PipeKv& x) {
  v.message(201, "PipeKv");
  v(1, "number", x.number);
  v(2, "sequence", x.sequence);
  v(3, "begin", x.begin, kCount);
  v(4, "end", x.end, kCount);
  v(5, "from", x.from, kCount);
  v(6, "refused", x.refused);
  v(7, "bytes", x.bytes);
  v(8, "checksum", x.checksum);
}

inline void fields(Fields& v, MeetPeer& x) {
  v.message(4, "MeetPeer");
  v(1, "gpu", x.gpu, kCount);
  v(2, "assists", x.assists);
}

inline void fields(Fields& v, MeetRank& x) {
  v.message(235, "MeetRank");
  v(1, "model", x.model);
  v(2, "rank", x.rank, kCount);
}

inline void fields(Fields& v, HostGuests& x) {
  v.message(137, "HostGuests");
  v(1, "model", x.model);
  v(2, "pages", x.pages);
}

inline void fields(Fields& v, MeetHost& x) {
  v.message(138, "MeetHost");
  v(1, "model", x.model);
}

inline void fields(Fields& v, ShareGuests& x) {
  v.message(139, "ShareGuests");
  v(1, "model", x.model);
  v(2, "pages", x.pages);
  v.require(x, "at most 8 pages", [](const ShareGuests& share) {
    return share.pages.size() <= kFrameDescriptorsMax;
  });
}

inline void fields(Fields& v, GuestMemory& x) {
  v.message(140, "GuestMemory");
  v(1, "model", x.model);
  v(2, "pages", x.pages);
  v(3, "device_pages", x.device_pages, kCount);
  v.require(x, "at most 8 pages, all below device_pages", [](const GuestMemory& memory) {
    return memory.pages.size() <= kFrameDescriptorsMax &&
           std::ranges::all_of(memory.pages, [&](PageId page) {
             return page.value() < static_cast<std::uint64_t>(memory.device_pages);
           });
  });
}

inline void fields(Fields& v, Shutdown& /*x*/) {
  v.message(5, "Shutdown");
}

inline void fields(Fields& v, HelloAck& x) {
  v.message(6, "HelloAck");
  v(1, "failure", x.failure);
}

inline void fields(Fields& v, WorkerStats& x) {
  v.message(7, "WorkerStats");
  v(1, "steps", x.steps);
  v(2, "late_steps", x.late_steps);
  v(3, "slow_steps", x.slow_steps);
  v(4, "overrun_steps", x.overrun_steps);
  v(5, "busy", x.busy, kCount);
  v(6, "mapping", x.mapping, kCount);
  v(7, "copied_bytes", x.copied_bytes);
  v(8, "peer_load_bytes", x.peer_load_bytes);
  v(9, "peer_assist_bytes", x.peer_assist_bytes);
  v(10, "kept_bytes", x.kept_bytes);
  v(11, "prefixes", x.prefixes);
  v(12, "dropped_pages", x.dropped_pages);
  v(13, "guest_busy", x.guest_busy, kCount);
  v(14, "guest_wait", x.guest_wait, kCount);
  v(15, "guest_layers", x.guest_layers);
  v(16, "guest_layers_alone", x.guest_layers_alone);
  v(17, "kv_store", x.kv_store);
  v(18, "adapters", x.adapters);
  v(19, "experts", x.experts);
}

inline void fields(Fields& v, Beat& x) {
  v.message(8, "Beat");
  v(1, "threads", x.threads);
  v.require(x, "at most 16 threads", [](const Beat& beat) {
    return beat.threads.size() <= kBeatThreadsMost;
  });
}

inline void fields(Fields& v, KvAsk& x) {
  v.message(227, "KvAsk");
  v(1, "ask", x.ask);
  v(2, "from", x.from);
  v(3, "cache_salt", x.cache_salt);
  v(4, "tokens", x.tokens);
  v(5, "begin", x.begin, kCount);
  v(6, "end", x.end, kCount);
}

inline void fields(Fields& v, KvGiven& x) {
  v.message(228, "KvGiven");
  v(1, "ask", x.ask);
  v(2, "prefix", x.prefix, kCount);
  v(3, "begin", x.begin, kCount);
  v(4, "end", x.end, kCount);
  v(5, "first_layer", x.first_layer, kCount);
  v(6, "from", x.from, kCount);
  v(7, "bytes", x.bytes);
}

inline void fields(Fields& v, ToServe& x) {
  v.type("ToServe");
  v(1, "epoch", x.epoch);
  v(2, "body", x.body);
}

}  // namespace rpc
}  // namespace heddle
