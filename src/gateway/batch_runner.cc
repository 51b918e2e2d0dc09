#include "gateway/batch_runner.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/log.h"
#include "batches/answered.h"
#include "batches/line.h"
#include "batches/line_file.h"
#include "core/background.h"
#include "gateway/context.h"

namespace heddle::gateway {

using batches::BatchRecord;
using batches::Book;
using batches::State;

namespace {

/// Between two looks at who needs the devices, while there are batches.
constexpr Duration kLook = 100ms;
/// The same for files that expire, while there are none.
constexpr Duration kSweep = 60s;
/// A client that waits for so long is not to wait for lines as well.
constexpr Duration kLate = 300ms;
/// How often a line is asked whose model could not answer, and the pause after the first time,
/// which doubles.
constexpr int kAttempts = 6;
constexpr Duration kPause = 1s;
/// After the disk did not take something.
constexpr Duration kDiskPause = 10s;

std::int64_t now_s() {
  return wall_clock_ms() / 1000;
}

/// What came of looking through a batch's file.
struct Looked {
  batches::Input input{};
  std::unordered_set<std::size_t> done{};
  batches::Counts counts{};
  std::optional<Error> error{};
};

/// Reads what has an answer already, then the file of requests; writes down which lines are wrong.
Result<void> look(Book& book, const BatchRecord& record, Looked& looked) {
  for (const std::string* file : {&record.output, &record.errors}) {
    const Result<batches::Answered> answered = batches::recover_answers(book.path_of(*file));
    if (!answered) {
      return answered.error();
    }
    const auto before = static_cast<std::int64_t>(looked.done.size());
    looked.done.insert(answered->lines.begin(), answered->lines.end());
    const std::int64_t news = static_cast<std::int64_t>(looked.done.size()) - before;
    (file == &record.output ? looked.counts.completed : looked.counts.failed) += news;
  }
  std::string wrong;
  const auto on_fault = [&](std::size_t line, const std::string& name, const batches::Fault& why) {
    if (looked.done.insert(line).second) {
      wrong += batches::fault_line(record.id, line, name, why);
      ++looked.counts.failed;
    }
  };
  Result<batches::Input> input =
      batches::look_through(book.path_of(record.input), record.endpoint, on_fault);
  if (!input) {
    return input.error();
  }
  looked.counts.total = static_cast<std::int64_t>(input->lines.size());
  looked.input = std::move(*input);
  return wrong.empty() ? Result<void>() : book.write(record, true, wrong);
}

/// Lines of a batch that were not asked, as they stand in its file of errors.
Result<std::string> expired_lines(const Book& book, const OpenBatch& batch) {
  std::string text;
  for (const std::deque<std::size_t>& lines : batch.pending) {
    for (const std::size_t line : lines) {
      const batches::Input::Entry& entry = batch.input.lines[line];
      const Result<std::string> asked =
          batches::read_piece(book.path_of(batch.record.input), entry.offset, entry.bytes);
      if (!asked) {
        return asked.error();
      }
      text += batches::fault_line(
          batch.record.id,
          line,
          batches::read_line(*asked, batch.record.endpoint).request.custom_id,
          {.code = "batch_expired", .message = "the line was not run within 24 hours"});
    }
  }
  return text;
}

/// Whether the model may answer the same another time.
bool may_be_asked_again(int status) {
  return status == 429 || status == 502 || status == 503 || status == 504;
}

void warn_of_disk(const BatchRecord& batch, const Error& why) {
  log::warning("a batch could not be written down", {{"batch", batch.id}, {"why", why.message}});
}

}  // namespace

void OpenBatch::put(std::size_t line, bool first) {
  std::deque<std::size_t>& lines = pending[input.lines[line].model];
  first ? lines.push_front(line) : lines.push_back(line);
  ++pending_count;
}

std::size_t OpenBatch::take(std::size_t model) {
  const std::size_t line = pending[model].front();
  pending[model].pop_front();
  --pending_count;
  return line;
}

void LineRun::call_back() {
  called_back = true;
  if (exchange != nullptr) {
    exchange->call_back();
  }
}

BatchRunner::BatchRunner(boost::asio::io_context& loop, std::shared_ptr<Book> book, Ask ask)
    : book_(std::move(book)), ask_(std::move(ask)), signal_(loop) {}

void BatchRunner::assign(std::map<std::string, Principal> owners, const config::Config& config) {
  owners_ = std::move(owners);
  limits_ = config.batches;
  book_->set_bytes_max(limits_.disk);
  for_engines_.clear();
  for (const config::DeviceConfig& device : config.devices) {
    if (!config::runs_models(device)) {
      for_engines_.insert(device.name);
    }
  }
  signal_.notify();
}

void BatchRunner::add(BatchRecord record) {
  auto batch = std::make_shared<OpenBatch>();
  batch->record = std::move(record);
  batches_.push_back(std::move(batch));
  signal_.notify();
}

std::shared_ptr<OpenBatch> BatchRunner::find_open(const std::string& id) const {
  const auto found = std::ranges::find_if(
      batches_, [&id](const std::shared_ptr<OpenBatch>& batch) { return batch->record.id == id; });
  return found == batches_.end() ? nullptr : *found;
}

const BatchRecord* BatchRunner::find(const std::string& id) const {
  const std::shared_ptr<OpenBatch> batch = find_open(id);
  return batch == nullptr ? nullptr : &batch->record;
}

void BatchRunner::cancel(const std::string& id, std::int64_t at_s) {
  const std::shared_ptr<OpenBatch> batch = find_open(id);
  if (batch != nullptr && batch->record.state < State::kFinalizing) {
    batch->record.enter(State::kCancelling, at_s);
    call_back(*batch);
    signal_.notify();
  }
}

void BatchRunner::call_back(const OpenBatch& batch) {
  for (const std::shared_ptr<LineRun>& run : running_) {
    if (run->batch.get() == &batch) {
      run->call_back();
    }
  }
}

// --- The life of a batch ---

Task<void> BatchRunner::run(std::shared_ptr<Context> context) {
  if (context->serving == nullptr) {
    co_return;  // The gateway went before the loop came to this.
  }
  BatchRunner& self = *context->batches;
  context->clients.watch([&self] { self.signal_.notify(); });
  co_await recover(context);
  while (context->serving != nullptr) {
    const std::vector<std::shared_ptr<OpenBatch>> all = self.batches_;
    for (const std::shared_ptr<OpenBatch>& batch : all) {
      co_await advance(context, batch);
      if (context->serving == nullptr) {
        co_return;
      }
    }
    self.yield_to_clients(*context);
    self.begin_lines(context);
    if (self.batches_.empty()) {
      std::function<void()> sweep = [book = self.book_] {
        if (const Result<void> swept = book->remove_expired(now_s()); !swept) {
          log::warning("files that expired were not removed", {{"why", swept.error().message}});
        }
      };
      co_await context->pool.run(std::move(sweep));
    }
    if (context->serving != nullptr) {
      const Duration patience = self.batches_.empty() ? kSweep : kLook;
      co_await self.signal_.wait(patience);
    }
  }
}

Task<void> BatchRunner::recover(std::shared_ptr<Context> context) {
  BatchRunner& self = *context->batches;
  std::optional<Result<std::vector<BatchRecord>>> left;
  std::function<void()> read = [&left, book = self.book_] { left = book->unfinished(); };
  co_await context->pool.run(std::move(read));
  if (!*left) {
    log::warning("batches cannot be read", {{"why", left->error().message}});
    co_return;
  }
  for (BatchRecord& record : **left) {
    if (self.find(record.id) == nullptr) {  // Else it has just come.
      self.add(std::move(record));
    }
  }
}

/// Does what is next for a batch, where that is not to run its lines.
Task<void> BatchRunner::advance(std::shared_ptr<Context> context,
                                std::shared_ptr<OpenBatch> batch) {
  BatchRunner& self = *context->batches;
  BatchRecord& record = batch->record;
  if (context->now() < batch->disk_rests_until) {
    co_return;
  }
  if (!batch->looked_through) {
    co_await look_through(context, batch);
    co_return;
  }
  const bool gone = !self.owners_.contains(record.owner);
  const bool late = now_s() >= record.expires_s;
  const bool cancelled = record.state == State::kCancelling;
  if (gone || late || cancelled) {
    self.call_back(*batch);
  }
  if (batch->running > 0) {
    co_return;
  }
  if (cancelled) {
    co_await end(context, batch, State::kCancelled);
  } else if (gone) {
    record.code = "invalid_api_key";
    record.message = "the API key that made this batch is not known any more";
    co_await end(context, batch, State::kFailed);
  } else if (batch->pending_count == 0) {
    record.enter(State::kFinalizing, now_s());
    co_await end(context, batch, State::kCompleted);
  } else if (late) {
    co_await fail_rest(context, batch);
  }
}

Task<void> BatchRunner::look_through(std::shared_ptr<Context> context,
                                     std::shared_ptr<OpenBatch> batch) {
  BatchRunner& self = *context->batches;
  Looked looked;
  std::function<void()> work = [&looked, book = self.book_, record = batch->record] {
    if (const Result<void> done = look(*book, record, looked); !done) {
      looked.error = done.error();
    }
  };
  co_await context->pool.run(std::move(work));
  if (context->serving == nullptr) {
    co_return;
  }
  BatchRecord& record = batch->record;
  if (looked.error && looked.error->code != Code::kInvalidArgument) {
    warn_of_disk(record, *looked.error);
    batch->disk_rests_until = context->now() + kDiskPause;
    co_return;
  }
  batch->looked_through = true;
  record.counts = looked.counts;
  if (looked.error) {
    record.code = "invalid_file";
    record.message = looked.error->message;
    co_await end(context, batch, State::kFailed);
    co_return;
  }
  batch->input = std::move(looked.input);
  batch->pending.resize(batch->input.models.size());
  for (std::size_t line = 0; line < batch->input.lines.size(); ++line) {
    if (batch->input.lines[line].bytes > 0 && !looked.done.contains(line)) {
      batch->put(line, false);
    }
  }
  if (record.state != State::kValidating) {
    co_return;
  }
  record.enter(State::kInProgress, now_s());
  Result<void> kept;
  std::function<void()> keep = [&kept, book = self.book_, copy = record] {
    kept = book->keep(copy);
  };
  co_await context->pool.run(std::move(keep));
  if (!kept) {
    warn_of_disk(record, kept.error());  // It is looked through again after a restart.
  }
}

Task<void> BatchRunner::end(std::shared_ptr<Context> context,
                            std::shared_ptr<OpenBatch> batch,
                            State state) {
  BatchRunner& self = *context->batches;
  BatchRecord record = batch->record;
  Result<void> ended;
  std::function<void()> finish = [&record, &ended, state, book = self.book_] {
    ended = book->finish(record, state, now_s());
  };
  co_await context->pool.run(std::move(finish));
  if (!ended) {
    warn_of_disk(record, ended.error());
    batch->disk_rests_until = context->now() + kDiskPause;
    co_return;
  }
  batch->record = std::move(record);
  std::erase(self.batches_, batch);
  log::info("a batch is over",
            {{"batch", batch->record.id},
             {"state", batches::name(state)},
             {"completed", batch->record.counts.completed},
             {"failed", batch->record.counts.failed}});
}

/// The time of a batch has passed: its other lines fail.
Task<void> BatchRunner::fail_rest(std::shared_ptr<Context> context,
                                  std::shared_ptr<OpenBatch> batch) {
  BatchRunner& self = *context->batches;
  Result<void> written;
  std::function<void()> write = [&written, &batch, book = self.book_] {
    const Result<std::string> text = expired_lines(*book, *batch);
    written = text ? book->write(batch->record, true, *text) : Result<void>(text.error());
  };
  co_await context->pool.run(std::move(write));
  if (context->serving == nullptr) {
    co_return;
  }
  if (!written) {
    warn_of_disk(batch->record, written.error());
    batch->disk_rests_until = context->now() + kDiskPause;
    co_return;
  }
  batch->record.counts.failed += static_cast<std::int64_t>(batch->pending_count);
  batch->pending.assign(batch->pending.size(), {});
  batch->pending_count = 0;
  co_await end(context, batch, State::kExpired);
}

// --- Whose turn it is ---

std::vector<ModelUse> BatchRunner::uses(Context& context) const {
  std::map<std::string, DeviceId> devices;
  std::vector<DeviceId> ours;
  for (const auto& [device, name] : device_names(*context.serving)) {
    devices[name] = device;
    if (!for_engines_.contains(name)) {
      ours.push_back(device);
    }
  }
  std::vector<ModelUse> all;
  const Instant now = context.now();
  for (const core::ModelStatus& status : context.serving->models()) {
    const std::shared_ptr<CatalogModel> model = context.catalog.find(status.id);
    if (model == nullptr) {
      continue;
    }
    ModelUse use{.id = status.id,
                 .here = status.residency == core::Residency::kWarm ||
                         status.residency == core::Residency::kServing,
                 .on = status.peers,
                 .clients = model->queue.size() - model->queue.size_of(kBackgroundShare),
                 .quiet = now - status.last_used};
    if (status.device) {
      use.on.push_back(*status.device);
    }
    std::vector<std::string> names = model->config.devices;
    if (model->config.engine) {
      names.assign(1, model->config.engine->device);
    }
    for (const std::string& name : names) {
      if (const auto found = devices.find(name); found != devices.end()) {
        use.may_be.push_back(found->second);
      }
    }
    if (use.may_be.empty()) {
      use.may_be = ours;
    }
    use.late = std::ranges::any_of(context.clients.waiting(), [&](const auto& arrival) {
      const auto times = arrival.times.lock();
      return arrival.model == status.id && times != nullptr && now - times->arrived >= kLate;
    });
    use.lines = std::ranges::count_if(running_, [&](const std::shared_ptr<LineRun>& run) {
      return context.catalog.find(run->model) == model;
    });
    all.push_back(std::move(use));
  }
  return all;
}

void BatchRunner::yield_to_clients(Context& context) {
  if (running_.empty()) {
    return;
  }
  const std::vector<ModelUse> all = uses(context);
  for (const std::size_t model : called_back(all)) {
    for (const std::shared_ptr<LineRun>& run : running_) {
      const std::shared_ptr<CatalogModel> its = context.catalog.find(run->model);
      if (its != nullptr && its->id == all[model].id) {
        run->call_back();
      }
    }
  }
}

/// A batch and which of its models may have a line begin; first those for which nothing has to
/// come.
std::optional<BatchRunner::Choice> BatchRunner::choose(const Context& context,
                                                       const std::vector<ModelUse>& uses) const {
  for (const bool may_come : {false, true}) {
    for (std::size_t i = 0; i < batches_.size(); ++i) {
      const std::shared_ptr<OpenBatch>& batch = batches_[(turn_ + i) % batches_.size()];
      const bool runs = batch->looked_through && batch->record.state == State::kInProgress;
      if (!runs || context.now() < batch->begins_at() || !owners_.contains(batch->record.owner)) {
        continue;
      }
      for (std::size_t model = 0; model < batch->pending.size(); ++model) {
        if (batch->pending[model].empty()) {
          continue;
        }
        const auto known = context.catalog.find(batch->input.models[model]);
        const auto use = std::ranges::find_if(
            uses, [&known](const ModelUse& one) { return known && one.id == known->id; });
        const bool free =
            use == uses.end() ||
            ((use->here || may_come) &&
             may_begin(uses, static_cast<std::size_t>(use - uses.begin()), limits_.quiet));
        if (free) {
          return Choice{.batch = batch, .model = model};
        }
      }
    }
  }
  return std::nullopt;
}

void BatchRunner::begin_lines(const std::shared_ptr<Context>& context) {
  const auto most = static_cast<std::size_t>(limits_.at_once);
  while (!context->draining && !book_->is_full() && running_.size() < most) {
    const std::optional<Choice> chosen = choose(*context, uses(*context));
    if (!chosen) {
      return;
    }
    OpenBatch& batch = *chosen->batch;
    auto run = std::make_shared<LineRun>();
    run->batch = chosen->batch;
    run->line = batch.take(chosen->model);
    run->model = batch.input.models[chosen->model];
    ++batch.running;
    ++turn_;
    running_.push_back(run);
    spawn(context->loop, run_line(context, std::move(run)));
  }
}

// --- A line ---

Task<void> BatchRunner::run_line(std::shared_ptr<Context> context, std::shared_ptr<LineRun> run) {
  if (context->serving == nullptr) {
    co_return;  // The gateway went before the loop came to this.
  }
  co_await ask_line(context, run);
  if (context->serving != nullptr) {
    BatchRunner& self = *context->batches;
    std::erase(self.running_, run);
    --run->batch->running;
    self.signal_.notify();
  }
}

bool BatchRunner::put_off(LineRun& run, Instant now) {
  OpenBatch& batch = *run.batch;
  const int attempt = ++batch.attempts[run.line];
  if (attempt >= kAttempts) {
    return false;
  }
  batch.rests_until = now + kPause * (1 << (attempt - 1));
  batch.put(run.line, true);
  return true;
}

Task<void> BatchRunner::ask_line(std::shared_ptr<Context> context, std::shared_ptr<LineRun> run) {
  BatchRunner& self = *context->batches;
  OpenBatch& batch = *run->batch;
  const auto owner = self.owners_.find(batch.record.owner);
  if (run->called_back || owner == self.owners_.end()) {
    batch.put(run->line, true);
    co_return;
  }
  HttpRequest request{.method = "POST", .path = batch.record.endpoint};
  request.principal = owner->second;
  request.principal.least_priority = core::kBackgroundPriority;
  const QuotaVerdict verdict = context->quotas.admit(request.principal, context->now());
  if (!verdict.admitted) {
    batch.rests_until = context->now() + std::chrono::seconds(verdict.retry_after);
    batch.put(run->line, true);
    co_return;
  }
  const batches::Input::Entry entry = batch.input.lines[run->line];
  Result<std::string> text = std::string();
  std::function<void()> read = [&text, entry, file = self.book_->path_of(batch.record.input)] {
    text = batches::read_piece(file, entry.offset, entry.bytes);
  };
  co_await context->pool.run(std::move(read));
  if (context->serving == nullptr) {
    co_return;
  }
  if (!text || run->called_back) {
    batch.disk_rests_until = text ? Instant{} : context->now() + kDiskPause;
    batch.put(run->line, true);
    co_return;
  }
  batches::Request line = batches::read_line(*text, batch.record.endpoint).request;
  request.headers = {{"Content-Type", "application/json"}};
  request.request_id = batch.record.id + "-" + std::to_string(run->line);
  request.body = std::move(line.body);
  run->exchange = std::make_unique<KeptExchange>(std::move(request));
  co_await self.ask_(context, *run->exchange);
  if (context->serving == nullptr) {
    co_return;
  }
  std::optional<KeptAnswer> answer = run->exchange->take();
  if (run->called_back) {
    batch.put(run->line, true);
    co_return;
  }
  const bool again = !answer || may_be_asked_again(answer->status);
  if (again && context->draining) {
    batch.put(run->line, true);
    co_return;
  }
  if (again && put_off(*run, context->now())) {
    co_return;
  }
  if (!answer) {
    answer = KeptAnswer{.status = 502, .body = R"({"error":{"message":"the answer broke off"}})"};
  }
  co_await keep_answer(context, run, std::move(line.custom_id), std::move(*answer));
}

Task<void> BatchRunner::keep_answer(std::shared_ptr<Context> context,
                                    std::shared_ptr<LineRun> run,
                                    std::string custom_id,
                                    KeptAnswer answer) {
  BatchRunner& self = *context->batches;
  BatchRecord& record = run->batch->record;
  const bool failed = answer.status != 200;
  Result<void> written;
  std::function<void()> write = [&, book = self.book_] {
    const std::string line = batches::answer_line(record.id,
                                                  run->line,
                                                  custom_id,
                                                  answer.status,
                                                  run->exchange->request().request_id,
                                                  std::move(answer.body));
    written = book->write(record, failed, line);
  };
  co_await context->pool.run(std::move(write));
  if (!written) {
    warn_of_disk(record, written.error());
    run->batch->disk_rests_until = context->now() + kDiskPause;
    run->batch->put(run->line, true);
    co_return;
  }
  ++(failed ? record.counts.failed : record.counts.completed);
}

}  // namespace heddle::gateway
