#include "gateway/catalog.h"

#include <atomic>

#include <gtest/gtest.h>

#include "core/background.h"
#include "gateway/task.h"

namespace heddle::gateway {
namespace {

namespace asio = boost::asio;
using TextResult = Result<std::shared_ptr<const ModelText>>;

class CatalogTest : public testing::Test {
 protected:
  std::atomic<int> opened = 0;
  std::atomic<bool> broken = false;
  asio::io_context loop{};
  TextPool pool{loop, 2};
  Catalog catalog{loop, pool, [this](const config::ModelConfig& model) -> TextResult {
                    ++opened;
                    if (broken) {
                      return Error{.code = Code::kNotFound, .message = model.path};
                    }
                    return std::make_shared<const ModelText>(ModelText{.context = 64});
                  }};

  void assign(const std::string& path_of_a) {
    catalog.assign({{.id = "a", .path = path_of_a, .aliases = {"alias"}},
                    {.id = "b/c:d", .path = "y", .unlisted = true},
                    {.id = "unknown", .path = "z"}},
                   {{.id = ModelId(7), .name = "a"}, {.id = ModelId(8), .name = "b/c:d"}});
  }

  static Task<void> ask(Catalog& from,
                        std::shared_ptr<CatalogModel> model,
                        std::vector<TextResult>& results) {
    TextResult result = co_await from.text(std::move(model));
    results.push_back(std::move(result));
  }

  std::vector<TextResult> ask(int times) {
    std::vector<TextResult> results;
    for (int i = 0; i < times; ++i) {
      spawn(loop, ask(catalog, catalog.find("a"), results));
    }
    loop.restart();
    loop.run();
    return results;
  }
};

TEST(PriorityOf, IsTheRequestsBesideTheModels) {
  CatalogModel model{.config = {.priority = -10}};
  EXPECT_EQ(priority_of(model, 0, INT32_MIN), -10);
  EXPECT_EQ(priority_of(model, 5, INT32_MIN), -5);
  EXPECT_EQ(priority_of(model, -7, 0), -10) << "the key's bound is on what the client asks";
  EXPECT_EQ(priority_of(model, 0, core::kBackgroundPriority), core::kBackgroundPriority);
  model.config.priority = 1000;
  EXPECT_FALSE(core::is_background(priority_of(model, 1'000'000, INT32_MIN)));
  EXPECT_EQ(priority_of(model, 3, INT32_MIN), 1003);
}

TEST_F(CatalogTest, FindsByNameAliasAndId) {
  assign("x");
  EXPECT_EQ(catalog.find("a")->id, ModelId(7));
  EXPECT_EQ(catalog.find("alias"), catalog.find("a"));
  EXPECT_EQ(catalog.find("b/c:d")->id, ModelId(8));
  EXPECT_EQ(catalog.find(ModelId(8)), catalog.find("b/c:d"));
  EXPECT_EQ(catalog.find("none"), nullptr);
  EXPECT_EQ(catalog.find("a:latest"), catalog.find("a")) << "as Ollama's clients call it";
  EXPECT_EQ(catalog.find("none:latest"), nullptr);
  EXPECT_EQ(catalog.find("unknown"), nullptr) << "nobody behind serves it";
  EXPECT_EQ(catalog.listed_names(), "a");
}

TEST_F(CatalogTest, AdaptersHaveNamesOfTheirOwnAndTheRestOfTheirBase) {
  config::ModelConfig base{.id = "a", .path = "x"};
  base.adapters = {{.id = "fine", .path = "x", .aliases = {"tuned"}, .base = "a", .adapter = "d"}};
  const std::vector<core::ModelStatus> known{{.id = ModelId(7), .name = "a"}};
  catalog.assign({base}, known);
  const auto adapter = catalog.find("tuned");
  ASSERT_NE(adapter, nullptr);
  EXPECT_EQ(adapter, catalog.find("fine"));
  EXPECT_EQ(adapter->id, ModelId(7));
  EXPECT_EQ(adapter->adapter(), "fine");
  EXPECT_EQ(adapter->base, catalog.find("a"));
  EXPECT_EQ(catalog.find("a")->adapter(), "");
  EXPECT_EQ(catalog.find(ModelId(7)), catalog.find("a"));
  EXPECT_EQ(catalog.listed_names(), "a, fine");
  std::vector<TextResult> results;
  spawn(loop, ask(catalog, adapter, results));
  loop.run();
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(catalog.find("a")->text, *results[0]) << "it is the base's";
  EXPECT_EQ(adapter->context(), 64);
  catalog.assign({base}, known);
  EXPECT_EQ(catalog.find("fine"), adapter) << "its queue stays over a reload";
  base.adapters.clear();
  catalog.assign({base}, known);
  EXPECT_EQ(catalog.find("fine"), nullptr);
}

TEST_F(CatalogTest, ReadsATextOnceForAllWhoAsk) {
  assign("x");
  const auto results = ask(20);
  ASSERT_EQ(results.size(), 20U);
  for (const TextResult& result : results) {
    ASSERT_TRUE(result);
    EXPECT_EQ((*result)->context, 64);
  }
  EXPECT_EQ(opened, 1);
}

TEST_F(CatalogTest, AFailureReachesAllWhoWaitedAndIsTriedAgain) {
  assign("x");
  broken = true;
  for (const TextResult& result : ask(3)) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().message, "x");
  }
  broken = false;
  EXPECT_TRUE(ask(1).at(0));
}

TEST_F(CatalogTest, AReloadKeepsWhatHasNotChanged) {
  assign("x");
  (void)ask(1);
  const auto before = catalog.find("a");
  assign("x");
  EXPECT_EQ(catalog.find("a"), before);
  assign("elsewhere");
  EXPECT_NE(catalog.find("a"), before);
  EXPECT_EQ(catalog.find("a")->text, nullptr);
}

TEST(ContextOfCommand, IsReadWhereTheEngineIsToldOne) {
  EXPECT_EQ(context_of_command({"vllm", "serve", "m", "--max-model-len", "8192"}), 8192);
  EXPECT_EQ(context_of_command({"vllm", "serve", "m", "--max-model-len=32K"}), 32768);
  EXPECT_EQ(context_of_command({"llama-server", "-c", "4096", "--ctx-size", "2048"}), 2048);
  EXPECT_EQ(context_of_command({"sglang", "--context-length"}), 0);
  EXPECT_EQ(context_of_command({"vllm", "--max-model-len", "auto"}), 0);
  EXPECT_EQ(context_of_command({}), 0);
}

}  // namespace
}  // namespace heddle::gateway
