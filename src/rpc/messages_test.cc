#include "rpc/messages.h"

#include <tuple>

#include <boost/pfr.hpp>
#include <gtest/gtest.h>

#include "base/json_line.h"
#include "base/rng.h"
#include "base/test_fill.h"
#include "base/wire.h"
#include "rpc/link_fields.h"

namespace heddle::rpc {
namespace {

/// One of every message, no field at its default.
std::vector<ToWorker> every_to_worker() {
  return {WorkerHello{
              .device = DeviceId(3),
              .epoch = WorkerEpoch(4),
              .name = "cpu3",
              .cores = {0, 5},
              .gpu = 2,
              .page_bytes = 65536,
              .pages = {PageId(9), PageId(2)},
              .load_bandwidth = 1000,
              .pace = {.step = Duration(20), .token = Duration(21), .context = Duration(25)},
              .step = {.budget = Duration(22), .max_batch_tokens = 23, .min_prefill_tokens = 24},
              .log_level = log::Level::kWarning,
              .log_format = log::Format::kJson,
              .event_log = "/var/log/events.worker.3.4",
              .prefix_cache = 60,
              .device_pages = 70,
              .queue = policy::QueueRule::kArrival,
              .fixed_parts = 3,
              .kv_pages = 1},
          ModelDescription{
              .model = ModelId(5), .name = "m", .spec = {.layers = 2}, .dtype = spec::DType::kF32},
          JoinGroup{.model = ModelId(5), .rank = 1, .ranks = 4},
          JoinPipe{.model = ModelId(5), .stage = 1, .stages = 3, .shared = true},
          MeetPeer{.gpu = 3, .assists = true},
          MeetRank{.model = ModelId(5), .rank = 2},
          HostGuests{.model = ModelId(4), .pages = {PageId(7), PageId(9)}},
          MeetHost{.model = ModelId(4)},
          ShareGuests{.model = ModelId(4), .pages = {PageId(7), PageId(9)}},
          GuestMemory{.model = ModelId(4), .pages = {PageId(7), PageId(9)}, .device_pages = 10},
          core::WorkerMessage(core::LoadModel{
              .model = ModelId(5),
              .basis = {.epoch = WorkerEpoch(4), .version = 8},
              .source = core::ImageSource::kShared,
              .pages = {PageId(7), PageId(1)},
              .image_bytes = 100,
              .ready_bytes = 50,
              .footprint = {.image_pages = 2,
                            .overhead_pages = 3,
                            .min_kv_pages = 4,
                            .graph_pages = 5,
                            .kv = {{.tokens_per_block = 16, .blocks_per_page = 8, .window = 32}}}}),
          core::WorkerMessage(core::EvictModel{.model = ModelId(5),
                                               .basis = {.epoch = WorkerEpoch(4), .version = 8},
                                               .mode = core::EvictMode::kNow,
                                               .pages = {PageId(70)}}),
          core::WorkerMessage(core::LendPages{
              .model = ModelId(5), .basis = {.epoch = WorkerEpoch(4), .version = 8}, .count = 7}),
          core::WorkerMessage(core::GivePages{.pages = {PageId(3), PageId(1)}}),
          core::WorkerMessage(core::ImageProgress{.model = ModelId(5), .bytes = 75}),
          core::WorkerMessage(core::Submit{
              .request = RequestId(6),
              .model = ModelId(5),
              .prompt = {1, 2, 3},
              .choices = {{.generated = {4}, .params = {.choice = 1, .max_tokens = 9}}},
              .age = Duration(12),
              .due = Duration(-3),
              .priority = -2,
              .client = 1ULL << 63U,
              .cache_salt = "salt",
              .kv = {{.device = DeviceId(9),
                      .model = ModelId(5),
                      .host = {.name = "h2", .address = "10.0.0.2", .port = 7701}}}}),
          core::WorkerMessage(core::CancelRequest{.request = RequestId(6)}),
          core::WorkerMessage(core::RecallRequests{.model = ModelId(5), .most = 3, .begun = true}),
          core::WorkerMessage(core::Gather{.model = ModelId(5), .into = ModelId(6)}),
          core::WorkerMessage(core::FinishChoice{.request = RequestId(6), .choice = 1}),
          core::WorkerMessage(core::NoPages{.model = ModelId(3)}),
          Shutdown{}};
}

std::vector<ToServe> every_to_serve() {
  ledger::PoolUsage usage{.total = 5, .free = 1, .version = 2};
  usage.by_kind[3] = {.reserved = 4, .held = 2};
  const std::vector<core::WorkerReport> reports = {
      core::ModelServing{.model = ModelId(5)},
      core::LoadRefused{
          .model = ModelId(5), .version = 9, .reason = {Code::kResourceExhausted, "no room"}},
      core::LoadFailed{.model = ModelId(5), .version = 9, .reason = {Code::kCorrupt, "lost"}},
      core::EvictRefused{
          .model = ModelId(5), .version = 9, .reason = {Code::kFailedPrecondition, "stale"}},
      core::ModelEvicted{.model = ModelId(5), .exchanged = true},
      core::PagesReturned{.model = ModelId(5), .pages = {PageId(1), PageId(8)}},
      core::GuestsReturned{.model = ModelId(5),
                           .pages = {PageId(1)},
                           .failure = Error{Code::kFailedPrecondition, "no way there"}},
      core::GuestsShared{.model = ModelId(5),
                         .pages = {PageId(1), PageId(8)},
                         .failure = Error{Code::kResourceExhausted, "no memory"}},
      core::ImageCopied{.model = ModelId(5)},
      core::TokensProduced{.tokens = {{.request = RequestId(6),
                                       .choice = 1,
                                       .position = 7,
                                       .token = 8,
                                       .finish = spec::FinishReason::kLength,
                                       .details = {.cached_tokens = 9}}}},
      core::RequestReturned{.request = RequestId(6), .recalled = true},
      core::KvMoved{.model = ModelId(5), .tokens = 48, .computed = 3, .request = RequestId(6)},
      core::RequestFailed{.request = RequestId(6), .error = {Code::kInvalidArgument, "too long"}},
      core::DeviceReport{.version = 3,
                         .usage = usage,
                         .models = {{.model = ModelId(5),
                                     .residency = core::Residency::kServing,
                                     .kv_pages = 2,
                                     .sequences = 3,
                                     .sequences_admitted = 1,
                                     .complete = true}},
                         .pages_wanted = 4,
                         .wanted_by = ModelId(5),
                         .short_sequences = 6,
                         .short_pages = 7,
                         .short_model = ModelId(8)}};
  std::vector<ToServe> all = {
      {.epoch = WorkerEpoch(4), .body = HelloAck{}},
      {.epoch = WorkerEpoch(4), .body = HelloAck{.failure = Error{Code::kUnavailable, "no"}}},
      {.epoch = WorkerEpoch(4),
       .body = WorkerStats{.steps = 1,
                           .late_steps = 2,
                           .slow_steps = 1,
                           .overrun_steps = 1,
                           .busy = Duration(3),
                           .mapping = Duration(4),
                           .copied_bytes = 5,
                           .peer_load_bytes = 6,
                           .peer_assist_bytes = 7,
                           .prefixes = {{ModelId(5), 7, 6}},
                           .dropped_pages = {1, 2, 3, 4}}},
      {.epoch = WorkerEpoch(4),
       .body = Beat{.threads = {{.name = "engine",
                                 .doing = policy::Doing::kStep,
                                 .progress = 8,
                                 .expected = Duration(9)},
                                {.name = "mapper", .doing = policy::Doing::kCopy}}}}};
  for (const core::WorkerReport& report : reports) {
    all.push_back({.epoch = WorkerEpoch(4), .body = report});
  }
  return all;
}

TEST(Messages, ToAWorkerComeBackAsTheyWere) {
  for (const ToWorker& sent : every_to_worker()) {
    const std::string bytes = encode(sent);
    const Result<ToWorker> got = decode_to_worker(bytes);
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_EQ(got->index(), sent.index());
    EXPECT_EQ(encode(*got), bytes);
  }
  const auto load = std::get<core::LoadModel>(std::get<core::WorkerMessage>(every_to_worker()[10]));
  const Result<ToWorker> got = decode_to_worker(encode(core::WorkerMessage(load)));
  EXPECT_EQ(std::get<core::LoadModel>(std::get<core::WorkerMessage>(*got)), load);
}

TEST(Messages, AHelloKeepsItsFields) {
  const auto sent = std::get<WorkerHello>(every_to_worker()[0]);
  const Result<ToWorker> decoded = decode_to_worker(encode(sent));
  ASSERT_TRUE(decoded);
  const auto& got = std::get<WorkerHello>(*decoded);
  const auto fields = [](const WorkerHello& h) {
    return std::tuple(h.device,
                      h.epoch,
                      h.name,
                      h.cores,
                      h.gpu,
                      h.page_bytes,
                      h.pages,
                      h.load_bandwidth,
                      h.step.budget,
                      h.step.max_batch_tokens,
                      h.step.min_prefill_tokens,
                      h.log_level,
                      h.log_format,
                      h.event_log,
                      h.prefix_cache,
                      h.queue,
                      h.fixed_parts,
                      h.device_pages);
  };
  EXPECT_EQ(fields(got), fields(sent));
  EXPECT_EQ(got.pace, sent.pace);
}

TEST(Messages, FromAWorkerComeBackAsTheyWere) {
  for (const ToServe& sent : every_to_serve()) {
    const std::string bytes = encode(sent);
    const Result<ToServe> got = decode_to_serve(bytes);
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_EQ(got->epoch, sent.epoch);
    EXPECT_EQ(got->body.index(), sent.body.index());
    EXPECT_EQ(encode(*got), bytes);
    if (const auto* stats = std::get_if<WorkerStats>(&sent.body)) {
      EXPECT_EQ(std::get<WorkerStats>(got->body), *stats);
    }
    if (const auto* beat = std::get_if<Beat>(&sent.body)) {
      EXPECT_EQ(std::get<Beat>(got->body), *beat);
    }
  }
}

TEST(Messages, AreRefusedWhenTheySayNothing) {
  EXPECT_EQ(decode_to_worker("").error().message, "message: it says nothing");
  EXPECT_EQ(decode_to_serve("").error().message, "message ToServe.body: it says nothing");
}

TEST(Messages, NameNoMorePagesThanDescriptorsGoBesideThem) {
  const std::vector<PageId> nine(9, PageId(3));
  EXPECT_FALSE(decode_to_worker(encode(ShareGuests{.model = ModelId(4), .pages = nine})));
  EXPECT_FALSE(decode_to_worker(
      encode(GuestMemory{.model = ModelId(4), .pages = nine, .device_pages = 10})));
  EXPECT_FALSE(decode_to_worker(
      encode(GuestMemory{.model = ModelId(4), .pages = {PageId(10)}, .device_pages = 10})))
      << "a page that the other GPU does not have";
}

template <class T>
void expect_all_fields() {
  EXPECT_EQ(type_of<T>().fields.size(), boost::pfr::tuple_size_v<T>) << type_of<T>().name;
}

TEST(Messages, NoFieldIsLeftOut) {
  expect_all_fields<WorkerHello>();
  expect_all_fields<ModelDescription>();
  expect_all_fields<JoinGroup>();
  expect_all_fields<MeetPeer>();
  expect_all_fields<MeetRank>();
  expect_all_fields<HostGuests>();
  expect_all_fields<MeetHost>();
  expect_all_fields<ShareGuests>();
  expect_all_fields<GuestMemory>();
  expect_all_fields<HelloAck>();
  expect_all_fields<WorkerStats>();
  expect_all_fields<Beat>();
  expect_all_fields<ToServe>();
  expect_all_fields<Pace>();
  expect_all_fields<core::PrefixCounts>();
  expect_all_fields<policy::StepOptions>();
  expect_all_fields<policy::ThreadPulse>();
  expect_all_fields<spec::ModelSpec>();
  expect_all_fields<spec::RopeScaling>();
  expect_all_fields<spec::Shard>();
  expect_all_fields<spec::PipeStage>();
  expect_all_fields<PipeSlice>();
  expect_all_fields<PipeStep>();
  expect_all_fields<PipeFollower>();
  expect_all_fields<PipeKv>();
  expect_all_fields<KvAsk>();
  expect_all_fields<KvGiven>();
}

std::string line_of(const Type& type, const void* value) {
  std::string line;
  write_json_line(type, value, line);
  return line;
}

TEST(Messages, KeepEveryFieldOfAll) {
  const Type& type = type_of<ToWorker>();
  for (std::size_t i = 0; i < type.alternatives.size(); ++i) {
    ToWorker sent;
    test::Filler(i).fill(*type.alternatives[i], type.choose(&sent, i));
    const Result<ToWorker> got = decode_to_worker(encode(sent));
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_EQ(line_of(type, &*got), line_of(type, &sent));
  }
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    ToServe sent;
    test::Filler(seed).fill(type_of<ToServe>(), &sent);
    const Result<ToServe> got = decode_to_serve(encode(sent));
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_EQ(line_of(type_of<ToServe>(), &*got), line_of(type_of<ToServe>(), &sent));
    ToStage passed;
    test::Filler(seed).fill(type_of<ToStage>(), &passed);
    const Result<ToStage> read = decode_to_stage(encode(passed));
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(line_of(type_of<ToStage>(), &*read), line_of(type_of<ToStage>(), &passed));
  }
}

TEST(Messages, SurviveAnyBytes) {
  const std::uint64_t seed = 0xb17e5;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Rng rng(seed);
  std::vector<std::string> sent;
  for (const ToWorker& message : every_to_worker()) {
    sent.push_back(encode(message));
  }
  for (const ToServe& message : every_to_serve()) {
    sent.push_back(encode(message));
  }
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = sent[rng.below(sent.size())];
    for (std::uint64_t flips = 1 + rng.below(4); flips > 0 && !bytes.empty(); --flips) {
      bytes[rng.below(bytes.size())] = static_cast<char>(rng.below(256));
    }
    bytes.resize(rng.below(bytes.size() + 1));
    refused += decode_to_worker(bytes) ? 0 : 1;
    refused += decode_to_serve(bytes) ? 0 : 1;
  }
  EXPECT_GT(refused, 10000) << "bytes that mean nothing must be refused";
}

}  // namespace
}  // namespace heddle::rpc
