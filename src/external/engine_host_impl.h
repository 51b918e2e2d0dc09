#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/check.h"
#include "core/hearing.h"
#include "external/engine_host.h"
#include "external/event.h"
#include "external/kv_control.h"
#include "policy/engine_watchdog.h"

namespace heddle::external {

/// The state of an EngineHost. Starting, suspending and ending are in engine_host.cc, looks at
/// engines that run in engine_watch.cc.
class EngineHost::Impl : public std::enable_shared_from_this<EngineHost::Impl> {
 public:
  Impl(const boost::asio::any_io_executor& executor, EngineHostSetup setup, Handlers handlers)
      : executor_(executor),
        setup_(std::move(setup)),
        handlers_(std::move(handlers)),
        blocking_pool_(std::make_shared<BlockingPool>(kThreads)),
        sampling_(executor),
        ending_(executor) {}

  void prepare();
  void set_engines(core::ConfigureEngines configure, std::vector<ConfiguredEngine> engines);
  void hear(core::EnginesEvent event);
  void close();

  [[nodiscard]] bool hosts(ModelId model) const { return engines_.contains(model); }
  [[nodiscard]] const core::EnginesCore& core() const { return core_; }
  [[nodiscard]] std::vector<core::EngineStatus> engines() const {
    std::vector<core::EngineStatus> all = core_.engines();
    for (core::EngineStatus& status : all) {
      status.hung = engines_.at(status.model).hung;
    }
    return all;
  }
  [[nodiscard]] std::vector<std::string> troubles() const {
    std::vector<std::string> all;
    for (const auto& [model, entry] : engines_) {
      if (!entry.trouble.empty()) {
        all.push_back("the engine of " + entry.hosted.name + " may hang: " + entry.trouble);
      }
    }
    return all;
  }
  [[nodiscard]] std::optional<HttpAddress> address(ModelId model) const {
    const auto found = engines_.find(model);
    return found == engines_.end() ? std::nullopt
                                   : std::optional(found->second.hosted.config.upstream);
  }
  [[nodiscard]] std::optional<Passage> last_passage(ModelId model) const {
    const auto found = engines_.find(model);
    return found == engines_.end() ? std::nullopt : found->second.passage;
  }
  [[nodiscard]] std::vector<pid_t> processes(ModelId model) const {
    const auto found = engines_.find(model);
    return found == engines_.end() || !found->second.engine ? std::vector<pid_t>()
                                                            : found->second.engine->processes();
  }

 private:
  static constexpr std::size_t kThreads = 4;  ///< For what blocks.

  struct Entry {
    ConfiguredEngine hosted{};
    core::EngineLife life{};
    std::unique_ptr<ExternalEngine> engine{};
    std::shared_ptr<KvControl> kv{};    ///< Of an elastic engine.
    bool busy = false;                  ///< An operation other than stop() is under way.
    bool stopping = false;              ///< stop() is.
    std::optional<std::string> died{};  ///< By itself, and not said yet.
    std::optional<Passage> passage{};
    std::string trouble{};   ///< Why it may hang; empty: it does not.
    std::uint64_t hung = 0;  ///< Times that it was ended for that.
  };

  void execute(const core::Borrow& command) {
    tell([command](const Handlers& handlers) { handlers.on_borrow(command); });
  }
  void execute(const core::Repay& command) {
    tell([command](const Handlers& handlers) { handlers.on_repay(command); });
  }
  void execute(const core::TellManager& command) {
    tell([event = command.event](const Handlers& handlers) { handlers.on_event(event); });
  }
  void execute(const core::StartEngine& command);
  void execute(const core::SuspendEngine& command);
  void execute(const core::ResumeEngine& command);
  void execute(const core::StopEngine& command);
  void execute(const core::SetKvLimit& command);
  void execute(const core::NudgeEngine& command);

  boost::asio::awaitable<void> start(ModelId model, core::EngineLife life);
  boost::asio::awaitable<void> suspend(ModelId model,
                                       core::EngineLife life,
                                       spec::SuspendLevel level);
  boost::asio::awaitable<void> resume(ModelId model, core::EngineLife life);
  boost::asio::awaitable<void> stop(ModelId model, core::EngineLife life);
  boost::asio::awaitable<void> sample();
  boost::asio::awaitable<void> watch(ModelId model, core::EngineLife life);
  boost::asio::awaitable<void> watch_kv(ModelId model, core::EngineLife life);
  boost::asio::awaitable<void> nudge(ModelId model, core::EngineLife life);
  /// The entry while this life of it lasts.
  [[nodiscard]] Entry* living(ModelId model, core::EngineLife life);
  [[nodiscard]] bool is_to_run(const Entry& entry) const;
  static void judge(Entry& entry, const policy::Verdict& verdict);

  /// Runs it on the loop; it keeps this alive.
  void spawn(boost::asio::awaitable<void> work) {
    boost::asio::co_spawn(
        executor_, std::move(work), [self = shared_from_this()](std::exception_ptr e) {
          HEDDLE_CHECK(e == nullptr);
        });
  }
  /// In the order in which it was told, and never from within a call of whoever listens.
  template <class What>
  void tell(What what) {
    boost::asio::post(executor_, [self = shared_from_this(), what = std::move(what)] {
      if (!self->closed_) {
        what(self->handlers_);
      }
    });
  }
  void note(Entry& entry, std::string what, Instant began, const Result<Holding>& holding);
  void died(ModelId model, core::EngineLife life, const std::string& how);
  void say_died(ModelId model);
  void forget_gone();
  [[nodiscard]] std::int64_t pages(std::uint64_t bytes) const {
    return static_cast<std::int64_t>((bytes + setup_.page_bytes - 1) / setup_.page_bytes);
  }

  boost::asio::any_io_executor executor_;
  EngineHostSetup setup_;
  Handlers handlers_;
  EngineTools tools_{};
  std::shared_ptr<BlockingPool> blocking_pool_;
  core::EnginesCore core_{};
  std::map<ModelId, Entry> engines_{};  ///< Removed ones too, until nothing of them is left.
  core::Hearing<core::EnginesCore, core::EnginesEvent, core::EnginesCommand> hearing_{};
  bool closed_ = false;
  boost::asio::steady_timer sampling_;
  Event ending_;
};

}  // namespace heddle::external
