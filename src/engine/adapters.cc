#include "engine/adapters.h"

#include <span>
#include <utility>

#include "base/check.h"

namespace heddle::engine {
namespace {

AdapterWeights bind(const store::Adapter& adapter, std::int64_t layers, std::byte* image) {
  AdapterWeights weights;
  weights.layers.resize(static_cast<std::size_t>(layers));
  const std::int64_t rank = adapter.config().rank;
  for (const store::AdapterPair& pair : adapter.pairs()) {
    const ops::LowRankPair delta{
        .first = pair.first,
        .a = ops::tensor_2d(image + pair.a_offset, adapter.dtype(), rank, pair.inputs),
        .b = ops::tensor_2d(image + pair.b_offset, adapter.dtype(), pair.outputs, rank)};
    weights.layers[static_cast<std::size_t>(pair.layer)][static_cast<std::size_t>(pair.target)]
        .push_back(delta);
  }
  return weights;
}

}  // namespace

Result<const AdapterWeights*> ModelAdapters::use(const store::Adapter& adapter) {
  Entry& entry = entries_[adapter.identity()];
  if (entry.image != nullptr && entry.image->there()) {
    entry.image->use();
    return &entry.weights;
  }
  auto image = memory::CachedImage::create(
      *pool_, owner_, *cached_, static_cast<std::size_t>(adapter.image_bytes()));
  if (!image) {
    return image.error();
  }
  const Result<void> loaded =
      adapter.load(std::span((*image)->base(), static_cast<std::size_t>(adapter.image_bytes())));
  if (!loaded) {
    return loaded.error();
  }
  entry.image = std::move(*image);
  entry.weights = bind(adapter, layers_, entry.image->base());
  ++entry.loads;
  return &entry.weights;
}

void ModelAdapters::leave(const store::Adapter& adapter) {
  Entry& entry = entries_.at(adapter.identity());
  entry.image->leave();
  if (!keeps_ && entry.image->users() == 0) {
    entry.image.reset();
  }
}

std::int64_t ModelAdapters::pages_used() const {
  std::int64_t pages = 0;
  for (const auto& [identity, entry] : entries_) {
    pages += entry.image != nullptr && entry.image->users() > 0 ? entry.image->pages() : 0;
  }
  return pages;
}

std::vector<AdapterUse> ModelAdapters::uses() const {
  std::vector<AdapterUse> uses;
  for (const auto& [identity, entry] : entries_) {
    const bool there = entry.image != nullptr;
    uses.push_back({.identity = identity,
                    .pages = there ? entry.image->pages() : 0,
                    .sequences = there ? entry.image->users() : 0,
                    .loads = entry.loads});
  }
  return uses;
}

std::string adapter_salt(const store::Adapter* adapter, const std::string& salt) {
  if (adapter != nullptr) {
    return "\n" + adapter->identity() + "\n" + salt;
  }
  // An identity is not empty, so this is none of the above.
  return salt.starts_with('\n') ? "\n\n" + salt : salt;
}

}  // namespace heddle::engine
