#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/report.h"

namespace heddle::bench {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

TEST(ReportHtml, IsOnePageThatNeedsNothingElse) {
  Results results({"a<b", "c"}, parse_slo("ttft=200ms").value());
  for (int i = 0; i < 50; ++i) {
    const Duration due = i * 10ms;
    results.add({.model = static_cast<std::size_t>(i % 2),
                 .due = due,
                 .begun = due,
                 .first = due + 50ms,
                 .last = due + 90ms,
                 .ended = due + 100ms,
                 .completion_tokens = 5},
                {10ms});
  }
  const std::string page = report_html(results, {{"url", "http://x/?<script>"}});
  EXPECT_THAT(page, testing::StartsWith("<!doctype html>"));
  EXPECT_THAT(page, HasSubstr("a&lt;b"));
  EXPECT_THAT(page, HasSubstr("<svg"));
  EXPECT_THAT(page, HasSubstr("SLO"));
  EXPECT_THAT(page, HasSubstr("Tokens a second"));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("src=")));
  EXPECT_THAT(page, Not(HasSubstr("nan")));
}

TEST(ReportHtml, ARunInWhichAllFailedIsShownAsWell) {
  Results results({"a"}, {});
  results.add({.error = "no"}, {});
  EXPECT_THAT(report_html(results, {}), HasSubstr("1 failed: no"));
}

}  // namespace
}  // namespace heddle::bench
