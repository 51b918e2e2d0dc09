#include "serving/request_table.h"

#include <functional>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

namespace heddle::serving {
namespace {

using namespace std::chrono_literals;
using spec::FinishReason;

class Heard final : public core::RequestSink {
 public:
  void on_tokens(const std::vector<core::TokenEvent>& tokens) override {
    for (const core::TokenEvent& token : tokens) {
      heard.push_back(token.token);
    }
    if (on_news) {
      on_news();
    }
  }
  void on_loading(std::uint64_t /*loaded*/, std::uint64_t /*total*/) override {}
  void on_done() override {}
  void on_error(const Error& /*error*/) override {}

  std::vector<TokenId> heard{};
  std::function<void()> on_news{};
};

std::shared_ptr<Heard> add(RequestTable& table, std::uint64_t id, std::size_t choices) {
  auto record = std::make_shared<core::RequestRecord>();
  record->id = RequestId(id);
  record->prompt = {7, 8};
  record->choices.resize(choices);
  auto sink = std::make_shared<Heard>();
  table.add(record, sink);
  return sink;
}

core::TokenEvent token(std::uint64_t request,
                       std::uint32_t choice,
                       std::int64_t position,
                       TokenId id,
                       FinishReason finish = FinishReason::kNone) {
  return {.request = RequestId(request),
          .choice = choice,
          .position = position,
          .token = id,
          .finish = finish};
}

TEST(RequestTable, KnowsWhomAWorkerThatDiedHadBroughtFurther) {
  RequestTable table;
  for (const std::uint64_t id : {1U, 2U, 3U}) {
    (void)add(table, id, 1);
  }
  (void)table.accept({token(1, 0, 0, 65)}, Instant{});
  table.find(RequestId(1))->send_to({DeviceId(0), WorkerEpoch(4)});
  table.find(RequestId(2))->send_to({DeviceId(0), WorkerEpoch(4)});
  table.find(RequestId(3))->send_to({DeviceId(1), WorkerEpoch(4)});
  (void)table.accept({token(2, 0, 0, 66), token(3, 0, 0, 67)}, Instant{});
  EXPECT_EQ(table.lose({DeviceId(0), WorkerEpoch(4)}, Instant(9s)).advanced,
            std::vector{RequestId(2)})
      << "the first has what it had before";
  EXPECT_FALSE(table.find(RequestId(1))->place.has_value());
  EXPECT_EQ(table.find(RequestId(1))->record->restarts, 1);
  EXPECT_EQ(table.find(RequestId(1))->record->incidents,
            (std::vector<core::Incident>{
                {.at = Instant(9s), .kind = core::IncidentKind::kLost, .device = DeviceId(0)}}));
  EXPECT_TRUE(table.find(RequestId(3))->place.has_value());
  EXPECT_TRUE(table.lose({DeviceId(0), WorkerEpoch(4)}, Instant(9s)).requests.empty());
}

TEST(RequestTable, NotesSinceWhenARequestWasPreempted) {
  RequestTable table;
  (void)add(table, 1, 1);
  core::TokenEvent late = token(1, 0, 1, 66);
  late.preempted = 2s;
  (void)table.accept({token(1, 0, 0, 65), late}, Instant(9s));
  EXPECT_EQ(table.find(RequestId(1))->record->incidents,
            (std::vector<core::Incident>{
                {.at = Instant(7s), .kind = core::IncidentKind::kPreempted, .lasted = 2s}}));
}

TEST(RequestTable, AppendsEachTokenOnce) {
  RequestTable table;
  const auto sink = add(table, 1, 1);
  EXPECT_TRUE(table.accept({token(1, 0, 0, 10), token(1, 0, 1, 11)}, Instant(Duration(5))).empty());
  // A worker died and the next one began a little earlier.
  EXPECT_TRUE(table.accept({token(1, 0, 1, 11), token(1, 0, 2, 12)}, Instant(Duration(6))).empty());
  EXPECT_EQ(sink->heard, (std::vector<TokenId>{10, 11, 12}));
  const core::RequestRecord& record = *table.find(RequestId(1))->record;
  EXPECT_EQ(record.generated[0], sink->heard);
  EXPECT_EQ(record.times.first_token, Instant(Duration(5)));
}

TEST(RequestTable, DropsWhatLeavesAGap) {
  RequestTable table;
  const auto sink = add(table, 1, 1);
  (void)table.accept({token(1, 0, 1, 11)}, Instant{});
  EXPECT_TRUE(sink->heard.empty());
}

TEST(RequestTable, IsCompleteWhenAllChoicesAre) {
  RequestTable table;
  (void)add(table, 1, 2);
  EXPECT_TRUE(table.accept({token(1, 0, 0, 10, FinishReason::kStop)}, Instant{}).empty());
  const auto done =
      table.accept({token(1, 0, 1, 99), token(1, 1, 0, 20, FinishReason::kLength)}, Instant{});
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].record->generated[0], std::vector<TokenId>{10}) << "99 came after the end";
  EXPECT_EQ(done[0].record->finished[1], FinishReason::kLength);
  EXPECT_EQ(table.find(RequestId(1)), nullptr);
}

