#include "gguf/metadata_fields.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::gguf {
namespace {

GgufFile file_of(Metadata metadata) {
  GgufFile file;
  file.name = "m.gguf";
  file.metadata = std::move(metadata);
  return file;
}

TEST(MetadataFields, ReadsWhatIsThere) {
  const GgufFile file =
      file_of({{"i", std::int64_t{7}},
               {"f", 0.1F},
               {"d", 0.25},
               {"b", true},
               {"t", std::string("x")},
               {"a", Array{.type = ValueType::kText, .count = 1, .texts = {"y"}}}});
  MetadataFields fields(file);
  EXPECT_EQ(fields.integer("i"), 7);
  EXPECT_EQ(fields.integer("absent", 3), 3);
  EXPECT_EQ(fields.decimal("f"), "0.1");
  EXPECT_EQ(fields.decimal("d"), "0.25");
  EXPECT_EQ(fields.decimal("i"), "7");
  EXPECT_EQ(fields.decimal("absent"), "");
  EXPECT_EQ(fields.number("d", 1), 0.25);
  EXPECT_EQ(fields.number("absent", 1), 1);
  EXPECT_TRUE(fields.boolean("b", false));
  EXPECT_TRUE(fields.boolean("absent", true));
  EXPECT_EQ(fields.text("t"), "x");
  ASSERT_NE(fields.texts("a"), nullptr);
  EXPECT_EQ(fields.texts("a")->texts.front(), "y");
  EXPECT_EQ(fields.numbers("absent"), nullptr);
  EXPECT_TRUE(fields.ok());
}

TEST(MetadataFields, KeepsTheFirstThingThatIsWrong) {
  const GgufFile file = file_of({{"t", std::string("x")}});
  MetadataFields fields(file);
  EXPECT_EQ(fields.integer("t", 2), 2);
  EXPECT_EQ(fields.integer("absent"), 1);
  EXPECT_EQ(fields.status().error().message,
            "m.gguf: key \"t\" is \"x\"; it must be an integer, or an array of equal ones");
}

TEST(MetadataFields, RefusesOtherTypes) {
  const GgufFile file =
      file_of({{"n", std::numeric_limits<float>::infinity()},
               {"i", std::int64_t{1}},
               {"a", Array{.type = ValueType::kI32, .count = 2, .integers = {1, 2}}},
               {"counted", Array{.type = ValueType::kText, .count = 9}}});
  const auto fault = [&file](auto read) {
    MetadataFields fields(file);
    read(fields);
    return fields.ok() ? "" : fields.status().error().message;
  };
  EXPECT_EQ(fault([](MetadataFields& f) { (void)f.decimal("n"); }),
            "m.gguf: key \"n\" is inf; it must be a finite number");
  EXPECT_EQ(fault([](MetadataFields& f) { (void)f.boolean("i", false); }),
            "m.gguf: key \"i\" is 1; it must be a bool");
  EXPECT_EQ(fault([](MetadataFields& f) { (void)f.text("i"); }),
            "m.gguf: key \"i\" is 1; it must be a string");
  EXPECT_EQ(
      fault([](MetadataFields& f) { (void)f.integer("a"); }),
      "m.gguf: key \"a\" is an array of 2 i32; it must be an integer, or an array of equal ones");
  EXPECT_EQ(fault([](MetadataFields& f) { (void)f.texts("a"); }),
            "m.gguf: key \"a\" is an array of 2 i32; it must be an array of strings");
  EXPECT_EQ(fault([](MetadataFields& f) { (void)f.numbers("a"); }),
            "m.gguf: key \"a\" is an array of 2 i32; it must be an array of numbers");
  EXPECT_EQ(fault([](MetadataFields& f) { (void)f.integers("counted"); }),
            "m.gguf: key \"counted\" is an array of 9 strings; it must be an array of integers");
  // An array whose elements were only counted is none that can be read.
  EXPECT_NE(fault([](MetadataFields& f) { (void)f.texts("counted"); }), "");
}

}  // namespace
}  // namespace heddle::gguf
