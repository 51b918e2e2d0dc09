#include "agent/image_fetcher.h"

#include <algorithm>
#include <array>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/host_model.h"
#include "base/file.h"
#include "base/test_places.h"
#include "fetch/model_cache.h"
#include "fetch/outline.h"
#include "fetch/test_peer.h"
#include "fetch/test_pull.h"
#include "store/read_order.h"

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
    const Result<std::string> content = read_text(source() / file, 1U << 24U);
    return content ? fetch::said_range(head, *content, "ETag: \"" + file + "\"\r\n")
                   : fetch::said("404 Not Found", "");
  }

  /// Runs the job of the whole model to its end.
  Result<void> run() { return run(job()); }
  Result<void> run(ImageFetcher::Job job) {
    std::promise<Result<void>> ended;
    ImageFetcher fetcher(
        {.pull = options, .find_peer = find_peer_},
        {.on_progress = [](ModelId, std::uint64_t) {},
         .on_ended = [&](ModelId, Result<void> result) { ended.set_value(result); },
         .on_changed = [&](const std::string& source) { changed_ = source; }});
    const ModelId model = job.image.model;
    fetcher.start(std::move(job));
    Result<void> result = ended.get_future().get();
    (void)fetcher.forget(model);
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
  std::function<std::shared_ptr<fetch::Peer>(const core::GroupHost&)> find_peer_{};
};

TEST_F(ImageFetcherTest, FetchesFromAnotherHostsCache) {
  const auto peer = std::make_shared<fetch::TestPeer>("h2");
  for (const char* file : {"config.json", "model.safetensors"}) {
    peer->contents[file] = *read_text(source() / file, 1U << 24U);
  }
  find_peer_ = [&](const core::GroupHost& host) {
    EXPECT_EQ(host.name, "h2");
    return peer;
  };
  options.transfer = {.connections = 1};
  ImageFetcher::Job wanted = job();
  wanted.peers = {{.name = "h2"}};
  const std::size_t before = server_->heard().size();
  const Result<void> ran = run(std::move(wanted));
  ASSERT_TRUE(ran.has_value()) << ran.error().message;
  EXPECT_EQ(memory_, expected());
  for (std::size_t i = before; i < server_->heard().size(); ++i) {
    const std::string head = server_->heard()[i];
    EXPECT_TRUE(head.find("GET /golden/model.safetensors") == std::string::npos ||
                head.find("Range: bytes=0-0\r") != std::string::npos)
        << "it is asked whether there is one, and no more: " << head;
  }
  ASSERT_EQ(statuses_.size(), 1U);
  EXPECT_GT(statuses_[0].peer_bytes, 0U);
  EXPECT_THAT(statuses_[0].from, testing::StartsWith("h2"));
}

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

