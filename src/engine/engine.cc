#include "engine/engine.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "engine/engine_impl.h"
#include "engine/state_copies.h"
#include "engine/survey.h"
#include "engine/workspace.h"
#include "ops/sample.h"
#include "spec/operations.h"

namespace heddle::engine {
namespace {

Result<void> check_tokens(const SequenceStart& start, const spec::ModelSpec& model) {
  const auto refuse = [&](const std::string& what) {
    return Error{Code::kInvalidArgument,
                 "add sequence " + std::to_string(start.id.value()) + ": " + what};
  };
  const auto size = static_cast<std::int64_t>(start.tokens.size());
  if (size < 1 || start.prompt_tokens < 1 || start.prompt_tokens > size) {
    return refuse("a prompt of " + std::to_string(start.prompt_tokens) + " of " +
                  std::to_string(size) + " tokens; both must be at least 1, the prompt no longer");
  }
  const spec::SamplingParams& params = start.params;
  if (spec::is_encoder(model) && (!params.in_one_pass || params.pooling == spec::Pooling::kNone)) {
    return refuse("its model is an encoder, whose texts run in one pass, to be pooled");
  }
  if (spec::is_encoder(model) && size > start.prompt_tokens) {
    return refuse("its model is an encoder, which generates nothing");
  }
  if (size > model.max_position || (size == model.max_position && !pools(params))) {
    return refuse(std::to_string(size) + " tokens leave no room in the context of " +
                  std::to_string(model.max_position));
  }
  if (size - start.prompt_tokens >= start.params.max_tokens) {
    return refuse(std::to_string(size - start.prompt_tokens) +
                  " tokens are generated already, and max_tokens is " +
                  std::to_string(start.params.max_tokens));
  }
  const auto outside = [&model](TokenId id) { return id < 0 || id >= model.vocab; };
  for (const TokenId id : start.tokens) {
    if (outside(id)) {
      return refuse("token " + std::to_string(id) + " is outside the vocabulary of " +
                    std::to_string(model.vocab));
    }
  }
  for (const spec::BadWord& word : start.params.bad_words) {
    if (word.tokens.empty() || std::ranges::any_of(word.tokens, outside)) {
      return refuse("a bad word that is empty or has tokens outside the vocabulary of " +
                    std::to_string(model.vocab));
    }
  }
  for (const auto& [id, bias] : start.params.logit_bias) {
    if (outside(id)) {
      return refuse("logit_bias for token " + std::to_string(id) +
                    ", which is outside the vocabulary of " + std::to_string(model.vocab));
    }
  }
  return {};
}

/// Whether the model has room for what the adapter's matrices give, and computes in their type.
Result<void> check_adapter(const SequenceStart& start, const Decoder& decoder) {
  const std::int64_t most = decoder.model().adapter_rank;
  if (start.adapter == nullptr ||
      (start.adapter->config().rank <= most && start.adapter->dtype() == decoder.dtype())) {
    return {};
  }
  return Error{Code::kInvalidArgument,
               "add sequence " + std::to_string(start.id.value()) + ": its adapter has rank " +
                   std::to_string(start.adapter->config().rank) + " in " +
                   std::string(spec::dtype_name(start.adapter->dtype())) +
                   "; its model takes adapters up to rank " + std::to_string(most) + " in " +
                   std::string(spec::dtype_name(decoder.dtype()))};
}

}  // namespace

Engine::Impl::~Impl() {
  settle();
  workspace_.unmap_all();
  pool_.put(kWorkspaceOwner, workspace_pages_);
}

/// How adapters' weights come to the device.
AdapterSending Engine::Impl::adapter_sending() {
  if (device_.properties().kind != device::Kind::kCuda) {
    return {};
  }
  return {.stream = stream_.get(), .settle = [this] { settle(); }};
}

Result<void> Engine::Impl::add_model(ModelId id,
                                     const spec::ModelSpec& spec,
                                     const store::ImageLayout& layout,
                                     const std::byte* window,
                                     memory::OwnerId kv_owner,
                                     ops::ExpertSource* experts) {
  HEDDLE_CHECK(!models_.contains(id));
  HEDDLE_CHECK((spec.experts.slots > 0) == (experts != nullptr));
  const std::string_view missing = spec::cpu_only(spec, layout.dtype);
  if (!missing.empty() && device_.properties().kind == device::Kind::kCuda) {
    return Error{Code::kInvalidArgument,
                 "run a model with " + std::string(missing) + " on a GPU: only CPUs do so far"};
  }
  auto plan = plan_kv(spec, spec::own_layers(spec), layout.dtype, device_.properties().page_bytes);
  if (!plan) {
    return plan.error();
  }
  auto gate = std::make_shared<ImageGate>();
  auto decoder = Decoder::create(
      spec, layout, window, gate->watermark(), *plan, device_.page_address(device::PageId{0}));
  if (!decoder) {
    return decoder.error();
  }
  if (experts != nullptr) {
    decoder->take_experts_from(*experts);
  }
  const bool apart = !spec::leads(spec) || spec.shard.ranks > 1;
  auto reserve = apart ? std::make_unique<Reserve>(device_) : nullptr;
  memory::PagePool& pool = reserve ? reserve->pool : pool_;
  memory::CachedPages& cached = reserve ? reserve->cached : cached_;
  models_.emplace(
      id,
      Model{.kv_owner = kv_owner,
            .reserve = std::move(reserve),
            .decoder = std::move(*decoder),
            .kv = ModelKv(pool, kv_owner, std::move(*plan), cached, keeper_of(id, spec)),
            .adapters = ModelAdapters(
                pool, kv_owner, cached, spec.layers, options_.prefix_cache, adapter_sending())});
  if (device_.properties().kind == device::Kind::kCuda) {
    StateCopies(models_.at(id).kv).copy_by(*stream_);
  }
  if (const auto fitted = fit_workspace(); !fitted) {
    models_.erase(id);
    return fitted;
  }
  {
    const std::scoped_lock lock(gates_mutex_);
    gates_[id] = std::move(gate);
  }
  if (spec.shard.ranks == 1) {
    survey(id);
  }
  return {};
}

void Engine::Impl::survey(ModelId id) {
  if (surveyed_.insert(id).second) {
    const Model& own = model(id);
    survey_products(context_, own.decoder, use_workspace(own));
  }
}

/// CUDA graphs of its steps name the group's memory.
void Engine::Impl::set_group(ModelId id,
                             collective::Collective* group,
                             const ops::PeerArea* peers) {
  Model& shard = mutable_model(id);
  if (group != nullptr) {
    shard.decoder.join(*group, peers);
    survey(id);
    return;
  }
  HEDDLE_CHECK(shard.sequences == 0);
  settle();
  if (ahead_ && ahead_->model == id) {
    ahead_.reset();
  }
  graphs_.forget(graphs_of(shard.decoder));
  shard.decoder.leave();
}

Result<void> Engine::Impl::Reserve::resize(memory::PagePool& from,
                                           memory::OwnerId owner,
                                           std::int64_t count) {
  const std::int64_t more = count - pool.size();
  if (more >= 0) {
    auto taken = from.take(owner, more);
    if (!taken) {
      return taken.error();
    }
    pool.adopt(*taken);
    pages.insert(taken->begin(), taken->end());
    return {};
  }
  while (pool.free_count() < -more && cached.drop_oldest(ledger::DropReason::kLoad)) {
  }
  const auto left = pool.surrender(std::min(pool.free_count(), -more)).value();
  for (const device::PageId page : left) {
    pages.erase(page);
  }
  from.put(owner, left);
  return {};
}

Result<std::int64_t> Engine::Impl::set_share(ModelId id, std::int64_t pages) {
  Model& shard = mutable_model(id);
  HEDDLE_CHECK(shard.reserve != nullptr);
  settle();
  const Result<void> resized = shard.reserve->resize(pool_, shard.kv_owner, pages);
  if (!resized) {
    return resized.error();
  }
  return shard.reserve->pool.size();
}

Result<void> Engine::Impl::can_have_guests() const {
  if (context_.kernels.post_guest_attention == nullptr) {
    return Error{Code::kFailedPrecondition,
                 "its device has no kernels for attention over another device's pages"};
  }
  const device::Properties& properties = device_.properties();
  if (properties.asynchronous && !properties.flags) {
    return Error{Code::kFailedPrecondition,
                 properties.name +
                     " has no stream memory operations, by which two GPUs wait for "
                     "each other"};
  }
  return {};
}

void Engine::Impl::remove_model(ModelId id) {
  HEDDLE_CHECK(model(id).sequences == 0);
  settle();  // What is ahead of sequences that have gone still reads the weights.
  if (ahead_ && ahead_->model == id) {
    ahead_.reset();
  }
  graphs_.forget(graphs_of(model(id).decoder));
  const memory::OwnerId owner = model(id).kv_owner;
  std::vector<device::PageId> reserved;
  if (model(id).reserve) {
    reserved.assign(model(id).reserve->pages.begin(), model(id).reserve->pages.end());
  }
  std::erase_if(gathers_, [id](const auto& entry) { return entry.second.into == id; });
  models_.erase(id);
  pool_.put(owner, reserved);
  const std::scoped_lock lock(gates_mutex_);
  gates_.erase(id);
}

std::shared_ptr<ImageGate> Engine::Impl::gate(ModelId id) {
  const std::scoped_lock lock(gates_mutex_);
  const auto found = gates_.find(id);
  return found == gates_.end() ? nullptr : found->second;
}

const Engine::Impl::Model& Engine::Impl::model(ModelId id) const {
  const auto found = models_.find(id);
  HEDDLE_CHECK(found != models_.end());
  return found->second;
}

Engine::Impl::Model& Engine::Impl::mutable_model(ModelId id) {
  const auto found = models_.find(id);
  HEDDLE_CHECK(found != models_.end());
  return found->second;
}

Sequence& Engine::Impl::sequence(SequenceId id) {
  const auto found = sequences_.find(id);
  HEDDLE_CHECK(found != sequences_.end());
  return found->second;
}

/// Pages that the largest workspace of its models has.
std::int64_t Engine::Impl::workspace_needed() const {
  std::uint64_t bytes = 0;
  for (const auto& [id, model] : models_) {
    bytes = std::max(
        bytes,
        workspace_bytes(device_.properties().kind,
                        model.decoder.model(),
                        model.decoder.dtype(),
                        spec::step_tokens(model.decoder.model(), options_.max_batch_tokens)));
  }
  const std::size_t page = device_.properties().page_bytes;
  return static_cast<std::int64_t>((bytes + page - 1) / page);
}

/// What goes is behind all that models use, so that their CUDA graphs stay good.
Result<void> Engine::Impl::set_workspace(std::int64_t pages) {
  HEDDLE_CHECK(pages >= workspace_needed());
  const auto more = pages - std::ssize(workspace_pages_);
  if (more > 0) {
    auto taken = pool_.take(kWorkspaceOwner, more);
    if (!taken) {
      return taken.error();
    }
    workspace_pages_.insert(workspace_pages_.end(), taken->begin(), taken->end());
  } else if (more < 0) {
    settle();
    const std::size_t bytes = static_cast<std::size_t>(pages) * device_.properties().page_bytes;
    workspace_.shrink(std::min(bytes, workspace_.mapped_bytes()));
    pool_.put(kWorkspaceOwner,
              std::span(workspace_pages_).subspan(static_cast<std::size_t>(pages)));
    workspace_pages_.resize(static_cast<std::size_t>(pages));
  }
  return {};
}

/// Maps as much of the workspace as the models need.
Result<void> Engine::Impl::fit_workspace() {
  const std::int64_t needed = workspace_needed();
  if (needed > std::ssize(workspace_pages_)) {
    if (const auto taken = set_workspace(needed); !taken) {
      return taken;
    }
  }
  const std::size_t mapped = workspace_.mapped_bytes() / device_.properties().page_bytes;
  const auto wanted = static_cast<std::size_t>(needed);
  return mapped >= wanted
             ? Result<void>()
             : workspace_.map(std::span(workspace_pages_).subspan(mapped, wanted - mapped),
                              device::Access::kReadWrite);
}

/// Where the next pass of `model` has its activations, and its operations their scratch.
Activations Engine::Impl::use_workspace(const Model& model) {
  const Workspace workspace =
      place_workspace(device_.properties().kind,
                      model.decoder.model(),
                      model.decoder.dtype(),
                      spec::step_tokens(model.decoder.model(), options_.max_batch_tokens),
                      workspace_.base());
  stream_->lend_scratch(workspace.scratch, workspace.scratch_bytes);
  return workspace.activations;
}

void Engine::Impl::set_graph_bytes(std::uint64_t bytes) {
  settle();  // What is ahead may be a CUDA graph.
  graphs_.set_most(bytes);
}

Result<void> Engine::Impl::add_sequence(SequenceStart start) {
  HEDDLE_CHECK(!sequences_.contains(start.id));
  Model& model = mutable_model(start.model);
  if (const auto checked = check_tokens(start, model.decoder.model()); !checked) {
    return checked.error();
  }
  if (const auto fits = check_adapter(start, model.decoder); !fits) {
    return fits.error();
  }
  const SequenceId id = start.id;
  start.cache_salt = adapter_salt(start.adapter.get(), start.cache_salt);
  std::vector<std::uint32_t> mask;
  if (start.grammar != nullptr) {
    const auto generated =
        std::span(start.tokens).subspan(static_cast<std::size_t>(start.prompt_tokens));
    if (const auto replayed = start.grammar->accept(generated); !replayed) {
      return Error{
          Code::kInvalidArgument,
          "add sequence " + std::to_string(id.value()) + ": its " +
              std::to_string(generated.size()) +
              " generated tokens do not conform to its grammar: " + replayed.error().message};
    }
    mask.resize(static_cast<std::size_t>(ops::mask_words(model.decoder.model().vocab)));
  }
  auto uses = token_uses(start);
  std::optional<PrefixKeys> prefix;
  // An encoder's keys and values are of one layer, and of a whole text.
  const bool keeps = !spec::is_encoder(model.decoder.model());
  if (options_.prefix_cache && keeps && model.kv.plan().kv_groups() > 0) {
    prefix.emplace(options_.prefix_secret, start.cache_salt);
  }
  sequences_.emplace(id,
                     Sequence{.start = std::move(start),
                              .computed = 0,
                              .kv = model.kv.make_sequence(),
                              .prefix = prefix,
                              .uses = std::move(uses),
                              .mask = std::move(mask)});
  ++model.sequences;
  return {};
}

std::int64_t Engine::Impl::take_prefix(SequenceId id, Duration computing) {
  Sequence& own = sequence(id);
  HEDDLE_CHECK(own.computed == 0);
  if (!own.prefix || needs_every_row(own)) {
    return 0;
  }
  if (store_ != nullptr) {
    bring_back(own, computing);
  }
  const auto all_but_last = std::span(own.start.tokens).first(own.start.tokens.size() - 1);
  own.computed = mutable_model(own.start.model).kv.take_prefix(own.kv, *own.prefix, all_but_last);
  PrefixCounts& counts = counts_[own.start.model];
  if (!std::exchange(own.asked, true)) {  // Who waits for its step may ask again.
    counts.queried_tokens += static_cast<std::uint64_t>(own.size());
  }
  counts.hit_tokens += static_cast<std::uint64_t>(own.computed);
  own.reused = own.begun ? own.reused : own.computed;
  return own.computed;
}

void Engine::Impl::preempt(SequenceId id) {
  Sequence& own = sequence(id);
  fetches_.erase(id);
  forget_ahead(own);
  forget_in_pipe(own);
  Model& model = mutable_model(own.start.model);
  model.kv.clear(own.kv);
  leave_adapter(own, model);
  own.computed = 0;
  own.asked = false;
  own.pooled.clear();
}

void Engine::Impl::remove_sequence(SequenceId id) {
  preempt(id);
  --mutable_model(sequence(id).start.model).sequences;
  sequences_.erase(id);
}

Result<std::unique_ptr<Engine>> Engine::create(device::Device& device,
                                               memory::PagePool& pool,
                                               const EngineOptions& options) {
  HEDDLE_CHECK(options.max_batch_tokens > 0);
  const ops::KernelTable* kernels =
      options.kernels != nullptr ? options.kernels : ops::kernels_for(device.properties().kind);
  if (kernels == nullptr) {
    return Error{Code::kInvalidArgument,
                 "create an engine on " + device.properties().name +
                     ": this build has no kernels for such a device"};
  }
  if (const auto name = ops::kernels_name(device.properties().kind); !name) {
    return name.error();
  }
  auto stream = device.create_stream();
  if (!stream) {
    return stream.error();
  }
  const device::Properties& properties = device.properties();
  auto workspace = memory::Window::create(device, properties.page_count * properties.page_bytes);
  if (!workspace) {
    return workspace.error();
  }
  return std::unique_ptr<Engine>(new Engine(std::make_unique<Impl>(
      device, pool, std::move(*stream), *kernels, std::move(*workspace), options)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<void> Engine::set_workspace(std::int64_t pages) {
  return impl_->set_workspace(pages);
}

void Engine::set_graph_bytes(std::uint64_t bytes) {
  impl_->set_graph_bytes(bytes);
}

Result<void> Engine::add_model(ModelId id,
                               const spec::ModelSpec& model,
                               const store::ImageLayout& layout,
                               const std::byte* window,
                               memory::OwnerId kv_owner,
                               ops::ExpertSource* experts) {
  return impl_->add_model(id, model, layout, window, kv_owner, experts);
}

void Engine::set_group(ModelId id, collective::Collective* group, const ops::PeerArea* peers) {
  impl_->set_group(id, group, peers);
}

void Engine::set_image_ready(ModelId id, std::uint64_t bytes) {
  if (const auto gate = impl_->gate(id)) {
    gate->advance(bytes);
  }
}

std::uint64_t Engine::image_ready(ModelId id) const {
  const auto gate = impl_->gate(id);
  return gate ? gate->there() : 0;
}

bool Engine::image_abandoned(ModelId id) const {
  const auto gate = impl_->gate(id);
  return gate != nullptr && gate->abandoned();
}

void Engine::pause_image(ModelId id, bool paused) {
  if (const auto gate = impl_->gate(id)) {
    paused ? gate->pause() : gate->resume();
  }
}

void Engine::abandon_image(ModelId id) {
  if (const auto gate = impl_->gate(id)) {
    gate->abandon();
  }
}

void Engine::remove_model(ModelId id) {
  impl_->remove_model(id);
}

Result<void> Engine::add_sequence(SequenceStart start) {
  return impl_->add_sequence(std::move(start));
}

std::int64_t Engine::take_prefix(SequenceId id, Duration computing) {
  return impl_->take_prefix(id, computing);
}
void Engine::preempt(SequenceId id) {
  impl_->preempt(id);
}
void Engine::remove_sequence(SequenceId id) {
  impl_->remove_sequence(id);
}

std::int64_t Engine::kv_pages_for(ModelId id, std::int64_t tokens) const {
  return impl_->model(id).kv.pages_for(tokens, impl_->options().max_batch_tokens);
}

std::int64_t Engine::kv_pages(ModelId id) const {
  const auto& model = impl_->model(id);
  return spec::leads(model.decoder.model()) ? model.kv.pages_used() + model.adapters.pages_used()
                                            : 0;
}

std::int64_t Engine::cached_pages() const {
  return impl_->cached().count();
}

void Engine::trim_cached(std::int64_t keep, ledger::DropReason reason) {
  while (impl_->cached().count() > keep) {
    impl_->cached().drop_oldest(reason);
  }
}

std::vector<AdapterUse> adapters_of(const Engine& engine, ModelId id) {
  return engine.impl_->model(id).adapters.uses();
}

const std::map<ModelId, PrefixCounts>& Engine::prefix_counts() const {
  return impl_->prefix_counts();
}

const ledger::DropCounts& Engine::dropped_pages() const {
  return impl_->cached().dropped();
}

Result<StepOutcome> Engine::run(const policy::StepPlan& plan) {
  return impl_->run(plan);
}

void Engine::settle() {
  impl_->settle();
}

}  // namespace heddle::engine
