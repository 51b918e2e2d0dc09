#include "config/adapters.h"

#include <string>

#include <gtest/gtest.h>

#include "config/config.h"

namespace heddle::config {
namespace {

Result<Config> parsed(const std::string& models, const std::string& more = "") {
  const Machine machine{.cores = {0, 1}, .memory = 8ULL << 30U};
  const Environment none = [](const std::string&) { return std::nullopt; };
  return parse_config("models:\n" + models + more, "heddle.yaml", none, machine);
}

std::string problem(const std::string& models) {
  const Result<Config> config = parsed(models);
  return config ? "none" : config.error().message;
}

constexpr const char* kBase = "  llama: {path: m/llama, context: 100, slo: {ttft: 2s}}\n";

TEST(ConfigAdapters, BelongToTheirBaseAndHaveItsSettings) {
  const auto config = parsed(
      std::string(kBase) +
          "  bot: {base: llama, adapter: m/bot, aliases: [helper], name: Bot, unlisted: true}\n",
      "hooks: {on_startup: {preload: [helper]}}\n");
  ASSERT_TRUE(config) << config.error().message;
  ASSERT_EQ(config->models.size(), 1U);
  const ModelConfig& base = config->models[0];
  ASSERT_EQ(base.adapters.size(), 1U);
  const ModelConfig& bot = base.adapters[0];
  EXPECT_EQ(bot.id, "bot");
  EXPECT_EQ(bot.base, "llama");
  EXPECT_EQ(bot.adapter, "m/bot");
  EXPECT_EQ(bot.path, "m/llama");
  EXPECT_EQ(bot.aliases, std::vector<std::string>{"helper"});
  EXPECT_EQ(bot.name, "Bot");
  EXPECT_TRUE(bot.unlisted);
  EXPECT_EQ(bot.context, 100);
  EXPECT_EQ(bot.slo.ttft, std::chrono::seconds(2));
  EXPECT_FALSE(base.unlisted);
  EXPECT_EQ(config->preload, std::vector<std::string>{"llama"});
}

TEST(ConfigAdapters, MayNameTheirBaseByAnAliasAndStandBeforeIt) {
  const auto config =
      parsed("  bot: {base: l, adapter: m/bot}\n  llama: {path: m/llama, aliases: [l]}\n");
  ASSERT_TRUE(config) << config.error().message;
  ASSERT_EQ(config->models.size(), 1U);
  EXPECT_EQ(config->models[0].adapters.at(0).base, "llama");
}

TEST(ConfigAdapters, BasesThatCannotHaveThemAreProblems) {
  const std::string bot = "  bot: {base: other, adapter: m/bot}\n";
  EXPECT_EQ(problem(kBase + bot),
            "heddle.yaml: models.bot.base: \"other\" is no model of this file");
  EXPECT_NE(problem("  other: {path: p, tensor_parallel: 2}\n" + bot).find("of one device"),
            std::string::npos);
  EXPECT_NE(problem("  other: {proxy: 'http://127.0.0.1:9', memory: 1GiB}\n" + bot)
                .find("engine of its own"),
            std::string::npos);
  EXPECT_NE(problem(std::string(kBase) + "  other: {base: llama, adapter: a}\n" + bot)
                .find("is an adapter itself"),
            std::string::npos);
}

TEST(ConfigAdapters, KeysOfTheBaseAreTheBases) {
  EXPECT_NE(problem(std::string(kBase) + "  bot: {base: llama, adapter: a, context: 5}\n")
                .find("runs in its base and has what that has"),
            std::string::npos);
  EXPECT_NE(problem(std::string(kBase) + "  bot: {adapter: a}\n").find("has both `base`"),
            std::string::npos);
  EXPECT_NE(problem(std::string(kBase) + "  bot: {base: llama, path: p}\n").find("has both `base`"),
            std::string::npos);
}

TEST(ConfigAdapters, RoomForThemIsOfModelsThatCanHaveThem) {
  EXPECT_EQ(parsed("  llama: {path: p, adapter_rank: 16}\n")->models[0].adapter_rank, 16);
  EXPECT_EQ(parsed(kBase)->models[0].adapter_rank, 0);
  EXPECT_NE(problem("  llama: {path: p, adapter_rank: 513}\n").find("adapter_rank"),
            std::string::npos);
  EXPECT_NE(problem("  llama: {path: p, adapter_rank: 8, tensor_parallel: 2}\n")
                .find("adapter_rank: this model has tensor_parallel"),
            std::string::npos);
  EXPECT_NE(problem(std::string(kBase) + "  bot: {base: llama, adapter: a, adapter_rank: 8}\n")
                .find("runs in its base"),
            std::string::npos);
}

TEST(ConfigAdapters, FoldersOfThoseThatComeLaterStartAtTheFile) {
  const auto config = parsed(kBase, "adapters: {directories: [/srv/adapters, mine/../theirs]}\n");
  ASSERT_TRUE(config) << config.error().message;
  ASSERT_EQ(config->adapters.directories.size(), 2U);
  EXPECT_EQ(config->adapters.directories[0], "/srv/adapters");
  EXPECT_EQ(config->adapters.directories[1], config->directory + "/theirs");
  EXPECT_FALSE(parsed(kBase, "adapters: {directories: ['']}\n"));
  EXPECT_TRUE(parsed(kBase)->adapters.directories.empty());
}

TEST(ConfigAdapters, OneIsAddedToAConfigurationThatIsThere) {
  Config config = parsed(std::string(kBase) + "  bot: {base: llama, adapter: a}\n").value();
  const auto base = add_adapter(config, {.name = "poet", .directory = "/srv/poet"});
  ASSERT_TRUE(base) << base.error().message;
  EXPECT_EQ(*base, "llama");
  ASSERT_EQ(config.models[0].adapters.size(), 2U);
  EXPECT_EQ(config.models[0].adapters[1].adapter, "/srv/poet");
  EXPECT_EQ(config.models[0].adapters[1].context, 100);
  for (const char* const name : {"bot", "llama", "poet"}) {
    EXPECT_FALSE(add_adapter(config, {.name = name, .directory = "/srv/other"})) << name;
  }
  config.peers.push_back({.name = "away", .models = {"far"}});
  EXPECT_FALSE(add_adapter(config, {.name = "far", .directory = "/srv/far"}));
  EXPECT_EQ(config.models[0].adapters.size(), 2U);
}

}  // namespace
}  // namespace heddle::config