TEST(RequestTable, BearsSinksThatEndRequests) {
  RequestTable table;
  const auto first = add(table, 1, 1);
  const auto second = add(table, 2, 1);
  first->on_news = [&] {
    (void)table.remove(RequestId(1));
    (void)table.remove(RequestId(2));
  };
  const auto done = table.accept(
      {token(1, 0, 0, 10, FinishReason::kStop), token(2, 0, 0, 20, FinishReason::kStop)},
      Instant{});
  EXPECT_TRUE(done.empty());
  EXPECT_TRUE(second->heard.empty()) << "a sink hears nothing after its request was removed";
}

TEST(RequestTable, ReportsTheTimesOfWhatHasEnded) {
  core::RequestRecord record{.id = RequestId(4), .generated = {{1}, {1, 2, 3, 4, 5}}};
  record.times = {.arrived = Instant(Duration(100)), .finished = Instant(Duration(190))};
  EXPECT_EQ(RequestTable::report(record).request, RequestId(4));
  EXPECT_EQ(RequestTable::report(record).ttft, std::nullopt) << "it has had no token";
  record.times.first_token = Instant(Duration(110));
  EXPECT_EQ(RequestTable::report(record).ttft, Duration(10));
  EXPECT_EQ(RequestTable::report(record).tpot, Duration(20)) << "of the longest answer";
  record.generated.pop_back();
  EXPECT_EQ(RequestTable::report(record).tpot, std::nullopt);
}

TEST(RequestTable, ReportsTheTokensOfWhatHasEnded) {
  const core::RequestRecord record{.id = RequestId(4),
                                   .model = ModelId(9),
                                   .prompt = {7, 7, 7},
                                   .generated = {{1}, {1, 2, 3, 4, 5}}};
  EXPECT_EQ(RequestTable::report(record).model, ModelId(9));
  EXPECT_EQ(RequestTable::report(record).prompt_tokens, 3);
  EXPECT_EQ(RequestTable::report(record).answer_tokens, 6) << "of all choices";
}

TEST(RequestTable, SubmitsWhatIsLeftToDo) {
  RequestTable table;
  (void)add(table, 1, 3);
  (void)table.accept({token(1, 0, 0, 10), token(1, 1, 0, 20, FinishReason::kStop)}, Instant{});
  core::RequestRecord& record = *table.find(RequestId(1))->record;
  record.times.arrived = Instant(Duration(100));
  record.client = 77;
  record.cache_salt = "salt";
  record.choices[0].choice = 0;
  record.choices[2].choice = 2;
  const core::Submit submit =
      RequestTable::submission(record, /*due=*/Duration(-10), /*now=*/Instant(Duration(130)));
  EXPECT_EQ(submit.prompt, record.prompt);
  EXPECT_EQ(submit.age, Duration(30));
  EXPECT_EQ(submit.due, Duration(-10));
  EXPECT_EQ(submit.client, 77U);
  EXPECT_EQ(submit.cache_salt, "salt");
  ASSERT_EQ(submit.choices.size(), 2U);
  EXPECT_EQ(submit.choices[0].generated, std::vector<TokenId>{10});
  EXPECT_EQ(submit.choices[1].params.choice, 2U);
}

}  // namespace
}  // namespace heddle::serving
