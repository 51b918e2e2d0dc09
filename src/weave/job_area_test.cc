#include "weave/job_area.h"

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "weave/test_pair.h"

#include <fcntl.h>
#include <sys/mman.h>

namespace heddle::weave {
namespace {

using namespace std::chrono_literals;
using test::geometry;
using test::kPageBytes;

TEST(JobArea, TheOtherSideSeesWhatThisOneWrites) {
  const auto mine = JobArea::create(geometry()).value();
  const auto theirs = JobArea::attach(mine->fd()).value();
  mine->table(1)[5] = 77;
  mine->queries()[3] = 1.5F;
  theirs->states()[2] = 2.5F;
  EXPECT_EQ(theirs->table(3)[5], 77) << "by turns";
  EXPECT_EQ(theirs->table(0)[5], 0);
  EXPECT_EQ(theirs->queries()[3], 1.5F);
  EXPECT_EQ(mine->states()[2], 2.5F);
  EXPECT_EQ(theirs->geometry().head_dim, test::kHeadDim);
  mine->close();
  EXPECT_TRUE(theirs->closed());
}

TEST(JobArea, IsAMemoryFileOfThisVersionAndItsSize) {
  const Descriptor file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(JobArea::attach(file.get()).error().code, Code::kInvalidArgument);
  EXPECT_EQ(JobArea::attach(-1).error().code, Code::kInvalidArgument);
  const Descriptor other(::memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(other.get(), 1 << 20), 0);
  ASSERT_EQ(::fcntl(other.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  const auto attached = JobArea::attach(other.get());
  ASSERT_FALSE(attached);
  EXPECT_NE(attached.error().message.find("version"), std::string::npos);
}

TEST(CheckGeometry, RefusesWhatCannotBeServedHereAndSaysWhat) {
  EXPECT_TRUE(check_geometry(geometry(), test::kernels(), kPageBytes));
  const auto refused = [](const std::function<void(Geometry&)>& change, const std::string& field) {
    Geometry g = geometry();
    change(g);
    const auto checked = check_geometry(g, test::kernels(), kPageBytes);
    ASSERT_FALSE(checked) << field;
    EXPECT_EQ(checked.error().code, Code::kInvalidArgument);
    EXPECT_NE(checked.error().message.find(field), std::string::npos) << checked.error().message;
  };
  refused([](Geometry& g) { g.kernels = {"another"}; }, "instruction set is another");
  refused([](Geometry& g) { g.page_bytes = 8192; }, "a page is 8192 bytes");
  refused([](Geometry& g) { g.heads = 5; }, "heads is 5");
  refused([](Geometry& g) { g.kv_heads = 0; }, "kv_heads is 0");
  refused([](Geometry& g) { g.head_dim = 513; }, "head_dim is 513");
  refused([](Geometry& g) { g.border = 0; }, "border is 0");
  refused([](Geometry& g) { g.kv = 3; }, "kv is 3");
  refused([](Geometry& g) { g.layers = 257; }, "layers is 257");
  refused([](Geometry& g) { g.groups = 17; }, "groups is 17");
  refused([](Geometry& g) { g.rows = INT64_MAX; }, "rows is 9223372036854775807");
  refused([](Geometry& g) { g.blocks = -1; }, "blocks is -1");
  refused([](Geometry& g) { g.places[1].group = 2; }, "layer 1's group is 2");
  refused([](Geometry& g) { g.places[2].block_bytes = 8192; }, "layer 2's block is 8192 bytes");
  refused([](Geometry& g) { g.places[0].block_tokens = 1000; }, "1000 tokens");
  refused([](Geometry& g) { g.places[0].value_offset = 2000; }, "is 2000");
  refused([](Geometry& g) { g.places[0].key_offset = -4; }, "is -4");
}

TEST(JobArea, IsNotMadeForAGeometryThatCannotBe) {
  Geometry g = geometry();
  g.rows = 0;
  EXPECT_EQ(JobArea::create(g).error().code, Code::kInvalidArgument);
}

TEST(Ticket, WaitsLookingOrAsleepAndNotForEver) {
  for (const Duration look : {Duration{}, Duration(1s)}) {
    Ticket ticket;
    EXPECT_FALSE(ticket.wait_past(0, look, 5ms));
    std::thread raises([&] {
      while (look == Duration{} && !ticket.sleeps()) {
        std::this_thread::yield();
      }
      ticket.raise(9);
    });
    EXPECT_TRUE(ticket.wait_past(0, look, 10s));
    EXPECT_EQ(ticket.get(), 9U);
    raises.join();
    std::thread closes([&] {
      while (look == Duration{} && !ticket.sleeps()) {
        std::this_thread::yield();
      }
      ticket.close();
    });
    EXPECT_FALSE(ticket.wait_past(9, look, 100s));
    EXPECT_EQ(ticket.get(), 9U);
    closes.join();
  }
}

}  // namespace
}  // namespace heddle::weave
