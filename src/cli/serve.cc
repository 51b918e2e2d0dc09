#include <cstdio>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "api/requests.h"
#include "base/clock.h"
#include "base/file_stamp.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/units.h"
#include "batches/book.h"
#include "cli/given_models.h"
#include "cli/listening.h"
#include "cli/process.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "config/config.h"
#include "gateway/adapter_calls.h"
#include "gateway/gateway.h"
#include "history/usage_store.h"
#include "host/model_files.h"
#include "sandbox/sandbox.h"
#include "solo/loaded_adapters.h"
#include "solo/system.h"
#include "spec/json_writer.h"
#include "store/model_source.h"

namespace heddle::cli {

namespace asio = boost::asio;

namespace {

/// Of this process beside the loop's, with some to spare; each device adds the process of a worker.
constexpr std::size_t kThreads = 16;

/// How often a configuration that is watched is looked at.
constexpr Duration kLookAtConfig = std::chrono::seconds(1);

/// A request for a model waits so long for its source to say what it is.
constexpr Duration kFilesPatience = std::chrono::minutes(1);

/// Reads the text part of a model, wherever its directory is, once its files are known to do no
/// harm. What clients are told names no path of this machine; the log does.
gateway::Gateway::TextOpener text_opener(const std::string& base,
                                         std::shared_ptr<host::ModelFiles> files,
                                         std::shared_ptr<sandbox::Sandbox> sandbox) {
  return [base, files, sandbox](const config::ModelConfig& model)
             -> Result<std::shared_ptr<const gateway::ModelText>> {
    const auto known = files->find(model.id, kFilesPatience);
    if (!known) {
      return known.error();
    }
    const Result<std::filesystem::path> directory =
        known->has_value()
            ? Result<std::filesystem::path>(**known)
            : store::find_model(model.path, store::find_places(base, store::process_environment()));
    if (!directory) {
      log::error("a model's files were not found",
                 {{"model", model.id}, {"why", directory.error().message}});
      return Error{directory.error().code,
                   "the files of the model \"" + model.id +
                       "\" were not found; the server's log says where they were looked for"};
    }
    Result<void> tried = sandbox->try_files(directory->string());
    Result<std::shared_ptr<const gateway::ModelText>> text =
        tried ? gateway::open_model_text(*directory, model.context) : tried.error();
    if (!text) {
      log::error(
          "a model's files cannot be used",
          {{"model", model.id}, {"directory", directory->string()}, {"why", text.error().message}});
    }
    return text;
  };
}

/// Looks up context lengths of models whose files are on this machine already.
std::function<std::int64_t(const config::ModelConfig&)> context_reader(const std::string& base) {
  return [base](const config::ModelConfig& model) {
    const Result<std::filesystem::path> directory =
        store::find_model(model.path, store::find_places(base, store::process_environment()));
    return directory ? gateway::read_context(*directory, model.context) : std::int64_t{0};
  };
}

Result<config::Config> read_config(const ServeOptions& options) {
  if (options.models.empty() && !options.memory.empty()) {
    return Error{.code = Code::kInvalidArgument,
                 .message =
                     "--memory is of models that are named beside it; a configuration has "
                     "devices and host.memory"};
  }
  Result<config::Config> config = options.models.empty()
                                      ? config::load_config(options.config)
                                      : given_models(options.models, options.memory);
  if (!config && config.error().code == Code::kNotFound) {
    return Error{.code = Code::kNotFound,
                 .message = config.error().message + ", or models: heddle serve MODEL..."};
  }
  if (config) {
    if (const Result<void> taken = listen_instead(options.listen, *config); !taken) {
      return taken.error();
    }
  }
  return config;
}

/// Says where the server is and how to talk to it.
void greet(const config::Config& config, const gateway::Gateway& gateway) {
  std::string url;
  for (const config::ListenAddress& address : gateway.addresses()) {
    const bool any = address.host == "0.0.0.0" || address.host == "::";
    const bool v6 = address.host.find(':') != std::string::npos;
    const std::string host = any ? "127.0.0.1" : (v6 ? "[" + address.host + "]" : address.host);
    const bool tls = address.scheme == config::Scheme::kHttps;
    url = (tls ? "https://" : "http://") + host + ":" + std::to_string(address.port);
    std::printf("heddle %s serves on %s\n", version_text().c_str(), url.c_str());
  }
  std::printf("  page %s/ui/\n", url.c_str());
  for (const config::DeviceConfig& device : config.devices) {
    std::printf("  device %s: %s\n", device.name.c_str(), format_bytes(device.memory).c_str());
  }
  for (const config::ModelConfig& model : config.models) {
    std::printf("  model %s%s%s\n",
                model.id.c_str(),
                model.description.empty() ? "" : ": ",
                printable(model.description).c_str());
  }
  if (!config.models.empty()) {
    const config::ModelConfig& first = config.models.front();
    spec::JsonWriter body;
    body.begin_object().key("model").string(first.id).key("messages").begin_array().begin_object();
    body.key("role").string("user").key("content");
    body.string(first.example.empty() ? "Hello" : first.example);
    body.end_object().end_array().end_object();
    const std::string key = config.api_keys.empty() ? "" : " -H 'Authorization: Bearer KEY'";
    std::string quoted;
    for (const char c : body.text()) {
      quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    }
    std::printf(
        "try\n  curl %s/v1/chat/completions%s -H 'Content-Type: application/json' -d '%s'\n",
        url.c_str(),
        key.c_str(),
        quoted.c_str());
  }
  std::fflush(stdout);
}

/// What the file says in vain.
void warn_of(const config::Config& config) {
  for (const std::string& warning : config.warnings) {
    log::warning(warning);
  }
  if (config.cluster) {
    log::warning(
        "cluster has no effect here: this server is alone; want heddle manager, gateway and agent");
  }
  for (const std::string& warning : open_doors(config)) {
    log::warning(warning);
  }
}

/// What keys have used, where there is a folder for what outlives the process; null: nothing is
/// kept.
std::shared_ptr<history::UsageStore> open_usage(const std::string& directory) {
  if (directory.empty()) {
    return nullptr;
  }
  Result<std::unique_ptr<history::UsageStore>> store = history::UsageStore::open(directory);
  if (!store) {
    log::warning("what keys use is not kept", {{"why", store.error().message}});
    return nullptr;
  }
  return std::move(*store);
}

std::vector<spec::KeyUsage> past_usage(const std::shared_ptr<history::UsageStore>& store) {
  if (store == nullptr) {
    return {};
  }
  Result<std::vector<spec::KeyUsage>> past = store->since(0);
  if (!past) {
    log::warning("what keys have used cannot be read", {{"why", past.error().message}});
    return {};
  }
  return std::move(*past);
}

std::function<void(const std::vector<spec::KeyUsage>&)> usage_keeper(
    const std::shared_ptr<history::UsageStore>& store) {
  if (store == nullptr) {
    return nullptr;
  }
  return [store](const std::vector<spec::KeyUsage>& used) {
    if (const Result<void> added = store->add(used); !added) {
      log::warning("what keys have used was not kept", {{"why", added.error().message}});
    }
  };
}

/// The files and batches of clients; null where there is no folder for them, or it cannot be had.
std::shared_ptr<batches::Book> open_batches(const config::Config& config) {
  if (config.data_dir.empty()) {
    return nullptr;
  }
  Result<std::unique_ptr<batches::Book>> book =
      batches::Book::open(config.data_dir + "/batches", {.bytes = config.batches.disk});
  if (!book) {
    log::warning("there are no batches", {{"why", book.error().message}});
    return nullptr;
  }
  return std::move(*book);
}

/// The parts of a running server. Loop thread.
class Server final : public Service {
 public:
  Server(asio::io_context& loop, const ServeOptions& options, config::Config config)
      : loop_(loop), options_(options), file_(config), config_(std::move(config)) {}

