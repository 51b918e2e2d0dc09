#include "worker/adapter_files.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "store/test_adapter.h"

namespace heddle::worker {
namespace {

constexpr ModelId kAdapted{3};
constexpr AdapterFiles::SequenceId kAsker{1};
constexpr AdapterFiles::SequenceId kLater{2};

class AdapterFilesTest : public testing::Test {
 protected:
  AdapterFilesTest() {
    write(4);
    describe({{.name = "fine", .directory = directory_.path().string()},
              {.name = "lost", .directory = "/nowhere/at/all"}});
  }

  void write(std::int64_t rank) {
    Rng rng(5);
    const store::TestTensors model = store::plausible_model(store::tiny_model(), rng);
    store::random_adapter(model, rng, rank).write(directory_.path());
  }
  void describe(const std::vector<spec::AdapterSource>& sources) {
    files_.describe(kAdapted, store::tiny_model(), spec::DType::kBf16, sources);
  }
  /// What comes of asking, whenever it does.
  Result<AdapterFiles::Handle> have(AdapterFiles::SequenceId sequence, const std::string& name) {
    Result<AdapterFiles::Handle> at_once = files_.ask(sequence, kAdapted, name);
    if (!at_once || *at_once != nullptr) {
      return at_once;
    }
    std::unique_lock lock(mutex_);
    more_.wait(lock, [&] { return std::ranges::find(said_, sequence) != said_.end(); });
    said_.clear();
    return files_.take(sequence).value();
  }

  const store::TempDirectory directory_{};
  std::mutex mutex_{};
  std::condition_variable more_{};
  std::vector<AdapterFiles::SequenceId> said_{};  ///< Under mutex_.
  AdapterFiles files_{[this](AdapterFiles::SequenceId sequence) {
    const std::lock_guard lock(mutex_);
    said_.push_back(sequence);
    more_.notify_all();
  }};
};

TEST_F(AdapterFilesTest, OpensOnceAndAgainWhenFilesHaveChanged) {
  const auto first = have(kAsker, "fine");
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ((*first)->config().rank, 4);
  EXPECT_EQ(files_.name_of(kAdapted, (*first)->identity()), "fine");
  const auto again = files_.ask(kLater, kAdapted, "fine");
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, *first) << "it is open";
  write(6);
  const auto changed = have(kLater, "fine");
  ASSERT_TRUE(changed);
  EXPECT_EQ((*changed)->config().rank, 6);
  EXPECT_NE((*changed)->identity(), (*first)->identity());
}

TEST_F(AdapterFilesTest, SaysWhatIsNotThere) {
  EXPECT_EQ(files_.ask(kAsker, kAdapted, "other").error().code, Code::kNotFound);
  EXPECT_EQ(files_.ask(kAsker, ModelId{9}, "fine").error().code, Code::kNotFound);
  const auto lost = have(kAsker, "lost");
  ASSERT_FALSE(lost);
  EXPECT_NE(lost.error().message.find("/nowhere/at/all/adapter_config.json"), std::string::npos)
      << lost.error().message;
  describe({});
  EXPECT_EQ(files_.ask(kAsker, kAdapted, "fine").error().code, Code::kNotFound);
}

TEST_F(AdapterFilesTest, WhoHasGoneGetsNothing) {
  ASSERT_TRUE(files_.ask(kAsker, kAdapted, "fine"));
  files_.forget(kAsker);
  ASSERT_TRUE(have(kLater, "fine"));
  EXPECT_FALSE(files_.take(kAsker).has_value());
}

}  // namespace
}  // namespace heddle::worker
