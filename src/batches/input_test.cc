#include "batches/input.h"

#include <map>

#include <gtest/gtest.h>

#include "base/test_directory.h"
#include "batches/line_file.h"

namespace heddle::batches {
namespace {

class BatchInputTest : public testing::Test {
 protected:
  Result<Input> look(const std::string& content) {
    const std::string file = (directory_.path() / std::to_string(++files_)).string();
    EXPECT_TRUE(append_to(file, content));
    faults_.clear();
    return look_through(
        file, "/v1/embeddings", [this](std::size_t line, const std::string&, const Fault& fault) {
          faults_[line] = fault.code;
        });
  }
  static std::string line(const std::string& id, const std::string& model) {
    return R"({"custom_id":")" + id +
           R"(","method":"POST","url":"/v1/embeddings","body":{"model":")" + model +
           R"(","input":"x"}})" + "\n";
  }

  TempDirectory directory_{};
  int files_ = 0;
  std::map<std::size_t, std::string> faults_{};
};

TEST_F(BatchInputTest, LinesAreFoundAgainByTheirModels) {
  const Result<Input> input = look(line("a", "m") + "\n \r\n" + line("b", "n") + line("c", "m"));
  ASSERT_TRUE(input);
  ASSERT_EQ(input->lines.size(), 3U);
  EXPECT_EQ(input->models, (std::vector<std::string>{"m", "n"}));
  EXPECT_EQ(input->lines[1].model, 1U);
  EXPECT_EQ(input->lines[2].model, 0U);
  EXPECT_EQ(input->lines[2].bytes, line("c", "m").size() - 1);
  EXPECT_TRUE(faults_.empty());
}

TEST_F(BatchInputTest, WrongLinesFailAlone) {
  const Result<Input> input = look(line("a", "m") + "nonsense\n" + line("a", "m") + line("d", "m") +
                                   std::string(kLineBytesMax + 1, 'x') + "\n");
  ASSERT_TRUE(input);
  EXPECT_EQ(input->lines.size(), 5U);
  EXPECT_EQ(faults_,
            (std::map<std::size_t, std::string>{
                {1, "invalid_json_line"}, {2, "duplicate_custom_id"}, {4, "line_too_long"}}));
  EXPECT_EQ(input->lines[1].bytes, 0U);
  EXPECT_GT(input->lines[3].bytes, 0U);
}

TEST_F(BatchInputTest, TooManyAndNoneAreRefused) {
  const Result<Input> none = look("\n \n");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kInvalidArgument);
  std::string many;
  for (std::size_t i = 0; i <= kLinesMax; ++i) {
    many += "x\n";
  }
  const Result<Input> too_many = look(many);
  ASSERT_FALSE(too_many);
  EXPECT_NE(too_many.error().message.find("50000"), std::string::npos);
  many.resize(many.size() - 2);
  EXPECT_TRUE(look(many));
}

}  // namespace
}  // namespace heddle::batches
