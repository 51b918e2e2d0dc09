#include "agent/shared_pages.h"

#include <gtest/gtest.h>

#include "base/descriptor_limit.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace heddle::agent {
namespace {

constexpr DeviceId kLender{1};
constexpr ModelId kGuestModel{7};

std::vector<PageId> pages(std::uint64_t count, std::uint64_t first = 0) {
  std::vector<PageId> pages;
  for (std::uint64_t i = 0; i < count; ++i) {
    pages.emplace_back(first + i);
  }
  return pages;
}

/// Descriptors of files of their own, which tell them apart.
std::vector<rpc::Descriptor> files(std::size_t count) {
  std::vector<rpc::Descriptor> made;
  for (std::size_t i = 0; i < count; ++i) {
    made.emplace_back(::memfd_create("page", MFD_CLOEXEC));
  }
  return made;
}

ino_t file_of(const rpc::Descriptor& descriptor) {
  struct stat status{};
  EXPECT_EQ(::fstat(descriptor.get(), &status), 0);
  return status.st_ino;
}

class SharedPagesTest : public testing::Test {
 protected:
  /// The host's worker shares so many, of which these are the files.
  std::vector<ino_t> share(std::uint64_t count, std::uint64_t first = 0) {
    EXPECT_TRUE(shared_.share(kLender, kGuestModel, pages(count, first)));
    std::vector<rpc::Descriptor> made = files(count);
    std::vector<ino_t> all;
    for (const rpc::Descriptor& descriptor : made) {
      all.push_back(file_of(descriptor));
    }
    EXPECT_TRUE(shared_.keep(
        kLender, {.model = kGuestModel, .pages = pages(count, first)}, std::move(made)));
    return all;
  }

  SharedPages shared_;
};

TEST_F(SharedPagesTest, AWorkerIsAskedForAFrameOfPagesAtATime) {
  const auto messages = shared_.share(kLender, kGuestModel, pages(19)).value();
  ASSERT_EQ(messages.size(), 3U);
  EXPECT_EQ(std::get<rpc::ShareGuests>(messages[0].body).pages, pages(8));
  EXPECT_EQ(std::get<rpc::ShareGuests>(messages[2].body).pages, pages(3, 16));
  EXPECT_TRUE(messages[0].descriptors.empty());
}

TEST_F(SharedPagesTest, TheHotWorkerGetsEachPagesMemory) {
  const std::vector<ino_t> made = share(10, 4);
  const auto messages = shared_.pass(kLender, kGuestModel, pages(10, 4), 64);
  ASSERT_EQ(messages.size(), 2U);
  std::size_t next = 0;
  for (const SharedPages::Message& message : messages) {
    const auto& body = std::get<rpc::GuestMemory>(message.body);
    EXPECT_EQ(body.device_pages, 64);
    ASSERT_EQ(body.pages.size(), message.descriptors.size());
    for (std::size_t i = 0; i < body.pages.size(); ++i, ++next) {
      EXPECT_EQ(body.pages[i], PageId(4 + next));
      EXPECT_EQ(file_of(message.descriptors[i]), made[next]);
    }
  }
  EXPECT_EQ(next, 10U);
}

TEST_F(SharedPagesTest, ALaterLifeGetsTheSameMemory) {
  const std::vector<ino_t> made = share(3);
  const auto again = shared_.share(kLender, kGuestModel, pages(3)).value();
  ASSERT_EQ(again.size(), 1U);
  ASSERT_EQ(again[0].descriptors.size(), 3U);
  EXPECT_EQ(file_of(again[0].descriptors[2]), made[2]);
}

TEST_F(SharedPagesTest, OfWhatHasGoneHomeNothingIsKept) {
  share(4);
  shared_.lease(kLender, kGuestModel, pages(1, 2));
  EXPECT_EQ(shared_.size(), 1U);
  const auto messages = shared_.pass(kLender, kGuestModel, pages(4), 64);
  ASSERT_EQ(messages.size(), 1U);
  EXPECT_EQ(std::get<rpc::GuestMemory>(messages[0].body).pages, pages(1, 2));
  const std::size_t open = open_descriptors();
  EXPECT_TRUE(shared_.keep(kLender, {.model = kGuestModel, .pages = pages(2)}, files(2))) << "late";
  EXPECT_EQ(open_descriptors(), open);
  shared_.lease(kLender, kGuestModel, {});
  EXPECT_EQ(shared_.size(), 0U);
}

TEST_F(SharedPagesTest, DescriptorsThatAreNotThePagesAreRefused) {
  ASSERT_TRUE(shared_.share(kLender, kGuestModel, pages(2)));
  EXPECT_FALSE(shared_.keep(kLender, {.model = kGuestModel, .pages = pages(2)}, files(1)));
  EXPECT_FALSE(shared_.keep(
      kLender, {.model = kGuestModel, .pages = pages(2), .failure = Error{}}, files(2)));
  EXPECT_TRUE(
      shared_.keep(kLender, {.model = kGuestModel, .pages = pages(2), .failure = Error{}}, {}));
}

TEST_F(SharedPagesTest, MoreThanThisProcessMayHaveOpenIsRefusedWithWhatWouldBeRight) {
  const auto messages = shared_.share(kLender, kGuestModel, pages(descriptor_limit() / 4 + 1));
  ASSERT_FALSE(messages);
  EXPECT_EQ(messages.error().code, Code::kResourceExhausted);
  EXPECT_NE(messages.error().message.find("LimitNOFILE"), std::string::npos);
  EXPECT_EQ(shared_.size(), 0U);
  const auto most = pages(descriptor_limit() / 4);
  EXPECT_TRUE(shared_.share(kLender, kGuestModel, most));
  EXPECT_TRUE(shared_.share(kLender, kGuestModel, most)) << "again, for a later life";
}

}  // namespace
}  // namespace heddle::agent
