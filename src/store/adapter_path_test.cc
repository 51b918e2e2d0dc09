#include "store/adapter_path.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "store/test_files.h"

namespace heddle::store {
namespace {

namespace fs = std::filesystem;

class AdapterPathTest : public testing::Test {
 protected:
  AdapterPathTest() {
    for (const char* const folder : {"allowed", "also", "secret", "allowed-not"}) {
      fs::create_directories(root_ / folder);
    }
  }

  void make(const fs::path& directory) const {
    fs::create_directories(root_ / directory);
    write_text(root_ / directory / "adapter_config.json", "{}");
    write_text(root_ / directory / "adapter_model.safetensors", "");
  }
  [[nodiscard]] Result<fs::path> find(const std::string& named) const {
    const std::vector<std::string> folders{(root_ / "allowed").string(), (root_ / "also").string()};
    return find_adapter_in(folders, named);
  }
  [[nodiscard]] Code code(const std::string& named) const { return find(named).error().code; }

  TempDirectory directory_{};
  fs::path root_ = fs::canonical(directory_.path());
};

TEST_F(AdapterPathTest, IsAbsoluteOrRelativeToTheFirstFolderThatHasIt) {
  make("allowed/a");
  make("also/b/deeper");
  EXPECT_EQ(find("a").value(), root_ / "allowed/a");
  EXPECT_EQ(find("b/deeper").value(), root_ / "also/b/deeper");
  EXPECT_EQ(find((root_ / "also/b/../b/deeper/").string()).value(), root_ / "also/b/deeper");
}

TEST_F(AdapterPathTest, WhatIsOutsideIsRefusedWhetherItExistsOrNot) {
  make("secret/a");
  make("allowed-not/a");
  const fs::path allowed = root_ / "allowed";
  for (const std::string& named : {(root_ / "secret/a").string(),
                                   (root_ / "secret/nothing").string(),
                                   (root_ / "allowed-not/a").string(),
                                   (allowed / "../secret/a").string(),
                                   std::string("../secret/a"),
                                   std::string("a/../../secret/a"),
                                   std::string("/"),
                                   std::string("/etc"),
                                   std::string(".."),
                                   std::string("."),
                                   std::string(),
                                   allowed.string(),
                                   std::string("a\0/../..", 8)}) {
    ASSERT_FALSE(find(named)) << named;
    EXPECT_EQ(code(named), Code::kInvalidArgument) << named;
  }
  EXPECT_EQ(code("nothing"), Code::kNotFound);
}

TEST_F(AdapterPathTest, LinksLeadNowhereElse) {
  make("secret/a");
  make("allowed/real");
  make("allowed/files");
  fs::create_directory_symlink(root_ / "secret/a", root_ / "allowed/out");
  fs::create_directory_symlink(root_ / "secret", root_ / "allowed/up");
  fs::create_directory_symlink(root_ / "allowed/real", root_ / "also/in");
  EXPECT_EQ(code("out"), Code::kInvalidArgument);
  EXPECT_EQ(code("up/a"), Code::kInvalidArgument);
  EXPECT_EQ(find("in").value(), root_ / "allowed/real");
  const fs::path weights = root_ / "allowed/files/adapter_model.safetensors";
  fs::remove(weights);
  fs::create_symlink(root_ / "secret/a/adapter_model.safetensors", weights);
  EXPECT_EQ(code("files"), Code::kInvalidArgument) << "of a file likewise";
  fs::remove(weights);
  fs::create_symlink(root_ / "allowed/real/adapter_model.safetensors", weights);
  EXPECT_TRUE(find("files"));
}

TEST_F(AdapterPathTest, BothFilesHaveToBeThere) {
  make("allowed/a");
  fs::remove(root_ / "allowed/a/adapter_config.json");
  EXPECT_EQ(code("a"), Code::kNotFound);
  fs::create_directory(root_ / "allowed/a/adapter_config.json");
  EXPECT_EQ(code("a"), Code::kNotFound) << "a folder is no file";
}

TEST_F(AdapterPathTest, WithoutFoldersNothingIsFound) {
  make("allowed/a");
  const auto found = find_adapter_in({}, (root_ / "allowed/a").string());
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, Code::kInvalidArgument);
  EXPECT_NE(found.error().message.find("adapters.directories"), std::string::npos);
}

}  // namespace
}  // namespace heddle::store
