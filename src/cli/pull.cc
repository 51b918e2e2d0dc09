#include "fetch/pull.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <optional>
#include <stop_token>
#include <utility>

#include "base/thread.h"
#include "base/units.h"
#include "cli/pull_command.h"
#include "cli/pull_progress.h"
#include "cli/terminal.h"
#include "fetch/model_cache.h"
#include "spec/json_writer.h"
#include "store/model_source.h"

#include <CLI/CLI.hpp>
#include <unistd.h>

namespace heddle::cli {
namespace {

constexpr std::uint64_t kConnectionsMax = 64;

/// Stops a pull when this process is told to end; a second time ends it at once. Signals reach only
/// its own thread, so it comes before all others.
class SignalStop {
 public:
  SignalStop() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGINT);
    sigaddset(&signals_, SIGTERM);
    (void)::pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
    Result<Thread> thread = Thread::start({.name = "signals"}, [this] { watch(); });
    if (thread) {
      thread_ = std::move(thread).value();
    } else {
      (void)::pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);
    }
  }
  ~SignalStop() { over_ = true; }
  SignalStop(const SignalStop&) = delete;
  SignalStop& operator=(const SignalStop&) = delete;

  [[nodiscard]] std::stop_token token() const { return stop_.get_token(); }

 private:
  void watch() {
    constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 50'000'000};
    while (!over_) {
      if (::sigtimedwait(&signals_, nullptr, &kPause) < 0) {
        continue;
      }
      if (!stop_.request_stop()) {
        ::_exit(1);
      }
    }
  }

  sigset_t signals_{};
  std::stop_source stop_{};
  std::atomic<bool> over_ = false;
  Thread thread_{};  ///< Ends before the rest.
};

/// What was typed, checked.
Result<fetch::PullOptions> read_options(const PullCommandOptions& typed) {
  fetch::PullOptions options;
  options.environment = store::process_environment();
  std::error_code ignored;
  options.places = store::find_places(std::filesystem::current_path(ignored), options.environment);
  if (!typed.budget.empty()) {
    const Result<std::uint64_t> budget = parse_bytes(typed.budget);
    if (!budget) {
      return Error{budget.error().code, "--budget: " + budget.error().message};
    }
    options.budget = *budget;
  }
  if (!typed.rate.empty()) {
    const Result<std::uint64_t> rate = parse_rate(typed.rate);
    if (!rate) {
      return Error{rate.error().code, "--rate: " + rate.error().message};
    }
    options.transfer.bytes_per_second = *rate;
    options.source.http.stall_bytes = 1;  // Slowness is wanted.
  }
  options.transfer.connections = typed.connections;
  return options;
}

std::string state_of(const fetch::CachedModel& model) {
  return model.is_incomplete ? "incomplete" : "";
}

int list_models(const store::ModelPlaces& places, bool json) {
  const std::vector<fetch::CachedModel> models = fetch::cached_models(places);
  if (!json) {
    std::vector<std::vector<std::string>> rows{{"MODEL", "SIZE", "CACHE", "STATE", "FOLDER"}};
    std::uint64_t bytes = 0;
    for (const fetch::CachedModel& model : models) {
      bytes += model.bytes;
      rows.push_back({printable(model.name),
                      format_bytes(model.bytes),
                      model.of_hub ? "hub" : "heddle",
                      state_of(model),
                      model.folder.string()});
    }
    std::printf("%sin all %s\n", format_table(rows).c_str(), format_bytes(bytes).c_str());
    return 0;
  }
  spec::JsonWriter out;
  out.begin_array();
  for (const fetch::CachedModel& model : models) {
    out.begin_object().key("model").string(model.name).key("bytes").integer(model.bytes);
    out.key("cache").string(model.of_hub ? "hub" : "heddle");
    out.key("incomplete")
        .boolean(model.is_incomplete)
        .key("used_s")
        .integer(model.used_ns / 1'000'000'000);
    out.key("folder").string(model.folder.string()).end_object();
  }
  out.end_array();
  std::printf("%s\n", out.text().c_str());
  return 0;
}

/// Fetches one model and tells of it. Returns the exit status.
int pull_one(const std::string& model,
             const fetch::PullOptions& options,
             PullProgress::Form form,
             const std::stop_token& stop) {
  PullProgress progress(model, form);
  Result<fetch::Pulled> pulled = fetch::pull(model, options, progress, stop);
  if (!pulled && pulled.error().code == Code::kCancelled) {
    pulled =
        Error{Code::kCancelled,
              model + ": stopped; what has come is kept, and the same command goes on with it"};
  }
  progress.tell(pulled);
  return pulled ? 0 : fail(pulled.error());
}

}  // namespace

void add_pull_command(CLI::App& app, PullCommandOptions& options, std::function<int()>& chosen) {
  CLI::App* verb = app.add_subcommand("pull", "Fetch models, to where serve finds them by name");
  verb->add_option("model",
                   options.models,
                   "org/name[@revision] of the hub, s3://bucket/prefix, https://host/folder/ or "
                   "file:///folder");
  verb->add_option(
          "--budget",
          options.budget,
          "The most that heddle's own cache may hold: 200GB; what was used longest ago goes")
      ->envname("HEDDLE_CACHE_BUDGET");
  verb->add_option("--rate", options.rate, "The most to fetch in a second: 50MB/s");
  verb->add_option("--connections", options.connections, "Requests at once")
      ->check(CLI::Range(std::uint64_t{1}, kConnectionsMax))
      ->capture_default_str();
  verb->add_flag("--json", options.json, "Print events as JSON, one a line");
  verb->add_flag("--list", options.list, "Show what the caches hold, and fetch nothing");
  verb->callback([&] { chosen = [&] { return pull(options); }; });
}

int pull(const PullCommandOptions& typed) {
  const Result<fetch::PullOptions> options = read_options(typed);
  if (!options) {
    return fail(options.error());
  }
  if (typed.list) {
    return list_models(options->places, typed.json);
  }
  if (typed.models.empty()) {
    return fail({Code::kInvalidArgument,
                 "pull what? want heddle pull org/name, an URL, or --list to see what is there"});
  }
  const PullProgress::Form form = typed.json             ? PullProgress::Form::kJson
                                  : stderr_is_terminal() ? PullProgress::Form::kBars
                                                         : PullProgress::Form::kLines;
  const SignalStop signals;
  int status = 0;
  for (const std::string& model : typed.models) {
    if (!signals.token().stop_requested()) {
      status |= pull_one(model, *options, form, signals.token());
    }
  }
  return signals.token().stop_requested() ? 1 : status;
}

}  // namespace heddle::cli
