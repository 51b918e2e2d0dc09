#include "agent/image_fetcher.h"

#include <algorithm>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/host_model.h"
#include "base/test_places.h"
#include "fetch/outline.h"
#include "fetch/test_pull.h"
#include "store/file.h"

namespace heddle::agent {
namespace {

using testing::HasSubstr;

constexpr std::size_t kPage = std::size_t{16} << 10U;
constexpr ModelId kModel{1};

/// A golden model in a folder that stands for a server, and pages for its image.
class ImageFetcherTest : public fetch::TestPull {
 protected:
  ImageFetcherTest() {
    std::filesystem::copy(std::filesystem::path(places::kSources) / "tests/golden/llama-mha-f32",
                          source());
    options.transfer = {.connections = 2};
    server_.emplace([this](const std::string& head) { return answer(head); });
    url_ = url();
    const auto outline = fetch::fetch_outline(url(), options, watch, stop.get_token());
    HEDDLE_CHECK(outline.has_value());
    outline_ = outline->directory;
    auto opened = open_host_model(outline_.string(),
                                  root(),
                                  spec::DType::kF32,
                                  {.page_bytes = kPage, .max_batch_tokens = 16});
    HEDDLE_CHECK(opened.has_value());
    model_ = *opened;
    memory_.resize(static_cast<std::size_t>(model_.footprint.image_pages) * kPage);
  }

  [[nodiscard]] std::string url() const { return server_->url("/golden"); }
  /// What a web server says of the folder.
  [[nodiscard]] std::string answer(const std::string& head) const {
    const std::size_t begin = head.find("/golden/") + 8;
    const std::string file = head.substr(begin, head.find(' ', begin) - begin);
    const Result<std::string> content = store::read_text(source() / file, 1U << 24U);
    return content ? fetch::said_range(head, *content, "ETag: \"" + file + "\"\r\n")
                   : fetch::said("404 Not Found", "");
  }

  /// Runs a job to its end.
  Result<void> run() {
    std::promise<Result<void>> ended;
    ImageFetcher fetcher(
        {.pull = options},
        {.on_progress = [](ModelId, std::uint64_t) {},
         .on_ended = [&](ModelId, Result<void> result) { ended.set_value(result); },
         .on_changed = [&](const std::string& source) { changed_ = source; }});
    fetcher.start(job());
    Result<void> result = ended.get_future().get();
    fetcher.forget(kModel);
    statuses_ = fetcher.statuses();
    return result;
  }
  [[nodiscard]] ImageFetcher::Job job() {
    ImageFetcher::Job job{.image = {.model = kModel,
                                    .directory = outline_,
                                    .dtype = spec::DType::kF32,
                                    .image_bytes = model_.image_bytes,
                                    .page_bytes = kPage},
                          .name = "golden",
                          .source = url_};
    for (std::size_t at = 0; at < memory_.size(); at += kPage) {
      job.image.pages.push_back(memory_.data() + at);
    }
    return job;
  }
  [[nodiscard]] std::vector<std::byte> expected() {
    std::vector<std::byte> memory(memory_.size());
    ImageJob image = job().image;
    image.directory = source();
    for (std::size_t i = 0; i < image.pages.size(); ++i) {
      image.pages[i] = memory.data() + i * kPage;
    }
    const auto opened = open_image(image);
    HEDDLE_CHECK(opened.has_value() && read_image(image, *opened, {}).has_value());
    return memory;
  }

  std::optional<fetch::TestServer> server_{};
  std::string url_{};
  std::filesystem::path outline_{};
  HostModel model_{};
  std::vector<std::byte> memory_{};
  std::string changed_{};
  std::vector<core::FetchStatus> statuses_{};
};

TEST_F(ImageFetcherTest, FillsPagesWithWhatItFetches) {
  const Result<void> done = run();
  ASSERT_TRUE(done.has_value()) << done.error().message;
  EXPECT_EQ(memory_, expected());
  ASSERT_EQ(statuses_.size(), 1U);
  EXPECT_FALSE(statuses_[0].active);
  EXPECT_EQ(statuses_[0].kind, "http");
  EXPECT_EQ(statuses_[0].fetched_bytes, std::filesystem::file_size(source() / "model.safetensors"));

  server_.reset();
  std::ranges::fill(memory_, std::byte{});
  const Result<void> again = run();
  ASSERT_TRUE(again.has_value()) << again.error().message;
  EXPECT_EQ(memory_, expected()) << "of the cache, without the server";
}

TEST_F(ImageFetcherTest, TellsThatAModelIsAnotherNow) {
  store::write_text(source() / "config.json",
                    *store::read_text(source() / "config.json", 10'000) + " ");
  EXPECT_EQ(run().error().code, Code::kFailedPrecondition);
  EXPECT_EQ(changed_, url());
}

TEST_F(ImageFetcherTest, SaysOfWhichModelAFetchHasFailed) {
  ImageFetcher::Job wrong = job();
  wrong.source = "file:///nowhere/golden";
  std::promise<Result<void>> ended;
  ImageFetcher fetcher({.pull = options},
                       {.on_progress = [](ModelId, std::uint64_t) {},
                        .on_ended = [&](ModelId, Result<void> result) { ended.set_value(result); },
                        .on_changed = [](const std::string&) {}});
  fetcher.start(std::move(wrong));
  const Result<void> done = ended.get_future().get();
  ASSERT_FALSE(done.has_value());
  EXPECT_THAT(done.error().message, HasSubstr("fetch model golden from file:///nowhere/golden: "));
}

}  // namespace
}  // namespace heddle::agent
