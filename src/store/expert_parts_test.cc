#include "store/expert_parts.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/test_files.h"

namespace heddle::store {
namespace {

using testing::ElementsAre;

spec::ModelSpec model_of_experts() {
  spec::ModelSpec model = tiny_model();
  model.architecture = spec::Architecture::kQwen3Moe;
  model.intermediate = 0;
  model.experts = {.count = 3, .active = 2, .intermediate = 4};
  return model;
}

std::vector<Role> roles_of(const std::vector<ExpertPart>& parts) {
  std::vector<Role> roles;
  for (const ExpertPart& part : parts) {
    roles.push_back(part.role);
  }
  return roles;
}

TEST(ExpertParts, AreEquallyManyBytesOfEach) {
  const spec::ModelSpec model = model_of_experts();
  const auto hidden = static_cast<std::uint64_t>(model.hidden);
  const ImageLayout layout = plan_image(model, spec::DType::kF32);
  const ExpertParts parts = expert_parts(model, layout);
  ASSERT_EQ(std::ssize(parts.layers), model.layers);
  for (const std::vector<ExpertPart>& layer : parts.layers) {
    ASSERT_THAT(roles_of(layer), ElementsAre(Role::kExpertsGateUp, Role::kExpertsDown));
    EXPECT_EQ(layer[0].bytes, 2 * 4 * hidden * 4);
    EXPECT_EQ(layer[0].place, 0U);
    EXPECT_EQ(layer[1].bytes, hidden * 4 * 4);
    EXPECT_GE(layer[1].place, layer[0].bytes);
    EXPECT_EQ(layer[1].place % 64, 0U);
    EXPECT_GE(parts.slot_bytes, layer[1].place + layer[1].bytes);
  }
}

TEST(ExpertParts, OfInt8HaveTheirScales) {
  const spec::ModelSpec model = model_of_experts();
  const ExpertParts parts = expert_parts(model, plan_image(model, spec::DType::kI8));
  const std::vector<ExpertPart>& layer = parts.layers.back();
  ASSERT_THAT(roles_of(layer),
              ElementsAre(Role::kExpertsGateUp,
                          Role::kExpertsGateUpScale,
                          Role::kExpertsDown,
                          Role::kExpertsDownScale));
  EXPECT_EQ(layer[1].bytes, 2U * 4 * 4) << "a float for each row of an expert";
}

TEST(ExpertParts, ThatTakeTurnsLieBehindAllElse) {
  spec::ModelSpec model = model_of_experts();
  const ImageLayout whole = plan_image(model, spec::DType::kI8);
  EXPECT_EQ(whole.resident_bytes, whole.bytes);
  model.experts.slots = 2;
  const ImageLayout layout = plan_image(model, spec::DType::kI8);
  EXPECT_EQ(layout.tensors.size(), whole.tensors.size());
  EXPECT_LT(layout.resident_bytes, layout.bytes);
  for (const ImageTensor& tensor : layout.tensors) {
    const bool expert = tensor.role == Role::kExpertsGateUp ||
                        tensor.role == Role::kExpertsGateUpScale ||
                        tensor.role == Role::kExpertsDown || tensor.role == Role::kExpertsDownScale;
    EXPECT_EQ(tensor.offset >= layout.resident_bytes, expert);
  }
  EXPECT_TRUE(std::ranges::all_of(layout.stage_end, [&](auto end) { return end == layout.bytes; }));
}

TEST(ExpertParts, ADeviceHasPagesOfWhatIsResidentAndOfSlots) {
  spec::ModelSpec model = model_of_experts();
  model.experts.slots = 2;
  constexpr std::uint64_t kPage = 256;
  const ImageLayout layout = plan_image(model, spec::DType::kF32);
  const PartPages pages = part_pages(model, layout, kPage);
  EXPECT_EQ(pages.resident, static_cast<std::int64_t>((layout.resident_bytes + kPage - 1) / kPage));
  const std::uint64_t slots = 2 * expert_parts(model, layout).slot_bytes;
  EXPECT_EQ(pages.slots, static_cast<std::int64_t>((slots + kPage - 1) / kPage));
}

}  // namespace
}  // namespace heddle::store
