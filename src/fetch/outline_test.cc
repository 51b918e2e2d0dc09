#include "fetch/outline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "fetch/pull.h"
#include "fetch/test_pull.h"
#include "fetch/test_source.h"
#include "store/digest.h"
#include "store/test_files.h"

namespace heddle::fetch {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class OutlineTest : public TestPull {
 protected:
  OutlineTest() {
    const std::string header =
        R"({"w":{"dtype":"F32","shape":[300000],"data_offsets":[0,1200000]}})";
    write("config.json", "{}");
    write("model.safetensors", store::safetensors_text(header, pattern(1'200'000)));
    header_bytes_ = 8 + header.size();
  }
  Result<Outline> learn() { return fetch_outline(name(), options, watch, stop.get_token()); }

  std::size_t header_bytes_ = 0;
};

TEST_F(OutlineTest, SaysWhatTheModelIsWithoutItsWeights) {
  EXPECT_FALSE(find_outline(options.places, name()).has_value());
  const Result<Outline> outline = learn();
  ASSERT_TRUE(outline.has_value()) << outline.error().message;
  EXPECT_TRUE(outline->changed);
  EXPECT_FALSE(outline->whole);
  EXPECT_EQ(find_outline(options.places, name()), outline->directory);
  EXPECT_EQ(*store::digest(outline->directory), *store::digest(source()))
      << "what is known of the model is the same";
  const std::string hollow = *read_text(outline->directory / "model.safetensors", 2'000'000);
  const std::string whole = *read_text(source() / "model.safetensors", 2'000'000);
  EXPECT_EQ(hollow.substr(0, header_bytes_), whole.substr(0, header_bytes_));
  EXPECT_EQ(hollow.substr(header_bytes_), std::string(1'200'000, '\0'));

  const Result<Outline> again = learn();
  ASSERT_TRUE(again.has_value());
  EXPECT_FALSE(again->changed);
}

TEST_F(OutlineTest, IsAnotherOneOfAnotherModel) {
  ASSERT_TRUE(learn().has_value());
  write("config.json", "{ }");
  const Result<Outline> outline = learn();
  ASSERT_TRUE(outline.has_value());
  EXPECT_TRUE(outline->changed);
  EXPECT_EQ(*read_text(outline->directory / "config.json", 100), "{ }");
}

TEST_F(OutlineTest, OfAModelThatIsThereItIsTheModel) {
  const Result<Pulled> pulled = pull(name(), options, watch, stop.get_token());
  ASSERT_TRUE(pulled.has_value());
  const Result<Outline> outline = learn();
  ASSERT_TRUE(outline.has_value());
  EXPECT_TRUE(outline->whole);
  EXPECT_EQ(outline->directory, pulled->directory);
}

TEST_F(OutlineTest, WhatIsNoSafetensorsFileIsSaidToBeNone) {
  write("model.safetensors", pattern(100));
  const Result<Outline> outline = learn();
  ASSERT_FALSE(outline.has_value());
  EXPECT_EQ(outline.error().code, Code::kCorrupt);
  EXPECT_THAT(outline.error().message, HasSubstr("is no safetensors file"));
  EXPECT_FALSE(find_outline(options.places, name()).has_value());
}

}  // namespace
}  // namespace heddle::fetch
