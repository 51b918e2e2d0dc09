#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include "base/result.h"
#include "base/time.h"
#include "config/engine_config.h"
#include "external/blocking_pool.h"
#include "external/process_set.h"

namespace heddle::external {

/// What an engine runs in: processes of ours, a container, or nothing that we have a hand on. One
/// life: it begins once. Loop thread only.
class EngineBody {
 public:
  /// Ends what runs at once, and waits until it has.
  virtual ~EngineBody() = default;

  /// Starts it. On an error nothing is left of it.
  virtual boost::asio::awaitable<Result<void>> begin(Duration patience) = 0;
  /// Ends it: politely, and when `polite` has passed with SIGKILL. Returns when nothing is left.
  virtual boost::asio::awaitable<void> end(Duration polite) = 0;

  /// What it consists of; null where it is not ours. Valid after begin().
  [[nodiscard]] virtual std::shared_ptr<ProcessSet> processes() const = 0;
  /// How it ended ("exit status 1"), once nothing of it is left, by itself or by end().
  [[nodiscard]] virtual std::optional<std::string> ended() const = 0;
  /// Of what it wrote; for saying why it ended.
  [[nodiscard]] virtual std::vector<std::string> last_lines() const = 0;
};

struct BodySetup {
  std::string model{};  ///< Its id.
  config::EngineConfig config{};
  Grouping grouping = Grouping::kMarked;
  std::string record_directory{};
  std::shared_ptr<BlockingPool> blocking_pool{};
  /// Called once, on the loop, when it has ended by itself and nothing of it is left; not after
  /// end() was called.
  std::function<void(const std::string& how)> on_exit{};
};

/// By what the configuration has: a command, a container or neither.
[[nodiscard]] std::unique_ptr<EngineBody> make_body(const boost::asio::any_io_executor& executor,
                                                    BodySetup setup);

/// An id as the name of a control group or a container may have it: "qwen/7b:x" -> "qwen-7b-x".
[[nodiscard]] std::string safe_label(const std::string& model);

}  // namespace heddle::external
