#include "engine/guests.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "engine/engine_impl.h"

namespace heddle::engine {

Guests Engine::guests() {
  return Guests(*impl_);
}

Result<void> Guests::lend(ModelId id, std::span<const device::PageId> pages, std::byte* memory) {
  if (const auto able = engine_->can_have_guests(); !able) {
    return Error{able.error().code,
                 "lend pages to model " + std::to_string(id.value()) + ": " + able.error().message};
  }
  HEDDLE_CHECK(engine_->model(id).decoder.group() == nullptr);
  engine_->mutable_model(id).kv.lend(pages, memory);
  return {};
}

std::vector<device::PageId> Guests::give_back(ModelId id, std::int64_t count) {
  return engine_->mutable_model(id).kv.give_back(count);
}

void Guests::set_host(ModelId id, ops::AttentionHost* host) {
  engine_->mutable_model(id).kv.set_host(host);
}

Result<std::int64_t> Guests::move_out(SequenceId id, std::int64_t tokens) {
  Sequence& own = engine_->sequence(id);
  ModelKv& kv = engine_->mutable_model(own.start.model).kv;
  const std::int64_t border = kv.border_tokens();
  // A token at least stays to be written behind.
  const std::int64_t most = std::min(tokens, own.computed - 1) / border * border;
  const std::int64_t there = kv.guest_tokens(own.kv);
  if (own.size() - own.computed != 1 || most <= there) {
    return there;  // Prompts are not read over guests.
  }
  engine_->settle();  // What it finds is the next step's to say.
  if (const auto moved = kv.move_out(engine_->stream(), own.kv, most); !moved) {
    return moved.error();
  }
  return kv.guest_tokens(own.kv);
}

Result<void> Guests::move_home(SequenceId id) {
  Sequence& own = engine_->sequence(id);
  engine_->settle();
  return engine_->mutable_model(own.start.model).kv.move_home(engine_->stream(), own.kv);
}

std::int64_t Guests::tokens(SequenceId id) const {
  const Sequence& own = engine_->sequence(id);
  return engine_->model(own.start.model).kv.guest_tokens(own.kv);
}

std::int64_t Guests::lent_pages(ModelId id) const {
  return engine_->model(id).kv.lent_pages();
}

std::int64_t Guests::used_pages(ModelId id) const {
  return engine_->model(id).kv.guest_pages();
}

}  // namespace heddle::engine
