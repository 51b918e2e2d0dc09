#include "serving/front.h"

#include <functional>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::serving {
namespace {

using spec::FinishReason;
using testing::HasSubstr;

constexpr ModelId kModel{1};
constexpr ModelId kBroken{2};
constexpr ModelId kEngine{3};
constexpr Place kHere{.device = DeviceId(4), .epoch = WorkerEpoch(9)};
constexpr Place kNext{.device = DeviceId(4), .epoch = WorkerEpoch(10)};
constexpr Place kThere{.device = DeviceId(5), .epoch = WorkerEpoch(9)};

class Client final : public core::RequestSink {
 public:
  void on_tokens(const std::vector<core::TokenEvent>& news) override {
    for (const core::TokenEvent& token : news) {
      tokens.push_back(token.token);
    }
  }
  void on_loading(std::uint64_t loaded, std::uint64_t total) override {
    loading.emplace_back(loaded, total);
  }
  void on_done() override { done = true; }
  void on_error(const Error& failed) override { error = failed; }

  std::vector<TokenId> tokens{};
  std::vector<std::pair<std::uint64_t, std::uint64_t>> loading{};
  bool done = false;
  std::optional<Error> error{};
};

class Forwarded final : public core::ExternalSink {
 public:
  void on_waiting(Duration /*since*/) override { ++waits; }
  void on_ready(const core::EngineRoute& route) override { ports.push_back(route.address->port); }
  void on_lost(const Error& error) override { lost.push_back(error.message); }
  void on_error(const Error& error) override { failed.push_back(error.message); }

  int waits = 0;
  std::vector<std::uint16_t> ports{};
  std::vector<std::string> lost{};
  std::vector<std::string> failed{};
};

/// A front between a manager and hosts that note what they are told.
class FrontTest : public testing::Test, public ManagerPort, public HostsPort {
 protected:
  FrontTest() {
    front_.set_models({{kModel, {.image_bytes = 700}},
                       {kBroken, {.failure = Error{Code::kCorrupt, "no such file"}}},
                       {kEngine, {}}});
  }

  void tell(const RequestNews& news) override { told_.push_back(news); }
  [[nodiscard]] std::int64_t tokens_max(ModelId /*model*/) const override { return 10; }
  void send(const Place& place, core::WorkerMessage message) override {
    sent_.emplace_back(place, std::move(message));
  }
  [[nodiscard]] Result<core::EngineRoute> engine_route(ModelId model,
                                                       DeviceId device) const override {
    if (engine_away_) {
      return Error{.code = Code::kUnavailable, .message = "it is elsewhere"};
    }
    return core::EngineRoute{
        .model = model, .host = host_of(device), .address = HttpAddress{.port = 77}};
  }

  void turn() {
    loop_.restart();
    loop_.run();
  }
  std::shared_ptr<Client> start(std::uint64_t id, ModelId model = kModel, std::size_t choices = 1) {
    auto record = std::make_shared<core::RequestRecord>();
    record->id = RequestId(id);
    record->model = model;
    record->prompt = {7, 8, 9};
    record->choices.resize(choices, {.max_tokens = 100});
    auto sink = std::make_shared<Client>();
    records_[id] = record;
    front_.start(record, sink);
    return sink;
  }
  /// What the record of that request tells of it.
  [[nodiscard]] std::vector<core::IncidentKind> incidents(std::uint64_t id) const {
    std::vector<core::IncidentKind> kinds;
    for (const core::Incident& incident : records_.at(id)->incidents) {
      kinds.push_back(incident.kind);
    }
    return kinds;
  }
  /// Has the request run there.
  void dispatch(std::uint64_t id, const Place& place) {
    front_.carry_out(core::Dispatch{
        .request = RequestId(id), .device = place.device, .epoch = place.epoch, .tokens = 10});
  }
  std::shared_ptr<Forwarded> start_external(std::uint64_t id) {
    auto request = std::make_shared<core::ExternalRequest>();
    request->id = RequestId(id);
    request->model = kEngine;
    auto sink = std::make_shared<Forwarded>();
    front_.start_external(request, sink);
    return sink;
  }
  static core::TokenEvent token(std::uint64_t request,
                                std::int64_t position,
                                TokenId id,
                                FinishReason finish = FinishReason::kNone) {
    return {.request = RequestId(request), .position = position, .token = id, .finish = finish};
  }
  /// How many were of this kind.
  template <class T>
  [[nodiscard]] std::int64_t told() const {
    return std::count_if(told_.begin(), told_.end(), [](const RequestNews& news) {
      return std::holds_alternative<T>(news);
    });
  }
  [[nodiscard]] std::string dropped(const std::string& what, int times) {
    return "heddle_misplaced_reports_total{what=\"" + what + "\"} " + std::to_string(times);
  }

