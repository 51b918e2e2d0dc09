#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "base/check.h"
#include "base/clock.h"
#include "base/test_places.h"
#include "config/engine_config.h"
#include "external/engine_body.h"
#include "external/proc.h"
#include "http/test_server.h"

#include <stdlib.h>
#include <unistd.h>

namespace heddle::external {

using namespace std::chrono_literals;
using http::free_port;
using http::keep;
using http::run;

/// Runs the loop until `done`, for a minute at most; whether it is.
inline bool run_until(boost::asio::io_context& loop, const std::function<bool()>& done) {
  const Instant deadline = steady_now() + 1min;
  while (!done() && steady_now() < deadline) {
    loop.restart();
    loop.run_for(10ms);
  }
  return done();
}

/// Waits for what other processes do, for a minute at most.
inline bool comes_true(const std::function<bool()>& done) {
  const Instant deadline = steady_now() + 1min;
  while (!done() && steady_now() < deadline) {
    std::this_thread::sleep_for(2ms);
  }
  return done();
}

/// Whether a process runs now.
inline bool runs(pid_t pid) {
  const auto facts = process_facts(pid);
  return facts && facts->state != 'Z' && facts->state != 'X';
}

/// Neither there nor a zombie.
inline bool gone(pid_t pid) {
  return comes_true([pid] { return !runs(pid); });  // What was killed ends in its own time.
}

/// A directory that goes with the object.
class Scratch {
 public:
  Scratch() {
    std::string pattern = (std::filesystem::temp_directory_path() / "heddle-XXXXXX").string();
    HEDDLE_CHECK(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

/// tests/engines/engine.py with these flags, listening at a free port.
inline config::EngineConfig engine_config(const Scratch& scratch,
                                          const std::vector<std::string>& flags = {}) {
  config::EngineConfig config;
  config.upstream.port = free_port();
  config.command = {"python3",
                    places::source("tests/engines/engine.py"),
                    "--port",
                    std::to_string(config.upstream.port),
                    "--name",
                    "alpha",
                    "--directory",
                    scratch.path(),
                    "--pid-file",
                    scratch / "pids"};
  config.command.insert(config.command.end(), flags.begin(), flags.end());
  config.suspend = {spec::SuspendLevel::kStop};
  config.start_timeout = 1min;
  config.stop_timeout = 20s;
  return config;
}

/// All processes of an engine that was started with engine_config().
inline std::vector<pid_t> engine_pids(const Scratch& scratch) {
  HEDDLE_CHECK(comes_true([&] { return std::filesystem::exists(scratch / "pids"); }));
  std::vector<pid_t> pids;
  const std::string text = read_small_file(scratch / "pids");
  for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
    pids.push_back(std::stoi(text.substr(at)));
  }
  return pids;
}

/// An engine that runs without any of this library's doing but its start.
class RunningEngine {
 public:
  explicit RunningEngine(const std::vector<std::string>& flags = {})
      : config(engine_config(scratch, flags)) {
    address = config.upstream;
    body = make_body(loop.get_executor(),
                     {.model = "alpha", .config = config, .blocking_pool = blocking_pool});
    HEDDLE_CHECK(run(loop, body->begin(1min)).has_value());
  }

  Scratch scratch{};
  boost::asio::io_context loop{1};
  std::shared_ptr<BlockingPool> blocking_pool = std::make_shared<BlockingPool>(2);
  config::EngineConfig config;
  HttpAddress address{};
  std::unique_ptr<EngineBody> body{};
};

}  // namespace heddle::external
