#include "store/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/test_adapter.h"
#include "store/test_files.h"

namespace heddle::store {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class InspectTest : public testing::Test {
 protected:
  InspectTest() {
    Rng rng(1);
    tensors_ = random_model(tiny_model(), rng, [](std::size_t i) {
      return i == 0 ? StoredType::kF32 : StoredType::kBf16;
    });
    write_text(path() / "config.json", kTinyConfig);
    write_safetensors(path() / "model.safetensors", tensors_);
    write_text(path() / "tokenizer.json", "{}");
    write_text(path() / "tokenizer_config.json", R"({"chat_template": "{{ messages }}"})");
  }
  [[nodiscard]] const std::filesystem::path& path() const { return directory_.path(); }

  TempDirectory directory_{};
  TestTensors tensors_{};
};

TEST_F(InspectTest, TellsWhatIsInADirectory) {
  const Inspection found = inspect(path()).value();
  EXPECT_THAT(found.problems, IsEmpty());
  EXPECT_THAT(found.notes, IsEmpty());
  EXPECT_EQ(found.config->model.hidden, 24);
  EXPECT_THAT(found.files, ElementsAre("model.safetensors"));
  ASSERT_EQ(found.types.size(), 2U);
  std::uint64_t elements = 0;
  std::uint64_t count = 0;
  for (const TypeTotal& type : found.types) {
    elements += type.elements;
    count += type.tensors;
  }
  EXPECT_EQ(elements, static_cast<std::uint64_t>(spec::parameter_count(tiny_model())));
  EXPECT_EQ(count, tensors_.size());
  ASSERT_EQ(found.biggest.size(), 5U);
  EXPECT_EQ(found.biggest[0].name, "model.embed_tokens.weight");
  EXPECT_GE(found.biggest[0].bytes, found.biggest[1].bytes);
  EXPECT_THAT(found.text_files, ElementsAre("tokenizer.json", "tokenizer_config.json"));
  ASSERT_EQ(found.needs.size(), 3U);
  EXPECT_EQ(found.needs[0].kv_per_token, 2 * found.needs[1].kv_per_token);
  EXPECT_EQ(found.needs[1].kv_per_token, found.needs[2].kv_per_token);  // int8 is of weights only.
  EXPECT_GT(found.needs[1].weights, found.needs[2].weights);
}

TEST(Inspect, TellsWhatIsInAnAdapter) {
  const TempDirectory directory;
  Rng rng(2);
  const TestAdapter adapter = random_adapter(plausible_model(tiny_model(), rng), rng);
  adapter.write(directory.path());
  const Inspection found = inspect(directory.path()).value();
  EXPECT_THAT(found.problems, IsEmpty());
  EXPECT_EQ(found.format, "LoRA adapter of rank 4, scale 2, trained on some/base");
  ASSERT_EQ(found.types.size(), 1U);
  EXPECT_EQ(found.types[0].tensors, 28U);
  write_text(directory.path() / "adapter_config.json", adapter.config(R"(, "use_dora": true)"));
  ASSERT_EQ(inspect(directory.path())->problems.size(), 1U);
}

TEST_F(InspectTest, CollectsProblemsAndGoesOn) {
  std::filesystem::resize_file(path() / "model.safetensors", 2000);
  std::filesystem::remove(path() / "tokenizer.json");
  const Inspection found = inspect(path()).value();
  EXPECT_THAT(
      found.problems,
      ElementsAre(HasSubstr("model.safetensors: "), HasSubstr("there is no tokenizer.json")));
  EXPECT_EQ(found.needs.size(), 3U);
}

TEST_F(InspectTest, NotesWhatIsMissingOrOfNoUse) {
  write_text(path() / "tokenizer_config.json", "{}");
  for (int i = 0; i < 7; ++i) {
    tensors_[fmt::format("extra.{}", i)] = {StoredType::kF32, {1}, "abcd"};
  }
  write_safetensors(path() / "model.safetensors", tensors_);
  const Inspection found = inspect(path()).value();
  EXPECT_THAT(found.notes,
              ElementsAre("7 tensors are of no use to this model: extra.0, extra.1, extra.2, "
                          "extra.3, extra.4, ...",
                          HasSubstr("there is no chat template")));
}

TEST_F(InspectTest, ContradictionsAreProblems) {
  tensors_.erase("model.norm.weight");
  write_safetensors(path() / "model.safetensors", tensors_);
  EXPECT_THAT(inspect(path())->problems,
              ElementsAre(HasSubstr("tensor \"model.norm.weight\" [24] is missing")));
}

TEST_F(InspectTest, LooksAtSingleFiles) {
  const Inspection weights = inspect(path() / "model.safetensors").value();
  EXPECT_FALSE(weights.config.has_value());
  EXPECT_EQ(weights.files.size(), 1U);
  EXPECT_THAT(weights.problems, IsEmpty());
  const Inspection config = inspect(path() / "config.json").value();
  EXPECT_TRUE(config.config.has_value());
  EXPECT_THAT(config.files, IsEmpty());
  EXPECT_THAT(config.problems, IsEmpty());
  EXPECT_THAT(inspect(path() / "tokenizer.json")->problems, ElementsAre(HasSubstr("too few")));
  EXPECT_EQ(inspect(path() / "none").error().code, Code::kNotFound);
}

}  // namespace
}  // namespace heddle::store
