#include "rpc/messages.h"

#include <type_traits>
#include <utility>

#include "rpc/convert.h"

namespace heddle::rpc {

namespace {

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

using google::protobuf::RepeatedField;

void pages_to_wire(const std::vector<PageId>& pages, RepeatedField<std::uint64_t>& out) {
  out.Reserve(static_cast<int>(pages.size()));
  for (const PageId page : pages) {
    out.Add(page.value());
  }
}

std::vector<PageId> pages_from_wire(const RepeatedField<std::uint64_t>& in) {
  std::vector<PageId> pages;
  pages.reserve(static_cast<std::size_t>(in.size()));
  for (const std::uint64_t page : in) {
    pages.emplace_back(page);
  }
  return pages;
}

template <class Number>
std::vector<TokenId> tokens_from_wire(const RepeatedField<Number>& in) {
  return {in.begin(), in.end()};
}

// ---- serve to worker ----

void to_wire(const WorkerHello& hello, wire::Hello& out) {
  out.set_device(hello.device.value());
  out.set_epoch(hello.epoch.value());
  out.set_name(hello.name);
  for (const int core : hello.cores) {
    out.add_cores(static_cast<std::uint32_t>(core));
  }
  if (hello.gpu.has_value()) {
    out.set_gpu(static_cast<std::uint32_t>(*hello.gpu));
  }
  out.set_page_bytes(hello.page_bytes);
  pages_to_wire(hello.pages, *out.mutable_pages());
  out.set_load_bytes_per_second(hello.load_bandwidth);
  out.set_pace_step_ns(hello.pace.step.count());
  out.set_pace_token_ns(hello.pace.token.count());
  out.set_step_budget_ns(hello.step.budget.count());
  out.set_max_batch_tokens(hello.step.max_batch_tokens);
  out.set_min_prefill_tokens(hello.step.min_prefill_tokens);
  out.set_log_level(static_cast<std::uint32_t>(hello.log_level));
  out.set_log_json(hello.log_format == log::Format::kJson);
  out.set_event_log(hello.event_log);
  out.set_prefix_cache(hello.prefix_cache);
  out.set_device_pages(hello.device_pages);
  out.set_queue_by_arrival(hello.queue == policy::QueueRule::kArrival);
  out.set_fixed_parts(hello.fixed_parts);
}

WorkerHello from_wire(const wire::Hello& in, WireCheck& check) {
  WorkerHello hello;
  hello.device = DeviceId(in.device());
  hello.epoch = WorkerEpoch(in.epoch());
  hello.name = in.name();
  for (const std::uint32_t core : in.cores()) {
    hello.cores.push_back(check.enumerator(core, 65535, "core"));
  }
  if (in.has_gpu()) {
    hello.gpu = check.enumerator(in.gpu(), 65535, "gpu");
  }
  hello.page_bytes = in.page_bytes();
  hello.pages = pages_from_wire(in.pages());
  hello.load_bandwidth = in.load_bytes_per_second();
  hello.pace.step = Duration(check.count(in.pace_step_ns(), "pace of a step"));
  hello.pace.token = Duration(check.count(in.pace_token_ns(), "pace of a token"));
  hello.step.budget = Duration(check.count(in.step_budget_ns(), "budget of a step"));
  hello.step.max_batch_tokens = check.count(in.max_batch_tokens(), "most tokens of a step");
  hello.step.min_prefill_tokens = check.count(in.min_prefill_tokens(), "least tokens of a chunk");
  hello.log_level = check.enumerator(in.log_level(), log::Level::kError, "log level");
  hello.log_format = in.log_json() ? log::Format::kJson : log::Format::kText;
  hello.event_log = in.event_log();
  hello.prefix_cache = check.count(in.prefix_cache(), "share of the prefix cache");
  hello.device_pages = check.count(in.device_pages(), "pages of the device");
  hello.queue =
      in.queue_by_arrival() ? policy::QueueRule::kArrival : policy::QueueRule::kMooreHodgson;
  hello.fixed_parts = check.count(in.fixed_parts(), "parts of the device");
  return hello;
}

void to_wire(const core::Basis& basis, wire::Basis& out) {
  out.set_epoch(basis.epoch.value());
  out.set_version(basis.version);
}

core::Basis from_wire(const wire::Basis& in) {
  return {.epoch = WorkerEpoch(in.epoch()), .version = in.version()};
}

core::LoadModel from_wire(const wire::LoadModel& in, WireCheck& check) {
  return {.model = ModelId(in.model()),
          .basis = from_wire(in.basis()),
          .source = in.shared() ? core::ImageSource::kShared : core::ImageSource::kGiven,
          .pages = pages_from_wire(in.pages()),
          .image_bytes = in.image_bytes(),
          .ready_bytes = in.ready_bytes(),
          .footprint = from_wire(in.footprint(), check)};
}

core::EvictModel from_wire(const wire::EvictModel& in) {
  return {.model = ModelId(in.model()),
          .basis = from_wire(in.basis()),
          .mode = in.now() ? core::EvictMode::kNow : core::EvictMode::kWhenIdle,
          .pages = pages_from_wire(in.pages())};
}

core::Submit from_wire(const wire::Submit& in, WireCheck& check) {
  core::Submit submit;
  submit.request = RequestId(in.request());
  submit.model = ModelId(in.model());
  submit.prompt = tokens_from_wire(in.prompt());
  for (const wire::SubmitChoice& choice : in.choices()) {
    submit.choices.push_back({.generated = tokens_from_wire(choice.generated()),
                              .params = from_wire(choice.params(), check)});
  }
  submit.age = Duration(check.count(in.age_ns(), "age of a request"));
  submit.due = Duration(in.due_ns());
  submit.priority = in.priority();
  submit.client = in.client();
  submit.cache_salt = in.cache_salt();
  return submit;
}

void to_wire(const core::WorkerMessage& message, wire::ToWorker& out) {
  std::visit(Overloaded{[&out](const core::LoadModel& load) {
                          wire::LoadModel& body = *out.mutable_load();
                          body.set_model(load.model.value());
                          to_wire(load.basis, *body.mutable_basis());
                          body.set_shared(load.source == core::ImageSource::kShared);
                          pages_to_wire(load.pages, *body.mutable_pages());
                          body.set_image_bytes(load.image_bytes);
                          body.set_ready_bytes(load.ready_bytes);
                          rpc::to_wire(load.footprint, *body.mutable_footprint());
                        },
                        [&out](const core::EvictModel& evict) {
                          wire::EvictModel& body = *out.mutable_evict();
                          body.set_model(evict.model.value());
                          to_wire(evict.basis, *body.mutable_basis());
                          body.set_now(evict.mode == core::EvictMode::kNow);
                          pages_to_wire(evict.pages, *body.mutable_pages());
                        },
                        [&out](const core::LendPages& lend) {
                          wire::LendPages& body = *out.mutable_lend();
                          body.set_model(lend.model.value());
                          to_wire(lend.basis, *body.mutable_basis());
                          body.set_count(lend.count);
                        },
                        [&out](const core::GivePages& give) {
                          pages_to_wire(give.pages, *out.mutable_give()->mutable_pages());
                        },
                        [&out](const core::ImageGone& gone) {
                          out.mutable_gone()->set_model(gone.model.value());
                        },
                        [&out](const core::ImageProgress& progress) {
                          out.mutable_progress()->set_model(progress.model.value());
                          out.mutable_progress()->set_bytes(progress.bytes);
                        },
                        [&out](const core::Submit& submit) {
                          wire::Submit& body = *out.mutable_submit();
                          body.set_request(submit.request.value());
                          body.set_model(submit.model.value());
                          body.mutable_prompt()->Assign(submit.prompt.begin(), submit.prompt.end());
                          for (const core::SubmitChoice& choice : submit.choices) {
                            wire::SubmitChoice& entry = *body.add_choices();
                            entry.mutable_generated()->Assign(choice.generated.begin(),
                                                              choice.generated.end());
                            rpc::to_wire(choice.params, *entry.mutable_params());
                          }
                          body.set_age_ns(submit.age.count());
                          body.set_due_ns(submit.due.count());
                          body.set_priority(submit.priority);
                          body.set_client(submit.client);
                          body.set_cache_salt(submit.cache_salt);
                        },
                        [&out](const core::CancelRequest& cancel) {
                          out.mutable_cancel()->set_request(cancel.request.value());
                        },
                        [&out](const core::RecallRequests& recall) {
                          out.mutable_recall()->set_model(recall.model.value());
                          out.mutable_recall()->set_most(recall.most);
                        },
                        [&out](const core::FinishChoice& finish) {
                          out.mutable_finish()->set_request(finish.request.value());
                          out.mutable_finish()->set_choice(finish.choice);
                        },
                        [&out](const core::NoPages& /*none*/) { out.mutable_no_pages(); }},
             message);
}

ToWorker from_wire(const wire::ToWorker& in, WireCheck& check) {
  switch (in.body_case()) {
    case wire::ToWorker::kHello:
      return from_wire(in.hello(), check);
    case wire::ToWorker::kDescribe:
      return ModelDescription{.model = ModelId(in.describe().model()),
                              .name = in.describe().name(),
                              .spec = from_wire(in.describe().spec(), check),
                              .dtype = from_wire(in.describe().dtype(), check),
                              .directory = in.describe().directory()};
    case wire::ToWorker::kJoin:
      if (in.join().ranks() < 2 || in.join().rank() < 0 || in.join().rank() >= in.join().ranks()) {
        check.fail("rank " + std::to_string(in.join().rank()) + " of a group of " +
                   std::to_string(in.join().ranks()));
      }
      return JoinGroup{.model = ModelId(in.join().model()),
                       .rank = in.join().rank(),
                       .ranks = in.join().ranks()};
    case wire::ToWorker::kPeer:
      return MeetPeer{.gpu = static_cast<int>(check.count(in.peer().gpu(), "GPU")),
                      .relays = in.peer().relays()};
    case wire::ToWorker::kLoad:
      return from_wire(in.load(), check);
    case wire::ToWorker::kEvict:
      return from_wire(in.evict());
    case wire::ToWorker::kLend:
      return core::LendPages{.model = ModelId(in.lend().model()),
                             .basis = from_wire(in.lend().basis()),
                             .count = check.count(in.lend().count(), "number of pages to lend")};
    case wire::ToWorker::kGive:
      return core::GivePages{.pages = pages_from_wire(in.give().pages())};
    case wire::ToWorker::kGone:
      return core::ImageGone{ModelId(in.gone().model())};
    case wire::ToWorker::kProgress:
      return core::ImageProgress{ModelId(in.progress().model()), in.progress().bytes()};
    case wire::ToWorker::kSubmit:
      return from_wire(in.submit(), check);
    case wire::ToWorker::kCancel:
      return core::CancelRequest{RequestId(in.cancel().request())};
    case wire::ToWorker::kRecall:
      return core::RecallRequests{.model = ModelId(in.recall().model()),
                                  .most = check.count(in.recall().most(), "requests to recall")};
    case wire::ToWorker::kFinish:
      return core::FinishChoice{RequestId(in.finish().request()), in.finish().choice()};
    case wire::ToWorker::kNoPages:
      return core::NoPages{};
    case wire::ToWorker::kShutdown:
      return Shutdown{};
    case wire::ToWorker::BODY_NOT_SET:
      break;
  }
  check.fail("message to a worker that says nothing known");
  return Shutdown{};
}

// ---- worker to serve ----

void to_wire(const core::TokensProduced& produced, wire::TokensProduced& out) {
  for (const core::TokenEvent& token : produced.tokens) {
    wire::Token& entry = *out.add_tokens();
    entry.set_request(token.request.value());
    entry.set_choice(token.choice);
    entry.set_position(token.position);
    entry.set_token(token.token);
    entry.set_finish(static_cast<std::uint32_t>(token.finish));
    for (const spec::TokenLogprob& one : token.details.logprobs) {
      entry.add_logprob_tokens(one.token);
      entry.add_logprobs(one.logprob);
    }
    entry.mutable_embedding()->Assign(token.details.embedding.begin(),
                                      token.details.embedding.end());
    entry.set_cached_tokens(token.details.cached_tokens);
  }
}

spec::TokenDetails details_from_wire(const wire::Token& in, WireCheck& check) {
  spec::TokenDetails details;
  if (in.logprob_tokens_size() != in.logprobs_size()) {
    check.fail("logprobs of a token that differ in number from their tokens");
    return details;
  }
  for (int i = 0; i < in.logprobs_size(); ++i) {
    details.logprobs.push_back({.token = in.logprob_tokens(i), .logprob = in.logprobs(i)});
  }
  details.embedding.assign(in.embedding().begin(), in.embedding().end());
  details.cached_tokens = check.count(in.cached_tokens(), "cached tokens");
  return details;
}

core::TokensProduced from_wire(const wire::TokensProduced& in, WireCheck& check) {
  core::TokensProduced produced;
  for (const wire::Token& entry : in.tokens()) {
    produced.tokens.push_back(
        {.request = RequestId(entry.request()),
         .choice = entry.choice(),
         .position = check.count(entry.position(), "position of a token"),
         .token = entry.token(),
         .finish = check.enumerator(entry.finish(), spec::FinishReason::kLength, "finish reason"),
         .details = details_from_wire(entry, check)});
  }
  return produced;
}

void to_wire(const core::DeviceReport& report, wire::DeviceReport& out) {
  out.set_version(report.version);
  rpc::to_wire(report.usage, *out.mutable_usage());
  for (const core::ResidentReport& resident : report.models) {
    wire::ResidentReport& entry = *out.add_models();
    entry.set_model(resident.model.value());
    entry.set_residency(static_cast<std::uint32_t>(resident.residency));
    entry.set_kv_pages(resident.kv_pages);
    entry.set_sequences(resident.sequences);
    entry.set_sequences_admitted(resident.sequences_admitted);
    entry.set_complete(resident.complete);
  }
  out.set_pages_wanted(report.pages_wanted);
  out.set_wanted_by(report.wanted_by.value());
  out.set_short_sequences(report.short_sequences);
  out.set_short_pages(report.short_pages);
  out.set_short_model(report.short_model.value());
}

core::DeviceReport from_wire(const wire::DeviceReport& in, WireCheck& check) {
  core::DeviceReport report;
  report.version = in.version();
  report.usage = from_wire(in.usage(), check);
  for (const wire::ResidentReport& entry : in.models()) {
    report.models.push_back(
        {.model = ModelId(entry.model()),
         .residency = check.enumerator(entry.residency(), core::Residency::kDraining, "residency"),
         .kv_pages = check.count(entry.kv_pages(), "KV pages"),
         .sequences = check.count(entry.sequences(), "sequences"),
         .sequences_admitted = check.count(entry.sequences_admitted(), "admitted sequences"),
         .complete = entry.complete()});
  }
  report.pages_wanted = check.count(in.pages_wanted(), "wanted pages");
  report.wanted_by = ModelId(in.wanted_by());
  report.short_sequences = check.count(in.short_sequences(), "sequences short of pages");
  report.short_pages = check.count(in.short_pages(), "pages they are short of");
  report.short_model = ModelId(in.short_model());
  return report;
}

/// What could not be done has one form, whatever it was.
template <class Refusal, class Wire>
void refusal_to_wire(const Refusal& refusal, Wire& out) {
  out.set_model(refusal.model.value());
  out.set_version(refusal.version);
  rpc::to_wire(refusal.reason, *out.mutable_reason());
}

template <class Refusal, class Wire>
Refusal refusal_from_wire(const Wire& in, WireCheck& check) {
  return {.model = ModelId(in.model()),
          .version = in.version(),
          .reason = from_wire(in.reason(), check)};
}

void to_wire(const core::WorkerReport& report, wire::ToServe& out) {
  std::visit(
      Overloaded{[&out](const core::ModelServing& said) {
                   out.mutable_serving()->set_model(said.model.value());
                 },
                 [&out](const core::LoadRefused& said) {
                   refusal_to_wire(said, *out.mutable_load_refused());
                 },
                 [&out](const core::LoadFailed& said) {
                   refusal_to_wire(said, *out.mutable_load_failed());
                 },
                 [&out](const core::EvictRefused& said) {
                   refusal_to_wire(said, *out.mutable_evict_refused());
                 },
                 [&out](const core::ModelEvicted& said) {
                   out.mutable_evicted()->set_model(said.model.value());
                   out.mutable_evicted()->set_exchanged(said.exchanged);
                 },
                 [&out](const core::PagesReturned& said) {
                   out.mutable_returned()->set_model(said.model.value());
                   pages_to_wire(said.pages, *out.mutable_returned()->mutable_pages());
                 },
                 [&out](const core::ImageCopied& said) {
                   out.mutable_copied()->set_model(said.model.value());
                 },
                 [&out](const core::TokensProduced& said) { to_wire(said, *out.mutable_tokens()); },
                 [&out](const core::RequestReturned& said) {
                   out.mutable_request_returned()->set_request(said.request.value());
                   out.mutable_request_returned()->set_recalled(said.recalled);
                 },
                 [&out](const core::RequestFailed& said) {
                   out.mutable_request_failed()->set_request(said.request.value());
                   rpc::to_wire(said.error, *out.mutable_request_failed()->mutable_error());
                 },
                 [&out](const core::DeviceReport& said) { to_wire(said, *out.mutable_report()); }},
      report);
}

void to_wire(const WorkerStats& stats, wire::WorkerStats& out) {
  out.set_steps(stats.steps);
  out.set_late_steps(stats.late_steps);
  out.set_slow_steps(stats.slow_steps);
  out.set_overrun_steps(stats.overrun_steps);
  out.set_busy_ns(stats.busy.count());
  out.set_mapping_ns(stats.mapping.count());
  out.set_copied_bytes(stats.copied_bytes);
  out.set_detoured_bytes(stats.detoured_bytes);
  out.set_relayed_bytes(stats.relayed_bytes);
  out.set_kept_bytes(stats.kept_bytes);
  for (const core::PrefixCounts& counts : stats.prefixes) {
    wire::PrefixCounts& entry = *out.add_prefixes();
    entry.set_model(counts.model.value());
    entry.set_queried_tokens(counts.queried_tokens);
    entry.set_hit_tokens(counts.hit_tokens);
  }
  out.mutable_dropped_pages()->Assign(stats.dropped_pages.begin(), stats.dropped_pages.end());
}

WorkerStats from_wire(const wire::WorkerStats& in, WireCheck& check) {
  WorkerStats stats{.steps = in.steps(),
                    .late_steps = in.late_steps(),
                    .slow_steps = in.slow_steps(),
                    .overrun_steps = in.overrun_steps(),
                    .busy = Duration(check.count(in.busy_ns(), "busy time")),
                    .mapping = Duration(check.count(in.mapping_ns(), "mapping time")),
                    .copied_bytes = in.copied_bytes(),
                    .detoured_bytes = in.detoured_bytes(),
                    .relayed_bytes = in.relayed_bytes(),
                    .kept_bytes = in.kept_bytes()};
  for (const wire::PrefixCounts& entry : in.prefixes()) {
    stats.prefixes.push_back({.model = ModelId(entry.model()),
                              .queried_tokens = entry.queried_tokens(),
                              .hit_tokens = entry.hit_tokens()});
  }
  if (std::cmp_greater(in.dropped_pages_size(), stats.dropped_pages.size())) {
    check.fail("pages of cached prefixes dropped for more reasons than there are");
    return stats;
  }
  std::copy(in.dropped_pages().begin(), in.dropped_pages().end(), stats.dropped_pages.begin());
  return stats;
}

decltype(ToServe::body) body_from_wire(const wire::ToServe& in, WireCheck& check) {
  switch (in.body_case()) {
    case wire::ToServe::kHello: {
      HelloAck ack;
      if (in.hello().has_failure()) {
        ack.failure = from_wire(in.hello().failure(), check);
      }
      return ack;
    }
    case wire::ToServe::kServing:
      return core::ModelServing{ModelId(in.serving().model())};
    case wire::ToServe::kLoadRefused:
      return refusal_from_wire<core::LoadRefused>(in.load_refused(), check);
    case wire::ToServe::kLoadFailed:
      return refusal_from_wire<core::LoadFailed>(in.load_failed(), check);
    case wire::ToServe::kEvictRefused:
      return refusal_from_wire<core::EvictRefused>(in.evict_refused(), check);
    case wire::ToServe::kEvicted:
      return core::ModelEvicted{ModelId(in.evicted().model()), in.evicted().exchanged()};
    case wire::ToServe::kReturned:
      return core::PagesReturned{ModelId(in.returned().model()),
                                 pages_from_wire(in.returned().pages())};
    case wire::ToServe::kCopied:
      return core::ImageCopied{ModelId(in.copied().model())};
    case wire::ToServe::kTokens:
      return from_wire(in.tokens(), check);
    case wire::ToServe::kRequestReturned:
      return core::RequestReturned{.request = RequestId(in.request_returned().request()),
                                   .recalled = in.request_returned().recalled()};
    case wire::ToServe::kRequestFailed:
      return core::RequestFailed{RequestId(in.request_failed().request()),
                                 from_wire(in.request_failed().error(), check)};
    case wire::ToServe::kReport:
      return from_wire(in.report(), check);
    case wire::ToServe::kStats:
      return from_wire(in.stats(), check);
    case wire::ToServe::kBeat:
      return rpc::from_wire(in.beat(), check);
    case wire::ToServe::BODY_NOT_SET:
      break;
  }
  check.fail("message from a worker that says nothing known");
  return HelloAck{};
}

template <class Message>
Result<Message> parse(std::string_view bytes, const char* what) {
  Message message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return Error{Code::kCorrupt,
                 std::to_string(bytes.size()) + " bytes that are no message " + what};
  }
  return message;
}

}  // namespace

