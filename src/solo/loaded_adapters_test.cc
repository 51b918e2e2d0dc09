#include "solo/loaded_adapters.h"

#include <gtest/gtest.h>

namespace heddle::solo {
namespace {

config::Config file_with(std::int64_t rank = 8) {
  config::Config file;
  file.models.push_back({.id = "llama", .path = "/models/llama", .adapter_rank = rank});
  file.models.push_back({.id = "other", .path = "/models/other", .aliases = {"alias"}});
  return file;
}

LoadedAdapters with_poet(const config::Config& file) {
  return LoadedAdapters().with(file, {.name = "poet", .directory = "/a/poet"}, false)->adapters;
}

TEST(LoadedAdapters, AreAddedToTheirBase) {
  const config::Config file = file_with();
  const auto plan =
      with_poet(file).with(file, {.name = "cook", .directory = "/a/cook", .base = "alias"}, false);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->base, "other");
  ASSERT_EQ(plan->config.models[0].adapters.size(), 1U);
  EXPECT_EQ(plan->config.models[0].adapters[0].id, "poet");
  EXPECT_EQ(plan->config.models[0].adapters[0].adapter, "/a/poet");
  EXPECT_EQ(plan->config.models[0].adapters[0].base, "llama");
  EXPECT_EQ(plan->config.models[0].adapters[0].path, "/models/llama");
  EXPECT_EQ(plan->config.models[1].adapters.size(), 1U);
}

TEST(LoadedAdapters, ANameIsThereOnceUnlessItIsReplaced) {
  const config::Config file = file_with();
  const LoadedAdapters one = with_poet(file);
  const config::LoadedAdapter other{.name = "poet", .directory = "/b"};
  const auto twice = one.with(file, other, false);
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().code, Code::kInvalidArgument);
  EXPECT_NE(twice.error().message.find("has already been loaded"), std::string::npos);
  const auto replaced = one.with(file, other, true);
  ASSERT_TRUE(replaced);
  ASSERT_EQ(replaced->config.models[0].adapters.size(), 1U);
  EXPECT_EQ(replaced->config.models[0].adapters[0].adapter, "/b");
}

TEST(LoadedAdapters, NamesOfModelsAndOddOnesAreRefused) {
  const config::Config file = file_with();
  for (const std::string name : {"llama", "alias", "", "two words", "a\nb", "\"", "a?b", "é"}) {
    const auto plan = LoadedAdapters().with(file, {.name = name, .directory = "/a"}, true);
    ASSERT_FALSE(plan) << name;
    EXPECT_EQ(plan.error().code, Code::kInvalidArgument) << name;
  }
  EXPECT_FALSE(LoadedAdapters().with(file, {.name = std::string(257, 'a')}, false));
  EXPECT_TRUE(LoadedAdapters().with(file, {.name = std::string(256, 'a')}, false));
}

TEST(LoadedAdapters, ABaseHasToBeClear) {
  config::Config file = file_with(0);
  const auto none = LoadedAdapters().with(file, {.name = "poet"}, false);
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("adapter_rank"), std::string::npos);
  file = file_with();
  file.models[1].adapter_rank = 8;
  const auto two = LoadedAdapters().with(file, {.name = "poet"}, false);
  ASSERT_FALSE(two);
  EXPECT_NE(two.error().message.find("llama, other"), std::string::npos) << two.error().message;
  const auto unknown = LoadedAdapters().with(file, {.name = "poet", .base = "nobody"}, false);
  EXPECT_EQ(unknown.error().code, Code::kNotFound);
  file.models[0].tensor_parallel = 2;
  EXPECT_FALSE(LoadedAdapters().with(file, {.name = "poet", .base = "llama"}, false));
}

TEST(LoadedAdapters, OneIsTakenAwayAndThoseOfTheFileAreNot) {
  config::Config file = file_with();
  const LoadedAdapters one = with_poet(file);
  EXPECT_TRUE(one.without(file, "poet")->config.models[0].adapters.empty());
  EXPECT_EQ(one.without(file, "cook").error().code, Code::kNotFound);
  file.models[0].adapters.push_back({.id = "cook"});
  EXPECT_EQ(one.without(file, "cook").error().code, Code::kInvalidArgument);
}

TEST(LoadedAdapters, AReloadKeepsThoseThatCanBe) {
  LoadedAdapters adapters = with_poet(file_with());
  adapters = adapters.with(file_with(), {.name = "cook", .base = "other"}, false)->adapters;
  config::Config next = file_with();
  next.models.pop_back();
  next.models.push_back({.id = "new"});
  const std::vector<std::string> gone = adapters.lay_over(next);
  ASSERT_EQ(gone.size(), 1U);
  EXPECT_TRUE(gone[0].starts_with("cook: ")) << gone[0];
  EXPECT_EQ(next.models[0].adapters.size(), 1U);
  EXPECT_EQ(adapters.without(next, "cook").error().code, Code::kNotFound) << "it is forgotten";
  config::Config named = file_with();
  named.models.push_back({.id = "poet"});
  EXPECT_EQ(adapters.lay_over(named).size(), 1U) << "the file gives its name to another";
}

TEST(LoadedAdapters, AreSoManyAtMost) {
  const config::Config file = file_with();
  LoadedAdapters all;
  for (std::size_t i = 0; i < LoadedAdapters::kMost; ++i) {
    const auto plan = all.with(file, {.name = "a" + std::to_string(i)}, false);
    ASSERT_TRUE(plan) << i;
    all = plan->adapters;
  }
  EXPECT_FALSE(all.with(file, {.name = "more"}, false));
  EXPECT_TRUE(all.with(file, {.name = "a7"}, true)) << "one in place of another";
}

}  // namespace
}  // namespace heddle::solo
