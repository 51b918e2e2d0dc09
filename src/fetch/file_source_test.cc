#include "fetch/file_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/test_files.h"

namespace heddle::fetch {
namespace {

TEST(FileSource, ListsAndReads) {
  const store::TempDirectory directory;
  store::write_text(directory.path() / "config.json", "0123456789");
  store::write_text(directory.path() / "1_Pooling/config.json", "{}");
  store::write_text(directory.path() / "a/b/deep.json", "{}");
  FileSource source({.kind = SourceKind::kFile, .path = directory.path().string()});
  const Result<Listing> listing = source.list({});
  ASSERT_TRUE(listing.has_value());
  std::vector<std::string> names;
  for (const Object& object : listing->objects) {
    names.push_back(object.name);
  }
  EXPECT_THAT(names, testing::UnorderedElementsAre("config.json", "1_Pooling/config.json"));

  const auto& object = *std::ranges::find(listing->objects, "config.json", &Object::name);
  std::array<std::byte, 4> bytes{};
  ASSERT_TRUE(fill(source, object, 3, bytes, {}).has_value());
  EXPECT_EQ(bytes[0], std::byte{'3'});
  store::write_text(directory.path() / "config.json", "other");
  EXPECT_EQ(fill(source, object, 3, bytes, {}).error().code, Code::kCorrupt);
}

TEST(FileSource, SaysWhereThereIsNone) {
  FileSource source({.kind = SourceKind::kFile, .text = "file:///no/x", .path = "/no/x"});
  EXPECT_EQ(source.list({}).error().code, Code::kNotFound);
}

}  // namespace
}  // namespace heddle::fetch