  /// Threads of the gateway may wait for files.
  ~Server() override {
    if (system_) {
      system_->files()->end();
    }
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  Result<void> start() {
    Result<std::unique_ptr<solo::System>> system =
        solo::System::create(loop_.get_executor(), config_, metrics_);
    if (!system) {
      return system.error();
    }
    system_ = std::move(system).value();
    const std::shared_ptr<history::UsageStore> usage = open_usage(config_.data_dir);
    Result<std::unique_ptr<gateway::Gateway>> gateway = gateway::Gateway::start(
        loop_,
        *system_,
        metrics_,
        config_,
        {.open_text = text_opener(config_.directory, system_->files(), sandbox_),
         .grammars = sandbox_,
         .read_context = context_reader(config_.directory),
         .version = version_text(),
         .now = steady_now,
         .keep_usage = usage_keeper(usage),
         .past_usage = past_usage(usage),
         .batches = open_batches(config_),
         .adapters = adapter_calls()});
    if (!gateway) {
      return gateway.error();
    }
    gateway_ = std::move(gateway).value();
    system_->on_models([this] { gateway_->reload(config_); });
    if (options_.watch_config && options_.models.empty()) {
      watch();
    }
    // Once the loop runs: whoever reads it may send a signal at once.
    asio::post(loop_, [this] { greet(config_, *gateway_); });
    return {};
  }

  void reload() override {
    in_turn([this] { take_file(); });
  }

  void end(Duration patience, std::function<void()> done) override {
    gateway_->drain(patience, [this, done = std::move(done)] {
      // Whatever still runs was given up by the gateway; engines get their time to end.
      system_->drain(steady_now(), done);
    });
  }

 private:
  /// Takes over the configuration when its file has changed.
  void watch() {
    watch_timer_.expires_after(kLookAtConfig);
    watch_timer_.async_wait([this](const boost::system::error_code& stopped) {
      if (stopped) {
        return;
      }
      const FileStamp now = stamp_of(options_.config);
      if (now != stamp_ && now != FileStamp{}) {  // An editor may have it gone for a moment.
        stamp_ = now;
        reload();
      }
      watch();
    });
  }

  /// Configurations are taken over one at a time, each on what the one before has left.
  void in_turn(std::function<void()> change) {
    changes_.push_back(std::move(change));
    if (changes_.size() == 1) {
      changes_.front()();
    }
  }
  /// The change that is under way has ended, perhaps within itself.
  void next_turn() {
    asio::post(loop_, [alive = std::weak_ptr(alive_)] {
      const std::shared_ptr<Server*> self = alive.lock();
      if (self == nullptr) {
        return;
      }
      std::deque<std::function<void()>>& changes = (*self)->changes_;
      changes.pop_front();
      if (!changes.empty()) {
        changes.front()();
      }
    });
  }

  /// What the file says now, with the adapters that were loaded.
  void take_file() {
    Result<config::Config> read = read_config(options_);
    if (!read) {
      log::error("the configuration was not reloaded", {{"why", read.error().message}});
      next_turn();
      return;
    }
    config::Config both = *read;
    solo::LoadedAdapters adapters = adapters_;
    for (const std::string& gone : adapters.lay_over(both)) {
      log::warning("an adapter that was loaded goes with the reload", {{"adapter", gone}});
    }
    take_over(std::move(both), [this, file = std::move(*read), adapters](const Result<void>& done) {
      if (!done) {
        log::error("the configuration was not reloaded", {{"why", done.error().message}});
        return;
      }
      file_ = file;
      adapters_ = adapters;
      warn_of(config_);
      log::info("configuration reloaded", {{"models", config_.models.size()}});
    });
  }

  /// Ends the turn when all parts have the configuration, or none.
  void take_over(config::Config next, std::function<void(const Result<void>&)> done) {
    const auto shared = std::make_shared<config::Config>(std::move(next));
    system_->reconfigure(*shared, [this, shared, done = std::move(done)](Result<void> taken) {
      if (taken) {
        config_ = *shared;
        gateway_->reload(config_);
      }
      done(taken);
      next_turn();
    });
  }

  using Done = std::function<void(Result<void>)>;

  gateway::AdapterCalls adapter_calls() {
    return {.load =
                [this](api::LoadAdapterRequest request, Done done) {
                  in_turn([this, request = std::move(request), done = std::move(done)] {
                    load_adapter(request, done);
                  });
                },
            .unload =
                [this](std::string name, Done done) {
                  in_turn([this, name = std::move(name), done = std::move(done)] {
                    change_adapters(adapters_.without(file_, name), "adapter unloaded", name, done);
                  });
                }};
  }

  void load_adapter(const api::LoadAdapterRequest& request, const Done& done) {
    config::LoadedAdapter adapter{
        .name = request.name, .directory = request.path, .base = request.base};
    const auto plan = adapters_.with(file_, adapter, request.in_place);
    if (!plan) {
      change_adapters(plan.error(), "", request.name, done);
      return;
    }
    system_->find_adapter(
        plan->base,
        file_.adapters.directories,
        request.path,
        [this, adapter, in_place = request.in_place, done](
            const Result<std::string>& found) mutable {
          if (!found) {
            change_adapters(found.error(), "", adapter.name, done);
            return;
          }
          adapter.directory = *found;
          change_adapters(
              adapters_.with(file_, adapter, in_place), "adapter loaded", adapter.name, done);
        });
  }

  /// Takes over what was planned, if it can be, and ends the turn.
  void change_adapters(Result<solo::LoadedAdapters::Plan> plan,
                       const std::string& what,
                       const std::string& name,
                       const Done& done) {
    if (!plan) {
      log::warning("an adapter was not changed",
                   {{"adapter", name}, {"why", plan.error().message}});
      done(plan.error());
      next_turn();
      return;
    }
    take_over(plan->config,
              [this, adapters = plan->adapters, what, name, done](const Result<void>& taken) {
                if (taken) {
                  adapters_ = adapters;
                  log::info(what, {{"adapter", name}});
                }
                done(taken);
              });
  }

  asio::io_context& loop_;
  const ServeOptions& options_;
  FileStamp stamp_ = stamp_of(options_.config);
  asio::steady_timer watch_timer_{loop_};
  config::Config file_;    ///< As it was read last,
  config::Config config_;  ///< and with the adapters that were loaded since.
  solo::LoadedAdapters adapters_{};
  std::deque<std::function<void()>> changes_{};  ///< The first is under way.
  Metrics metrics_{};
  std::shared_ptr<sandbox::Sandbox> sandbox_ = std::make_shared<sandbox::Sandbox>();
  std::unique_ptr<solo::System> system_{};
  std::unique_ptr<gateway::Gateway> gateway_{};
  std::shared_ptr<Server*> alive_ = std::make_shared<Server*>(this);
};

}  // namespace

int serve(const ServeOptions& options) {
  const Result<config::Config> config = read_config(options);
  if (!config) {
    return fail(config.error());
  }
  return run_process({.what = "the server",
                      .threads = kThreads + config->devices.size(),
                      .log_level = config->log_level,
                      .log_format = config->log_format,
                      .patience = config->shutdown_timeout,
                      .start = [&](asio::io_context& loop) -> Result<std::unique_ptr<Service>> {
                        warn_of(*config);
                        auto server = std::make_unique<Server>(loop, options, *config);
                        if (const Result<void> begun = server->start(); !begun) {
                          return begun.error();
                        }
                        return std::unique_ptr<Service>(std::move(server));
                      }});
}

}  // namespace heddle::cli
