#include "lab/counters.h"

#include <gtest/gtest.h>

namespace heddle::lab {
namespace {

constexpr std::string_view kText =
    "# HELP loads_total Loads.\n"
    "# TYPE loads_total counter\n"
    "loads_total{model_name=\"a\",reason=\"request\"} 2\n"
    "loads_total{model_name=\"b\",reason=\"request\"} 3\r\n"
    "loads_total{model_name=\"b\",reason=\"say \\\"so\\\", \\\\ or\\n}\"} 1e1\n"
    "up 1\n"
    "broken{a=\"b\n"
    "nan_of_it{a=\"b\"} x\n"
    "\n";

TEST(Counters, SumTheSeriesThatAreAskedFor) {
  const Counters counters = Counters::parse(kText);
  EXPECT_EQ(counters.total("loads_total"), 15);
  EXPECT_EQ(counters.total("loads_total", {{"reason", "request"}}), 5);
  EXPECT_EQ(counters.total("loads_total", {{"reason", "request"}, {"model_name", "a"}}), 2);
  EXPECT_EQ(counters.total("loads_total", {{"reason", "say \"so\", \\ or\n}"}}), 10);
  EXPECT_EQ(counters.total("up"), 1);
  EXPECT_EQ(counters.total("broken") + counters.total("nan_of_it") + counters.total("none"), 0);
  EXPECT_EQ(counters.by("loads_total", "model_name"),
            (std::map<std::string, double>{{"a", 2}, {"b", 13}}));
}

TEST(Counters, TellWhatIsNewSinceThen) {
  const Counters then = Counters::parse("x_total{a=\"1\"} 5\ny_total 4\ngauge 7\n");
  const Counters now =
      Counters::parse("x_total{a=\"1\"} 8\nx_total{a=\"2\"} 1\ny_total 3\ngauge 9\n");
  const Counters grown = now.since(then);
  EXPECT_EQ(grown.total("x_total"), 4);
  EXPECT_EQ(grown.total("y_total"), 3) << "it began anew";
  EXPECT_FALSE(grown.series().contains("gauge"));
}

}  // namespace
}  // namespace heddle::lab
