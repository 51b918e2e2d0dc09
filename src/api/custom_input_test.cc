#include "api/custom_input.h"

#include <gtest/gtest.h>

#include "api/conversation.h"

namespace heddle::api {
namespace {

/// The text of arguments that come in two parts.
std::string input_of(const std::string& arguments, std::size_t cut) {
  CustomInput input;
  std::string text = input.push(std::string_view(arguments).substr(0, cut));
  text += input.push(std::string_view(arguments).substr(cut));
  return text + input.finish();
}

TEST(CustomInput, IsWhatTheArgumentsHold) {
  const std::pair<std::string, std::string> cases[] = {
      {custom_arguments("a \"b\"\n\u00e9"), "a \"b\"\n\u00e9"},
      {R"({"input":""})", ""},
      {R"({"input":"\ud83d\ude00","x":1})", "\U0001F600"},
      {R"({"x":1,"input":"late"})", "late"},
      {R"({"x":1})", R"({"x":1})"},
      {R"({"input":3})", R"({"input":3})"}};
  for (const auto& [arguments, text] : cases) {
    for (std::size_t cut = 0; cut <= arguments.size(); ++cut) {
      EXPECT_EQ(input_of(arguments, cut), text) << arguments << " cut at " << cut;
    }
  }
}

TEST(CustomInput, IsToldAsItComes) {
  CustomInput input;
  EXPECT_EQ(input.push(R"({"inp)"), "");
  EXPECT_EQ(input.push(R"(ut":"one )"), "one ");
  EXPECT_EQ(input.push("two"), "two");
  EXPECT_EQ(input.push("\"}"), "");
  EXPECT_EQ(input.finish(), "");
}

TEST(CustomInput, OfArgumentsThatAreCutOffGoesAsFarAsTheyDo) {
  EXPECT_EQ(input_of(R"({"inp)", 3), "");
  EXPECT_EQ(input_of(R"({"input":"on\u00)", 12), "on");
}

}  // namespace
}  // namespace heddle::api