  boost::asio::io_context loop_{1};
  Metrics metrics_{};
  std::vector<RequestNews> told_{};
  std::map<std::uint64_t, std::shared_ptr<core::RequestRecord>> records_{};
  std::vector<std::pair<Place, core::WorkerMessage>> sent_{};
  bool engine_away_ = false;  ///< The engine cannot be reached from here.
  Front front_{loop_.get_executor(), *this, *this, metrics_};
};

TEST_F(FrontTest, ARequestIsToldOfFromTheLoopWithWhatFits) {
  const auto sink = start(1);
  EXPECT_TRUE(told_.empty());
  turn();
  ASSERT_EQ(told<core::RequestArrived>(), 1);
  EXPECT_EQ(std::get<core::RequestArrived>(told_[0]).prompt_tokens, 3);
  EXPECT_EQ(std::get<core::RequestArrived>(told_[0]).max_tokens, 7);
}

TEST_F(FrontTest, WhatCannotBeServedFailsAndNobodyHearsOfIt) {
  const auto sink = start(1, kBroken);
  EXPECT_FALSE(sink->error.has_value());
  turn();
  EXPECT_EQ(sink->error->message, "no such file");
  EXPECT_TRUE(told_.empty());
}

TEST_F(FrontTest, ARequestRunsWhereTheManagerSaysToItsEnd) {
  const auto sink = start(1);
  front_.carry_out(core::Hold{.request = RequestId(1)});
  front_.tell_loading(kModel, 350);
  dispatch(1, kHere);
  front_.tell_loading(kModel, 700);
  EXPECT_EQ(sink->loading,
            (std::vector<std::pair<std::uint64_t, std::uint64_t>>{{0, 700}, {350, 700}}))
      << "what runs waits for nothing";
  ASSERT_EQ(sent_.size(), 1U);
  EXPECT_EQ(sent_[0].first, kHere);
  EXPECT_EQ(std::get<core::Submit>(sent_[0].second).request, RequestId(1));

  front_.accept(kHere, {token(1, 0, 65), token(1, 1, 66, FinishReason::kStop)});
  EXPECT_EQ(sink->tokens, (std::vector<TokenId>{65, 66}));
  EXPECT_TRUE(sink->done);
  EXPECT_EQ(told<core::RequestFinished>(), 1);
}

TEST_F(FrontTest, TokensFromElsewhereAreDroppedAndCounted) {
  const auto sink = start(1);
  front_.accept(kHere, {token(1, 0, 64)});
  dispatch(1, kHere);
  front_.accept(kThere, {token(1, 0, 64)});
  front_.accept(kNext, {token(1, 0, 64)});
  EXPECT_TRUE(sink->tokens.empty());
  EXPECT_THAT(metrics_.expose(), HasSubstr(dropped("tokens", 3)));
  front_.accept(kHere, {token(1, 0, 65)});
  EXPECT_EQ(sink->tokens, std::vector<TokenId>{65});
}

TEST_F(FrontTest, AReturnCountsOnceAndFromWhereTheRequestIs) {
  const auto sink = start(1);
  dispatch(1, kHere);
  EXPECT_FALSE(front_.accept(kThere, core::RequestReturned{.request = RequestId(1)}));
  EXPECT_TRUE(front_.accept(kHere, core::RequestReturned{.request = RequestId(1)}));
  EXPECT_FALSE(front_.accept(kHere, core::RequestReturned{.request = RequestId(1)}));
  EXPECT_THAT(metrics_.expose(), HasSubstr(dropped("return", 2)));
  front_.accept(kHere, {token(1, 0, 64)});
  EXPECT_TRUE(sink->tokens.empty()) << "it waits";
  const std::size_t heard = told_.size();
  front_.lose(kHere);
  EXPECT_EQ(told_.size(), heard) << "nothing was there";
  dispatch(1, kThere);
  front_.accept(kThere, {token(1, 0, 65)});
  EXPECT_EQ(sink->tokens, std::vector<TokenId>{65});
}

TEST_F(FrontTest, ARecordTellsWhatTookItsRequestAwayAndWhereItWentOn) {
  using core::IncidentKind;
  (void)start(1);
  dispatch(1, kHere);
  EXPECT_TRUE(incidents(1).empty());
  EXPECT_TRUE(
      front_.accept(kHere, core::RequestReturned{.request = RequestId(1), .recalled = true}));
  dispatch(1, kHere);
  EXPECT_TRUE(front_.accept(kHere, core::RequestReturned{.request = RequestId(1)}));
  dispatch(1, kHere);
  front_.lose(kHere);
  dispatch(1, kThere);
  EXPECT_EQ(incidents(1),
            (std::vector{IncidentKind::kRecalled,
                         IncidentKind::kResumed,
                         IncidentKind::kReturned,
                         IncidentKind::kResumed,
                         IncidentKind::kLost,
                         IncidentKind::kResumed}));
  EXPECT_EQ(records_.at(1)->incidents[4].device, kHere.device);
  EXPECT_EQ(records_.at(1)->incidents[5].device, kThere.device);
}

TEST_F(FrontTest, AFailureCountsFromWhereTheRequestIs) {
  (void)start(1);
  dispatch(1, kHere);
  EXPECT_FALSE(front_.accept(kNext, core::RequestFailed{.request = RequestId(1)}));
  EXPECT_THAT(metrics_.expose(), HasSubstr(dropped("failure", 1)));
  EXPECT_TRUE(front_.accept(kHere, core::RequestFailed{.request = RequestId(1)}));
  EXPECT_FALSE(front_.accept(kHere, core::RequestFailed{.request = RequestId(2)}))
      << "it has ended, which is nothing to count";
  EXPECT_THAT(metrics_.expose(), HasSubstr(dropped("failure", 1)));
}

TEST_F(FrontTest, WhatALifeHadGoesOnElsewhereWithItsTokens) {
  const auto sink = start(1);
  (void)start(2);
  dispatch(1, kHere);
  dispatch(2, kHere);
  front_.accept(kHere, {token(1, 0, 65)});
  front_.lose(kHere);
  const auto& lost = std::get<core::PlaceLost>(told_.back());
  EXPECT_EQ(lost.device, kHere.device);
  EXPECT_EQ(lost.epoch, kHere.epoch);
  EXPECT_EQ(lost.requests, (std::vector{RequestId(1), RequestId(2)}));
  EXPECT_EQ(lost.advanced, std::vector{RequestId(1)}) << "the other had no token";
  front_.accept(kHere, {token(1, 1, 66)});
  dispatch(1, kNext);
  EXPECT_EQ(std::get<core::Submit>(sent_.back().second).choices[0].generated,
            std::vector<TokenId>{65});
  front_.accept(kNext, {token(1, 1, 67)});
  EXPECT_EQ(sink->tokens, (std::vector<TokenId>{65, 67}));
}

TEST_F(FrontTest, AChoiceThatEndsEarlyIsToldWhereItRuns) {
  const auto sink = start(1, kModel, 2);
  dispatch(1, kHere);
  front_.finish_choice(RequestId(1), 0, FinishReason::kStop);
  ASSERT_EQ(sent_.size(), 2U);
  EXPECT_EQ(sent_[1].first, kHere);
  EXPECT_EQ(std::get<core::FinishChoice>(sent_[1].second).choice, 0U);
  front_.finish_choice(RequestId(1), 1, FinishReason::kStop);
  EXPECT_FALSE(sink->done) << "never from within the call";
  turn();
  EXPECT_TRUE(sink->done);
  EXPECT_EQ(told<core::RequestFinished>(), 1);
}

TEST_F(FrontTest, NothingIsHeardOfWhatWasCancelled) {
  const auto sink = start(1);
  front_.cancel(RequestId(1));
  front_.cancel(RequestId(1));
  turn();
  EXPECT_EQ(told<core::RequestCancelled>(), 1);
  dispatch(1, kHere);
  front_.carry_out(core::FailRequest{.request = RequestId(1)});
  EXPECT_TRUE(sent_.empty());
  EXPECT_FALSE(sink->error.has_value());
}

TEST_F(FrontTest, AFailureOfTheManagerEndsARequest) {
  const auto sink = start(1);
  front_.carry_out(core::FailRequest{.request = RequestId(1), .error = {Code::kUnavailable, "no"}});
  EXPECT_EQ(sink->error->message, "no");
  EXPECT_EQ(told<core::RequestFinished>(), 0) << "the manager knows";
}

TEST_F(FrontTest, AnExternalRequestFailsWhereItsEngineCannotBeReached) {
  engine_away_ = true;
  const auto sink = start_external(1);
  dispatch(1, kHere);
  EXPECT_EQ(sink->failed, std::vector<std::string>{"it is elsewhere"});
  EXPECT_TRUE(sink->ports.empty());
  EXPECT_EQ(told<core::RequestCancelled>(), 0) << "not from within the manager's call";
  turn();
  EXPECT_EQ(told<core::RequestCancelled>(), 1) << "the manager has it no longer";
}

TEST_F(FrontTest, AnExternalRequestIsForwardedAgainAfterARetryOrADeath) {
  const auto sink = start_external(1);
  EXPECT_EQ(told<core::RequestArrived>(), 1) << "at once";
  front_.carry_out(core::Hold{.request = RequestId(1)});
  EXPECT_EQ(sink->waits, 1);
  EXPECT_FALSE(front_.silent_since(kEngine).has_value());
  dispatch(1, kHere);
  EXPECT_EQ(sink->ports, std::vector<std::uint16_t>{77});
  EXPECT_TRUE(front_.silent_since(kEngine).has_value());

  front_.retry_external(RequestId(1), false);
  turn();
  EXPECT_EQ(told<core::RequestUnanswered>(), 1);
  dispatch(1, kHere);
  front_.lose_engine(kEngine, {Code::kUnavailable, "signal 9"});
  EXPECT_EQ(sink->lost, std::vector<std::string>{"signal 9"});
  dispatch(1, kHere);
  EXPECT_EQ(sink->ports.size(), 3U);
  front_.finish_external(RequestId(1));
  EXPECT_EQ(told<core::RequestFinished>(), 1);
  EXPECT_TRUE(sent_.empty()) << "the exchange is the gateway's";
}

TEST_F(FrontTest, AnExternalRequestForAModelThatNobodyCanServeFails) {
  front_.set_models({{kEngine, {.failure = Error{Code::kUnavailable, "no host has it"}}}});
  const auto sink = start_external(1);
  turn();
  EXPECT_EQ(sink->failed, std::vector<std::string>{"no host has it"});
  EXPECT_EQ(told<core::RequestArrived>(), 0);
}

TEST_F(FrontTest, AnExternalRequestThatIsDispatchedAgainHasLostItsEngine) {
  const auto sink = start_external(1);
  dispatch(1, kHere);
  dispatch(1, kThere);
  EXPECT_EQ(sink->lost.size(), 1U) << "the manager knew before the connection broke";
  EXPECT_EQ(sink->ports.size(), 2U);
}

TEST_F(FrontTest, WhatIsForwardedIsAmongWhatHasNotEnded) {
  const auto runs = start(2);
  const auto forwarded = start_external(1);
  const auto waits = start_external(3);
  dispatch(1, kHere);
  const std::vector<core::Unfinished> all = front_.unfinished();
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].request.request, RequestId(1));
  EXPECT_EQ(all[0].request.model, kEngine);
  EXPECT_EQ(all[0].device, kHere.device);
  EXPECT_EQ(all[1].request.request, RequestId(2));
  EXPECT_EQ(all[2].request.request, RequestId(3));
  EXPECT_FALSE(all[2].device.has_value());
  front_.retry_external(RequestId(1), true);
  EXPECT_FALSE(front_.unfinished()[0].device.has_value());
  turn();
  const auto* unanswered = std::get_if<core::RequestUnanswered>(&told_.back());
  ASSERT_NE(unanswered, nullptr);
  EXPECT_TRUE(unanswered->cut);
}