std::string encode(const ToWorker& message) {
  wire::ToWorker out;
  std::visit(Overloaded{[&out](const WorkerHello& hello) { to_wire(hello, *out.mutable_hello()); },
                        [&out](const ModelDescription& model) {
                          wire::DescribeModel& body = *out.mutable_describe();
                          body.set_directory(model.directory);
                          body.set_model(model.model.value());
                          body.set_name(model.name);
                          rpc::to_wire(model.spec, *body.mutable_spec());
                          body.set_dtype(rpc::to_wire(model.dtype));
                        },
                        [&out](const JoinGroup& join) {
                          out.mutable_join()->set_model(join.model.value());
                          out.mutable_join()->set_rank(join.rank);
                          out.mutable_join()->set_ranks(join.ranks);
                        },
                        [&out](const MeetPeer& peer) {
                          out.mutable_peer()->set_gpu(static_cast<std::uint32_t>(peer.gpu));
                          out.mutable_peer()->set_relays(peer.relays);
                        },
                        [&out](const core::WorkerMessage& body) { to_wire(body, out); },
                        [&out](const Shutdown&) { (void)out.mutable_shutdown(); }},
             message);
  return out.SerializeAsString();
}

std::string encode(const ToServe& message) {
  wire::ToServe out;
  out.set_epoch(message.epoch.value());
  std::visit(Overloaded{[&out](const HelloAck& ack) {
                          wire::HelloAck& body = *out.mutable_hello();
                          if (ack.failure.has_value()) {
                            rpc::to_wire(*ack.failure, *body.mutable_failure());
                          }
                        },
                        [&out](const core::WorkerReport& report) { to_wire(report, out); },
                        [&out](const WorkerStats& stats) { to_wire(stats, *out.mutable_stats()); },
                        [&out](const Beat& beat) { rpc::to_wire(beat, *out.mutable_beat()); }},
             message.body);
  return out.SerializeAsString();
}

Result<ToWorker> decode_to_worker(std::string_view bytes) {
  const Result<wire::ToWorker> in = parse<wire::ToWorker>(bytes, "to a worker");
  if (!in) {
    return in.error();
  }
  WireCheck check;
  ToWorker message = from_wire(*in, check);
  if (check.failure().has_value()) {
    return *check.failure();
  }
  return message;
}

Result<ToServe> decode_to_serve(std::string_view bytes) {
  const Result<wire::ToServe> in = parse<wire::ToServe>(bytes, "from a worker");
  if (!in) {
    return in.error();
  }
  WireCheck check;
  ToServe message{.epoch = WorkerEpoch(in->epoch()), .body = body_from_wire(*in, check)};
  if (check.failure().has_value()) {
    return *check.failure();
  }
  return message;
}

}  // namespace heddle::rpc
