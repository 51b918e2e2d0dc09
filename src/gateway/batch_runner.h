#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "base/result.h"
#include "base/time.h"
#include "batches/book.h"
#include "batches/input.h"
#include "batches/records.h"
#include "config/config.h"
#include "gateway/batch_turns.h"
#include "gateway/http_exchange.h"
#include "gateway/kept_exchange.h"
#include "gateway/signal.h"
#include "gateway/task.h"

namespace heddle::gateway {

struct Context;

/// A batch that is not over.
struct OpenBatch {
  batches::BatchRecord record{};
  batches::Input input{};
  bool looked_through = false;                     ///< `input` and what follows are known.
  std::vector<std::deque<std::size_t>> pending{};  ///< Lines to be asked, by Input::models.
  std::size_t pending_count = 0;
  std::size_t running = 0;
  std::map<std::size_t, int> attempts{};  ///< Of lines that are to be asked once more.
  Instant rests_until{};                  ///< None of its lines begins before.
  Instant disk_rests_until{};             ///< Nor is anything else done with it.

  [[nodiscard]] Instant begins_at() const { return std::max(rests_until, disk_rests_until); }
  void put(std::size_t line, bool first);
  /// Of this model; one is pending.
  std::size_t take(std::size_t model);
};

/// A line that runs.
struct LineRun {
  std::shared_ptr<OpenBatch> batch{};
  std::size_t line = 0;
  std::string model{};                       ///< As the line calls it.
  std::unique_ptr<KeptExchange> exchange{};  ///< Null until the line was read.
  bool called_back = false;

  void call_back();
};

/// Runs the lines of batches when nobody else needs the devices. A process that begins where
/// another ended goes on with what that had: a line that has an answer is not asked again. Loop
/// thread.
class BatchRunner {
 public:
  /// Answers the request of a line as if it had come over a connection.
  using Ask = std::function<Task<void>(std::shared_ptr<Context>, HttpExchange&)>;

  BatchRunner(boost::asio::io_context& loop, std::shared_ptr<batches::Book> book, Ask ask);

  /// Takes over the owners that there are, what batches may take, and devices. Batches of others
  /// fail.
  void assign(std::map<std::string, Principal> owners, const config::Config& config);

  [[nodiscard]] const std::shared_ptr<batches::Book>& book() const { return book_; }

  /// Takes up a batch that the book has.
  void add(batches::BatchRecord record);
  /// A batch that is not over, as it is now; null where there is none.
  [[nodiscard]] const batches::BatchRecord* find(const std::string& id) const;
  /// Ends a batch: its lines that run are called back, and no further ones begin.
  void cancel(const std::string& id, std::int64_t now_s);

  /// Runs batches as long as `context` serves; once.
  static Task<void> run(std::shared_ptr<Context> context);

 private:
  struct Choice {
    std::shared_ptr<OpenBatch> batch{};
    std::size_t model = 0;
  };

  static Task<void> recover(std::shared_ptr<Context> context);
  static Task<void> advance(std::shared_ptr<Context> context, std::shared_ptr<OpenBatch> batch);
  static Task<void> look_through(std::shared_ptr<Context> context,
                                 std::shared_ptr<OpenBatch> batch);
  static Task<void> end(std::shared_ptr<Context> context,
                        std::shared_ptr<OpenBatch> batch,
                        batches::State state);
  static Task<void> fail_rest(std::shared_ptr<Context> context, std::shared_ptr<OpenBatch> batch);
  static Task<void> run_line(std::shared_ptr<Context> context, std::shared_ptr<LineRun> run);
  static Task<void> ask_line(std::shared_ptr<Context> context, std::shared_ptr<LineRun> run);
  static Task<void> keep_answer(std::shared_ptr<Context> context,
                                std::shared_ptr<LineRun> run,
                                std::string custom_id,
                                KeptAnswer answer);

  void yield_to_clients(Context& context);
  void begin_lines(const std::shared_ptr<Context>& context);
  [[nodiscard]] std::vector<ModelUse> uses(Context& context) const;
  [[nodiscard]] std::optional<Choice> choose(const Context& context,
                                             const std::vector<ModelUse>& uses) const;
  void call_back(const OpenBatch& batch);
  /// The line is to be asked once more, after a while; false where that has been done often enough.
  static bool put_off(LineRun& run, Instant now);
  [[nodiscard]] std::shared_ptr<OpenBatch> find_open(const std::string& id) const;

  std::shared_ptr<batches::Book> book_;
  Ask ask_;
  Signal signal_;
  config::BatchesConfig limits_{};
  std::set<std::string> for_engines_{};  ///< Devices that models of our own cannot be on.
  std::map<std::string, Principal> owners_{};
  std::vector<std::shared_ptr<OpenBatch>> batches_{};  ///< By age.
  std::vector<std::shared_ptr<LineRun>> running_{};
  std::size_t turn_ = 0;  ///< Of the batches, whose lines are looked at first.
};

}  // namespace heddle::gateway