TEST_F(FrontTest, TellsANewManagerWhatHasNotEndedAndWhereItIs) {
  const auto runs = start(1);
  const auto waits = start(2);
  const auto done = start(3);
  dispatch(1, kHere);
  dispatch(3, kHere);
  front_.accept(kHere, {token(3, 0, 5, FinishReason::kStop)});
  const std::vector<core::Unfinished> all = front_.unfinished();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].request.request, RequestId(1));
  EXPECT_EQ(all[0].request.prompt_tokens, 3);
  EXPECT_EQ(all[0].request.max_tokens, 7) << "what the device leaves beside the prompt";
  EXPECT_EQ(all[0].device, kHere.device);
  EXPECT_EQ(all[0].epoch, kHere.epoch);
  EXPECT_EQ(all[1].request.request, RequestId(2));
  EXPECT_FALSE(all[1].device.has_value());
}

TEST_F(FrontTest, WhoeverHasARequestForgetsItWhenItEndsOrMoves) {
  const auto cancelled = start(1);
  const auto moved = start(2);
  const auto failed = start(3);
  const auto refused = start(4);
  for (const std::uint64_t id : {1U, 2U, 3U, 4U}) {
    dispatch(id, kHere);
  }
  turn();
  sent_.clear();
  front_.cancel(RequestId(1));
  dispatch(2, kThere);
  front_.carry_out(core::FailRequest{.request = RequestId(3), .error = {Code::kUnavailable, "no"}});
  EXPECT_TRUE(front_.accept(kHere, core::RequestFailed{.request = RequestId(4)}));
  front_.carry_out(core::FailRequest{.request = RequestId(4), .error = {Code::kUnavailable, "no"}});
  std::vector<std::uint64_t> given_up;
  for (const auto& [place, message] : sent_) {
    if (const auto* cancel = std::get_if<core::CancelRequest>(&message)) {
      EXPECT_EQ(place, kHere);
      given_up.push_back(cancel->request.value());
    }
  }
  EXPECT_EQ(given_up, (std::vector<std::uint64_t>{1, 2, 3})) << "the fourth its worker gave up";
}

}  // namespace
}  // namespace heddle::serving
