#include "base/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Metrics, ExposesCountersGaugesAndHistograms) {
  Metrics metrics;
  metrics.add("vllm:prompt_tokens_total", "Prompt tokens.", {{"model_name", "adder"}}, 3);
  metrics.add("vllm:prompt_tokens_total", "Prompt tokens.", {{"model_name", "adder"}}, 4);
  metrics.set("heddle:pages", "Pages.", {{"kind", "kv"}}, 12);
  metrics.observe("heddle:switch_seconds", "Switch.", {}, {0.1, 1}, 0.5);

  const std::string text = metrics.expose();

  EXPECT_THAT(text, HasSubstr("vllm:prompt_tokens_total{model_name=\"adder\"} 7"));
  EXPECT_THAT(text, HasSubstr("heddle:pages{kind=\"kv\"} 12"));
  EXPECT_THAT(text, HasSubstr("heddle:switch_seconds_bucket{le=\"0.1\"} 0"));
  EXPECT_THAT(text, HasSubstr("heddle:switch_seconds_bucket{le=\"1\"} 1"));
}

TEST(Metrics, SeriesThatWereFoundOnceCountWithTheRest) {
  Metrics metrics;
  Metrics::Counter counter;
  EXPECT_FALSE(counter);
  counter = metrics.counter("heddle:tokens", "Tokens.", {{"model_name", "a"}});
  ASSERT_TRUE(counter);
  counter.add(3);
  metrics.add("heddle:tokens", "Tokens.", {{"model_name", "a"}}, 4);
  metrics.histogram("heddle:seconds", "Seconds.", {}, {0.1, 1}).observe(0.5);
  metrics.observe("heddle:seconds", "Seconds.", {}, {0.1, 1}, 0.5);
  EXPECT_THAT(metrics.expose(), HasSubstr("heddle:tokens{model_name=\"a\"} 7"));
  EXPECT_THAT(metrics.expose(), HasSubstr("heddle:seconds_bucket{le=\"1\"} 2"));
}

TEST(Metrics, PublishersRunAtEveryScrape) {
  Metrics metrics;
  int scrapes = 0;
  metrics.on_scrape([&scrapes](Metrics& m) { m.set("heddle:scrapes", "Scrapes.", {}, ++scrapes); });
  EXPECT_THAT(metrics.expose(), HasSubstr("heddle:scrapes 1"));
  EXPECT_THAT(metrics.expose(), HasSubstr("heddle:scrapes 2"));
}

TEST(Metrics, ForgetsTheSeriesOfARemovedModelOnly) {
  Metrics metrics;
  metrics.set("heddle:kv", "KV.", {{"model_name", "a"}}, 1);
  metrics.set("heddle:kv", "KV.", {{"model_name", "b"}}, 1);
  metrics.forget("model_name", "a");
  const std::string text = metrics.expose();
  EXPECT_THAT(text, Not(HasSubstr("model_name=\"a\"")));
  EXPECT_THAT(text, HasSubstr("model_name=\"b\""));
}

TEST(Metrics, ForgetsAGaugeByAllItsLabels) {
  Metrics metrics;
  metrics.set("heddle:kv", "KV.", {{"model_name", "a"}, {"pages", "1"}}, 1);
  metrics.set("heddle:kv", "KV.", {{"model_name", "a"}, {"pages", "2"}}, 1);
  metrics.forget_gauge("heddle:kv", {{"model_name", "a"}, {"pages", "1"}});
  metrics.forget_gauge("heddle:kv", {{"model_name", "a"}});
  metrics.forget_gauge("heddle:other", {});
  EXPECT_THAT(metrics.expose(), Not(HasSubstr("pages=\"1\"")));
  EXPECT_THAT(metrics.expose(), HasSubstr("heddle:kv{model_name=\"a\",pages=\"2\"} 1"));
}

}  // namespace
}  // namespace heddle
