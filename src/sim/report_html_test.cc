#include <regex>

#include <gtest/gtest.h>

#include "sim/report.h"
#include "sim/test_run.h"

namespace heddle::sim {
namespace {

TEST(ReportHtml, StandsAlone) {
  const ReportHead head{.title = "a <b>",
                        .models = {"alpha", "beta & co"},
                        .objectives = {{.ttft = std::chrono::seconds(2)}, {}},
                        .tables = {{.title = "more", .rows = {{"of"}, {"<it>"}}}}};
  const auto results = run_two_models({.timeline = true});
  const std::string html = report_html(head, {{.policy = "p", .results = results.get()}});
  for (const char* foreign : {"<script", "http:", "https:", "@import", "url(", "<link", "src="}) {
    EXPECT_EQ(html.find(foreign), std::string::npos) << foreign;
  }
  EXPECT_NE(html.find("<title>a &lt;b&gt;</title>"), std::string::npos);
  EXPECT_NE(html.find("prefers-color-scheme:dark"), std::string::npos);
  EXPECT_NE(html.find("Pages of every GPU by owner"), std::string::npos);
  EXPECT_NE(html.find("beta &amp; co"), std::string::npos);
  EXPECT_EQ(html.find("beta & co"), std::string::npos);
  EXPECT_NE(html.find("<h3>more</h3>"), std::string::npos);
  EXPECT_NE(html.find("&lt;it&gt;"), std::string::npos);
  EXPECT_EQ(html.find("Against the rate"), std::string::npos) << "there is one rate";
}

TEST(ReportHtml, DrawsCurvesOfASweep) {
  const ReportHead head{.title = "t", .models = {"alpha", "beta"}};
  const auto results = run_two_models({});
  const std::string html =
      report_html(head,
                  {{.policy = "p", .requests_per_second = 1, .results = results.get()},
                   {.policy = "p", .requests_per_second = 2, .results = results.get()}});
  EXPECT_NE(html.find("Against the rate"), std::string::npos);
  EXPECT_NE(html.find("<circle"), std::string::npos);
}

TEST(ReportHtml, ClosesWhatItOpens) {
  const ReportHead head{.title = "t", .models = {"alpha", "beta"}};
  const auto results = run_two_models({.timeline = true});
  const std::string html = report_html(head, {{.policy = "p", .results = results.get()}});
  for (const char* tag : {"div", "figure", "svg", "section", "table", "span", "path", "title"}) {
    const auto times = [&](const std::string& what) {
      const std::regex pattern(what);
      return std::distance(std::sregex_iterator(html.begin(), html.end(), pattern), {});
    };
    EXPECT_EQ(times("<" + std::string(tag) + "[ >]"), times("</" + std::string(tag) + ">")) << tag;
  }
}

}  // namespace
}  // namespace heddle::sim
