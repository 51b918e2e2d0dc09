#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "engine/expert_slots.h"
#include "engine/test_host.h"
#include "store/expert_parts.h"

namespace heddle::engine {

/// A model of which the test's device has a part, as a worker would have it: with slots in which
/// its experts take turns, and all of its image at the host.
struct LoadedInPart {
  LoadedModel model;
  std::vector<std::vector<std::byte>> image{};  ///< The host's pages.
};

/// Loads a model with so many slots for the experts of all its layers.
[[nodiscard]] inline LoadedInPart load_in_part(TestHost& host,
                                               const store::TensorSet& tensors,
                                               spec::ModelSpec spec,
                                               spec::DType dtype,
                                               std::int64_t slots) {
  spec.experts.slots = slots;
  store::ImageLayout layout = store::plan_image(spec, dtype);
  const std::size_t page_bytes = host.device().properties().page_bytes;
  std::vector<std::vector<std::byte>> image(store::pages_for(layout.bytes, page_bytes),
                                            std::vector<std::byte>(page_bytes));
  std::vector<std::byte*> at;
  for (std::vector<std::byte>& page : image) {
    at.push_back(page.data());
  }
  HEDDLE_CHECK(
      store::load_image(tensors, layout, {.pages = at, .page_bytes = page_bytes}).has_value());
  const store::PartPages part = store::part_pages(spec, layout, page_bytes);
  std::vector<device::PageId> pages =
      host.pool().take(kWeightsLease, part.resident + part.slots).value();
  memory::Window window = memory::Window::create(host.device(), pages.size() * page_bytes).value();
  HEDDLE_CHECK(window.map(pages, device::Access::kRead).has_value());
  for (std::int64_t i = 0; i < part.resident; ++i) {
    const auto page = static_cast<std::size_t>(i);
    std::memcpy(host.device().page_address(pages[page]), at[page], page_bytes);
  }
  return {.model = {.spec = std::move(spec),
                    .layout = std::move(layout),
                    .pages = std::move(pages),
                    .window = std::move(window)},
          .image = std::move(image)};
}

/// The model's slots with no expert in them, but with what is no number: whoever read it would see.
[[nodiscard]] inline std::unique_ptr<ExpertSlots> empty_slots(TestHost& host,
                                                              const LoadedInPart& loaded) {
  const LoadedModel& model = loaded.model;
  const std::size_t page_bytes = host.device().properties().page_bytes;
  const auto resident =
      static_cast<std::size_t>(store::part_pages(model.spec, model.layout, page_bytes).resident);
  ExpertSlots::Memory memory{.base = model.window.base() + resident * page_bytes,
                             .page_bytes = page_bytes};
  for (const std::vector<std::byte>& page : loaded.image) {
    memory.image.push_back(page.data());
  }
  for (std::size_t i = resident; i < model.pages.size(); ++i) {
    memory.slots.push_back(host.device().page_address(model.pages[i]));
    std::memset(memory.slots.back(), 0xff, page_bytes);
  }
  return std::make_unique<ExpertSlots>(model.spec, model.layout, std::move(memory));
}

}  // namespace heddle::engine
