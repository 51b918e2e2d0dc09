#include "agent/image_reader.h"

#include <algorithm>
#include <future>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "agent/host_model.h"
#include "base/test_places.h"
#include "store/checkpoint.h"
#include "store/image_layout.h"
#include "store/image_loader.h"

namespace heddle::agent {
namespace {

constexpr std::size_t kPage = std::size_t{16} << 10U;

/// Pages on the heap, in reverse, and a job that fills them.
struct Target {
  explicit Target(const std::string& source) {
    auto opened = open_host_model(
        source, places::kSources, spec::DType::kF32, {.page_bytes = kPage, .max_batch_tokens = 16});
    HEDDLE_CHECK(opened.has_value());
    model = *opened;
    const auto count = static_cast<std::size_t>(model.footprint.image_pages);
    memory.resize(count * kPage);
    for (std::size_t i = 0; i < count; ++i) {
      pages.push_back(memory.data() + (count - 1 - i) * kPage);
    }
  }
  [[nodiscard]] ImageReader::Job job() const {
    return {.model = ModelId(1),
            .directory = model.directory,
            .dtype = spec::DType::kF32,
            .image_bytes = model.image_bytes,
            .pages = pages,
            .page_bytes = kPage};
  }

  HostModel model{};
  std::vector<std::byte> memory{};
  std::vector<std::byte*> pages{};
};

/// Runs one job to its end.
Result<void> read(const ImageReader::Job& job, std::vector<std::uint64_t>& progress) {
  std::promise<Result<void>> ended;
  ImageReader reader(
      {.on_progress = [&](ModelId, std::uint64_t bytes) { progress.push_back(bytes); },
       .on_ended = [&](ModelId, Result<void> result) { ended.set_value(result); }});
  reader.start(job);
  return ended.get_future().get();
}

TEST(ImageReader, FillsPagesWithTheImage) {
  const Target target("tests/golden/llama-mha-f32");
  std::vector<std::uint64_t> progress;
  ASSERT_TRUE(read(target.job(), progress));
  EXPECT_TRUE(std::is_sorted(progress.begin(), progress.end()));
  EXPECT_EQ(progress.back(), target.model.image_bytes);

  const Target expected("tests/golden/llama-mha-f32");
  const auto checkpoint = store::Checkpoint::open(expected.model.directory);
  ASSERT_TRUE(store::load_image(checkpoint->tensors,
                                store::plan_image(checkpoint->config.model, spec::DType::kF32),
                                {.pages = expected.pages, .page_bytes = kPage}));
  EXPECT_EQ(target.memory, expected.memory);
}

TEST(ImageReader, NoticesThatTheModelIsAnotherNow) {
  const Target target("tests/golden/llama-mha-f32");
  ImageReader::Job job = target.job();
  job.image_bytes -= 64;
  std::vector<std::uint64_t> progress;
  const Result<void> result = read(job, progress);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Code::kFailedPrecondition);
  EXPECT_NE(result.error().message.find("reload the configuration"), std::string::npos);
}

TEST(ImageReader, EndsACancelledJobAndTakesTheNext) {
  const Target target("tests/golden/llama-mha-f32");
  std::promise<Result<void>> first;
  std::promise<Result<void>> second;
  std::promise<void> begun;
  std::promise<void> go_on;
  bool held = false;
  int ended = 0;
  ImageReader reader({.on_progress =
                          [&](ModelId, std::uint64_t) {
                            if (!held) {
                              held = true;
                              begun.set_value();
                              go_on.get_future().wait();
                            }
                          },
                      .on_ended =
                          [&](ModelId, Result<void> result) {
                            (ended++ == 0 ? first : second).set_value(result);
                          }});
  reader.start(target.job());
  begun.get_future().wait();
  reader.cancel(ModelId(2));  // Another model: not meant.
  reader.cancel(ModelId(1));
  go_on.set_value();
  const Result<void> cancelled = first.get_future().get();
  ASSERT_FALSE(cancelled);
  EXPECT_EQ(cancelled.error().code, Code::kCancelled);
  reader.start(target.job());
  EXPECT_TRUE(second.get_future().get());
}

}  // namespace
}  // namespace heddle::agent