/// The model's stages, each with memory of its own.
class StageFetchTest : public ImageFetcherTest {
 protected:
  StageFetchTest() {
    options.transfer.record_bytes = 64;
    auto stages = open_host_stages(outline_.string(),
                                   root(),
                                   spec::DType::kF32,
                                   {.page_bytes = kPage, .max_batch_tokens = 16},
                                   2);
    HEDDLE_CHECK(stages.has_value());
    for (std::size_t i = 0; i < stages->size(); ++i) {
      const HostModel& stage = (*stages)[i];
      images_.push_back(image_job(ModelId(1 + i), stage, kPage));
      images_.back().directory = outline_;
      std::vector<std::byte>& memory =
          memories_.emplace_back(static_cast<std::size_t>(stage.footprint.image_pages) * kPage);
      for (std::size_t at = 0; at < memory.size(); at += kPage) {
        images_.back().pages.push_back(memory.data() + at);
      }
    }
  }
  [[nodiscard]] ImageFetcher::Job stage_job(std::size_t stage) const {
    return {.image = images_[stage], .name = "golden", .source = url_};
  }
  /// What a stage reads of the checkpoint.
  [[nodiscard]] std::uint64_t read_bytes(std::size_t stage) const {
    const auto opened = open_image(images_[stage]);
    HEDDLE_CHECK(opened.has_value());
    std::uint64_t bytes = 0;
    for (const auto& part : store::read_order(opened->checkpoint.tensors, opened->layout)) {
      bytes += part.end - part.begin;
    }
    return bytes;
  }
  void expect_right(std::size_t stage) {
    const std::vector<std::byte> fetched = memories_[stage];
    std::ranges::fill(memories_[stage], std::byte{});
    ImageJob image = images_[stage];
    image.directory = source();
    const auto opened = open_image(image);
    ASSERT_TRUE(opened.has_value() && read_image(image, *opened, {}).has_value());
    EXPECT_EQ(fetched, memories_[stage]);
  }
  /// All but what the outline has.
  [[nodiscard]] std::uint64_t fetched_of_all() const {
    const auto front = fetch::read_front_of(outline_ / "model.safetensors");
    HEDDLE_CHECK(front.has_value());
    return std::filesystem::file_size(source() / "model.safetensors") - front->size() / 64 * 64;
  }

  std::vector<ImageJob> images_{};
  std::vector<std::vector<std::byte>> memories_{};
};

TEST_F(StageFetchTest, AStageFetchesWhatItReads) {
  std::uint64_t all = 0;
  for (std::size_t stage = 0; stage < 2; ++stage) {
    SCOPED_TRACE(stage);
    const Result<void> done = run(stage_job(stage));
    ASSERT_TRUE(done.has_value()) << done.error().message;
    expect_right(stage);
    const auto fetched = static_cast<double>(statuses_[0].fetched_bytes);
    EXPECT_LT(fetched, 1.08 * static_cast<double>(read_bytes(stage)));
    all += statuses_[0].fetched_bytes;
    const auto cached = fetch::cached_models(options.places);
    ASSERT_EQ(cached.size(), 1U);
    EXPECT_EQ(cached[0].is_incomplete, stage == 0);
  }
  EXPECT_EQ(all, fetched_of_all());
  server_.reset();
  const Result<void> again = run(stage_job(1));
  ASSERT_TRUE(again.has_value()) << "of the cache: " << again.error().message;
}

TEST_F(StageFetchTest, StagesThatComeAtOnceShareWhatComes) {
  std::array<std::promise<Result<void>>, 2> ended;
  ImageFetcher fetcher({.pull = options},
                       {.on_progress = [](ModelId, std::uint64_t) {},
                        .on_ended =
                            [&](ModelId model, Result<void> result) {
                              ended.at(model.value() - 1).set_value(std::move(result));
                            },
                        .on_changed = [](const std::string&) {}});
  fetcher.start(stage_job(0));
  fetcher.start(stage_job(1));
  for (std::size_t stage = 0; stage < 2; ++stage) {
    const Result<void> done = ended.at(stage).get_future().get();
    ASSERT_TRUE(done.has_value()) << done.error().message;
    expect_right(stage);
  }
  ASSERT_EQ(fetcher.statuses().size(), 1U) << "of one name";
  EXPECT_EQ(fetcher.statuses()[0].fetched_bytes, fetched_of_all());
}

TEST_F(StageFetchTest, AWholeModelFetchesWhatAStageLacked) {
  ASSERT_TRUE(run(stage_job(1)).has_value());
  const std::uint64_t part = statuses_[0].fetched_bytes;
  const Result<void> done = run();
  ASSERT_TRUE(done.has_value()) << done.error().message;
  EXPECT_EQ(memory_, expected());
  EXPECT_EQ(statuses_[0].fetched_bytes, fetched_of_all() - part);
}

TEST_F(ImageFetcherTest, TellsThatAModelIsAnotherNow) {
  store::write_text(source() / "config.json", *read_text(source() / "config.json", 10'000) + " ");
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
