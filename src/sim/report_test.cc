#include "sim/report.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "sim/test_run.h"

namespace heddle::sim {
namespace {

std::string cell(const std::vector<std::vector<std::string>>& table, const std::string& label) {
  const auto row = std::find_if(
      table.begin(), table.end(), [&](const auto& cells) { return cells[0] == label; });
  return row == table.end() ? "no such row" : (*row)[1];
}

TEST(ReportTable, HasWhatPeopleLookFor) {
  const auto results = run_two_models({});
  const auto table =
      report_table({{.policy = "p", .requests_per_second = 0.5, .results = results.get()}});
  EXPECT_EQ(table[0], (std::vector<std::string>{"", "p"}));
  EXPECT_EQ(cell(table, "requests"), "2");
  EXPECT_EQ(cell(table, "SLO attainment"), "0.00 %");
  EXPECT_EQ(cell(table, "  of TTFT / of TPOT"), "0.00 % / 100.00 %");
  EXPECT_EQ(cell(table, "starts hit/attached/cold"), "0 / 0 / 2");
  EXPECT_EQ(cell(table, "fetched / loaded / KV moved [GB]"), "32 / 32 / 0");
  EXPECT_EQ(cell(table, "prediction error"), "-");
  EXPECT_NE(cell(table, "GiB-seconds weights_active"), "no such row");
  EXPECT_EQ(cell(table, "GiB-seconds kv_guest"), "no such row") << "nobody had any";
}

TEST(ReportTable, TurnsWhenRunsAreMany) {
  const auto results = run_two_models({});
  const std::vector<sim::Run> runs(
      6, {.policy = "p", .requests_per_second = 0.5, .results = results.get()});
  const auto table = report_table(runs);
  ASSERT_EQ(table.size(), 7U);
  EXPECT_EQ(table[0][0], "policy");
  EXPECT_EQ(table[6][0], "p");
  EXPECT_EQ(table[6][1], "0.5");
}

TEST(ReportJson, IsTheSameForTheSameRun) {
  const ReportHead head{.title = "t", .models = {"alpha", "beta"}};
  const auto once = run_two_models({});
  const auto again = run_two_models({});
  const std::string json = report_json(head, {{.policy = "p", .results = once.get()}});
  EXPECT_EQ(json, report_json(head, {{.policy = "p", .results = again.get()}}));
  EXPECT_NE(json.find("\"attainment\":0"), std::string::npos) << json;
  EXPECT_NE(json.find("\"name\":\"beta\",\"requests\":1,\"completed\":1"), std::string::npos)
      << json;
}

TEST(CsvRow, LeavesOutWhatThereIsNot) {
  const RequestRow refused{
      .number = RequestId(3), .model = ModelId(0), .input_tokens = 5, .end = RequestEnd::kRefused};
  RequestRow unserved = refused;
  unserved.end = RequestEnd::kUnserved;
  EXPECT_EQ(csv_row(refused, "m"), "3,m,0.000000,5,0,,,,0,0,refused\n");
  EXPECT_EQ(csv_row(unserved, "m"), "3,m,0.000000,5,0,,,,0,0,unserved\n");
  const RequestRow served{.number = RequestId(4),
                          .model = ModelId(0),
                          .arrival = Instant(std::chrono::seconds(1)),
                          .input_tokens = 5,
                          .output_tokens = 3,
                          .first_token = Instant(std::chrono::seconds(2)),
                          .finished = Instant(std::chrono::seconds(3)),
                          .cold = true};
  EXPECT_EQ(csv_row(served, "m"), "4,m,1.000000,5,3,1.000000,0.500000,2.000000,0,1,completed\n");
}

}  // namespace
}  // namespace heddle::sim
