#include "twin/kv_count.h"

#include <utility>

#include "base/check.h"

namespace heddle::twin {

PageId KvCount::take() {
  HEDDLE_CHECK(!free_.empty());
  const PageId page = free_.back();
  free_.pop_back();
  return page;
}

void KvCount::add_model(ModelId model, std::vector<policy::KvGroup> groups) {
  models_[model] = {.groups = std::move(groups)};
}

void KvCount::drop_model(ModelId model) {
  HEDDLE_CHECK(models_.at(model).pages.empty());
  models_.erase(model);
  changed_ = true;
}

bool KvCount::resize(ModelId id, core::SequenceId sequence, std::int64_t tokens) {
  Model& model = models_.at(id);
  const auto before = model.tokens.find(sequence);
  const std::int64_t had = before == model.tokens.end() ? 0 : before->second;
  model.tokens[sequence] = tokens;
  const std::int64_t more = pages_of(model) - std::ssize(model.pages);
  if (more > free() + std::ssize(cached_)) {
    model.tokens[sequence] = had;
    return false;
  }
  for (std::int64_t i = 0; i < more; ++i) {
    auto& from = free_.empty() ? cached_ : free_;
    model.pages.push_back(from.back());
    from.pop_back();
  }
  changed_ = true;
  return true;
}

void KvCount::remove(ModelId id, core::SequenceId sequence) {
  Model& model = models_.at(id);
  model.tokens.erase(sequence);
  const std::int64_t keep = pages_of(model);
  for (; std::ssize(model.pages) > keep; model.pages.pop_back()) {
    (keep_prefixes_ ? cached_ : free_).push_back(model.pages.back());
  }
  changed_ = true;
}

void KvCount::trim(std::int64_t keep) {
  for (; std::ssize(cached_) > keep; cached_.pop_back()) {
    free_.push_back(cached_.back());
  }
  changed_ = true;
}

bool KvCount::changed() {
  return std::exchange(changed_, false);
}

core::KvCounted KvCount::counted() const {
  core::KvCounted counted{.cached_pages = std::ssize(cached_)};
  for (const auto& [id, model] : models_) {
    counted.kv.push_back({.model = id, .pages = std::ssize(model.pages)});
  }
  return counted;
}

std::int64_t KvCount::pages_of(const Model& model) {
  std::vector<std::int64_t> lengths;
  for (const auto& [sequence, tokens] : model.tokens) {
    lengths.push_back(tokens);
  }
  return policy::kv_pages(model.groups, lengths);
}

}  // namespace heddle::twin
