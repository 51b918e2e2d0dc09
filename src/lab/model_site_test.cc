#include "lab/model_site.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "gateway/test_client.h"

#include <unistd.h>

namespace heddle::lab {
namespace {

class ModelSiteTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_ + "/below");
    std::ofstream(folder_ + "/config.json") << "0123456789";
    std::ofstream(root_ + "/secret") << "not here";
    auto site = ModelSite::start({"/nonexistent", folder_});
    ASSERT_TRUE(site) << site.error().message;
    site_ = std::move(*site);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  [[nodiscard]] gateway::TestResponse ask(std::size_t index,
                                          const std::string& name,
                                          const std::string& headers = "") const {
    const std::string url = site_->url(index);
    const std::size_t colon = url.rfind(':');
    gateway::TestClient client(static_cast<std::uint16_t>(std::stoi(url.substr(colon + 1))));
    return client.call("GET", url.substr(url.find('/', colon)) + name, "", headers);
  }

  const std::string root_ = testing::TempDir() + "model-site-" + std::to_string(::getpid());
  const std::string folder_ = root_ + "/model";
  std::unique_ptr<ModelSite> site_{};
};

TEST_F(ModelSiteTest, GivesFilesAndPartsOfThem) {
  const gateway::TestResponse whole = ask(1, "/config.json");
  EXPECT_EQ(whole.status, 200);
  EXPECT_EQ(whole.body, "0123456789");
  const gateway::TestResponse part = ask(1, "/config.json", "Range: bytes=2-4\r\n");
  EXPECT_EQ(part.status, 206);
  EXPECT_EQ(part.body, "234");
  EXPECT_EQ(ask(1, "/config.json", "Range: bytes=8-99\r\n").body, "89") << "as much as there is";
  EXPECT_EQ(ask(1, "/config.json", "Range: bytes=99-\r\n").status, 200) << "no such part";
}

TEST_F(ModelSiteTest, GivesNothingElse) {
  EXPECT_EQ(ask(1, "/tokenizer.json").status, 404);
  EXPECT_EQ(ask(1, "/%2e%2e/secret").status, 404);
  EXPECT_EQ(ask(1, "/..").status, 404);
  EXPECT_EQ(ask(1, "/below").status, 404);
  EXPECT_EQ(ask(0, "/config.json").status, 404);
}

}  // namespace
}  // namespace heddle::lab
