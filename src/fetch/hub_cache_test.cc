#include "fetch/hub_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "fetch/file_lock.h"
#include "fetch/test_source.h"
#include "store/test_files.h"

namespace heddle::fetch {
namespace {

namespace fs = std::filesystem;

const std::string kSnapshot(40, 'd');

class HubCacheTest : public testing::Test {
 protected:
  Result<std::unique_ptr<ModelPlace>> open() {
    return open_hub_place(
        {.repository = "acme/small", .revision = "main"},
        places(),
        [this] { ++waited; },
        stop.get_token());
  }
  [[nodiscard]] store::ModelPlaces places() const {
    return {.base = root() / "base", .hub_cache = root() / "hub"};
  }
  [[nodiscard]] const fs::path& root() const { return directory_.path(); }
  [[nodiscard]] fs::path repository() const { return root() / "hub/models--acme--small"; }
  static Object object(const std::string& name, const std::string& content) {
    return {.name = name, .bytes = content.size(), .sha256 = sha256_of(content)};
  }
  /// Has a model of these contents come.
  fs::path publish(const std::map<std::string, std::string>& contents) {
    Result<std::unique_ptr<ModelPlace>> place = open();
    std::vector<Object> wanted;
    for (const auto& [name, content] : contents) {
      wanted.push_back(object(name, content));
    }
    const auto jobs = (*place)->missing(kSnapshot, wanted);
    fetched = jobs->size();
    for (const Job& job : *jobs) {
      store::write_text(job.partial, contents.at(job.object.name));
      EXPECT_FALSE(store::find_model("acme/small", places()).has_value());
      EXPECT_TRUE((*place)->keep(job).has_value());
    }
    const auto directory = (*place)->publish();
    EXPECT_TRUE(directory.has_value());
    return directory ? *directory : fs::path();
  }

  std::size_t fetched = 0;
  int waited = 0;
  std::stop_source stop{};

 private:
  store::TempDirectory directory_{};
};

TEST_F(HubCacheTest, IsLaidOutAsTheToolsDo) {
  const fs::path directory = publish(
      {{"config.json", "{}"}, {"1_Pooling/config.json", "{}"}, {"model.safetensors", "weights"}});
  EXPECT_EQ(fetched, 2U);  // Two files are equal.
  EXPECT_EQ(directory, repository() / "snapshots" / kSnapshot);
  EXPECT_EQ(*read_text(directory / "1_Pooling/config.json", 10), "{}");
  EXPECT_EQ(fs::read_symlink(directory / "config.json"), "../../blobs/" + sha256_of("{}"));
  EXPECT_EQ(fs::read_symlink(directory / "1_Pooling/config.json"),
            "../../../blobs/" + sha256_of("{}"));
  EXPECT_EQ(*read_text(repository() / "refs/main", 100), kSnapshot);
  EXPECT_EQ(*store::find_model("acme/small", places()), directory);
  EXPECT_FALSE(is_there(repository() / ".heddle-snapshot"));
}

TEST_F(HubCacheTest, TakesWhatTheToolsHaveFetched) {
  store::write_text(repository() / "blobs" / sha256_of("weights"), "weights");
  store::write_text(repository() / "blobs" / sha256_of("{}"), "{");  // Cut short.
  // A snapshot with a part of the files.
  store::write_text(repository() / "snapshots" / kSnapshot / "README.md", "mine");
  const fs::path directory = repository() / "snapshots" / kSnapshot;
  EXPECT_EQ(publish({{"config.json", "{}"}, {"model.safetensors", "weights"}}), directory);
  EXPECT_EQ(fetched, 1U);
  EXPECT_EQ(*read_text(directory / "config.json", 10), "{}");
  EXPECT_TRUE(is_there(directory / "README.md"));
  EXPECT_EQ(publish({{"config.json", "{}"}, {"model.safetensors", "weights"}}), directory);
  EXPECT_EQ(fetched, 0U);
}

TEST_F(HubCacheTest, WaitsForTheToolsOwnLocks) {
  const auto held =
      FileLock::now(root() / "hub/.locks/models--acme--small" / (sha256_of("{}") + ".lock"));
  ASSERT_TRUE(held.has_value());
  auto place = open();
  stop.request_stop();
  EXPECT_EQ((*place)->missing(kSnapshot, {object("config.json", "{}")}).error().code,
            Code::kCancelled);
}

TEST_F(HubCacheTest, WantsDigests) {
  auto place = open();
  const auto jobs = (*place)->missing(kSnapshot, {{.name = "config.json", .bytes = 2}});
  ASSERT_FALSE(jobs.has_value());
  EXPECT_THAT(jobs.error().message, testing::HasSubstr("no digest of config.json"));
}

}  // namespace
}  // namespace heddle::fetch
