#include "weave/guest_server.h"

#include <chrono>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weave/test_pair.h"

namespace heddle::weave {
namespace {

using namespace std::chrono_literals;
using test::Pair;

/// What a server says to one layer that was posted.
Result<bool> serve(Pair& pair) {
  return pair.server->serve(Duration{}, 5s);
}

/// One layer is posted, with something wrong; the server reads nothing, says what and closes.
void expect_refused(Pair& pair, const std::string& field) {
  const auto served = serve(pair);
  ASSERT_FALSE(served);
  EXPECT_EQ(served.error().code, Code::kInvalidArgument);
  EXPECT_NE(served.error().message.find(field), std::string::npos) << served.error().message;
  EXPECT_TRUE(pair.area->closed());
  EXPECT_EQ(pair.area->served().get(), 0U);
}

TEST(GuestServer, BlocksOutsideTheLeaseAreNotRead) {
  for (const std::int32_t block : {0, -1, 1 << 30}) {
    Pair pair;
    auto sequences = Pair::sequences();
    sequences[1].blocks[0][1] = block;
    pair.client->begin_step(sequences);
    pair.client->post(pair.rows(0));
    expect_refused(pair, "block 1 of row 1 is " + std::to_string(block));
  }
}

TEST(GuestServer, APageThatIsNoLongerLentIsNotRead) {
  Pair pair;
  pair.client->begin_step(Pair::sequences());
  pair.client->post(pair.rows(0));
  ASSERT_TRUE(serve(pair).value());
  ASSERT_TRUE(pair.client->await(pair.rows(0)));
  pair.server->lend(std::vector<PageId>{});
  pair.client->post(pair.rows(2));  // Of the same step.
  const auto served = serve(pair);
  ASSERT_FALSE(served);
  EXPECT_TRUE(pair.area->closed());
}

TEST(GuestServer, BordersLayersRowsAndTicketsHaveToBePossible) {
  {
    Pair pair;
    auto sequences = Pair::sequences();
    sequences[0].border += 1;
    pair.client->begin_step(sequences);
    pair.client->post(pair.rows(0));
    expect_refused(pair, "the border of row 0");
  }
  for (const std::int64_t layer : {-1, 3}) {
    Pair pair;
    pair.client->begin_step(Pair::sequences());
    pair.client->post(pair.rows(layer));
    expect_refused(pair, "the layer is " + std::to_string(layer));
  }
  for (const std::int64_t rows : {std::int64_t{0}, std::int64_t{5}, INT64_MAX}) {
    Pair pair;
    pair.client->begin_step(Pair::sequences());
    pair.area->job() = {.step = 1, .layer = 0, .rows = rows};
    pair.area->posted().raise(1);
    expect_refused(pair, "rows is " + std::to_string(rows));
  }
  Pair pair;
  pair.area->posted().raise(Ticket::kMask - 3);
  expect_refused(pair, "the ticket");
}

}  // namespace
}  // namespace heddle::weave
