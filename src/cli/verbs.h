#pragma once

#include <optional>
#include <string>
#include <vector>

#include "http/client.h"

/// What `heddle VERB` does. Each function is one verb; it writes to stdout and stderr and returns
/// the exit status: 0, or 1 when it failed and said why.
namespace heddle::cli {

/// Of verbs that talk to a server.
struct ClientOptions {
  std::string url = "127.0.0.1:8080";
  http::Access access{};
  bool json = false;  ///< Print what the server said instead of a table.
};

struct ServeOptions {
  std::string config = "heddle.yaml";
  std::vector<std::string> models{};  ///< Instead of a configuration: cli/given_models.h.
  std::string memory{};               ///< Of these models; empty: as much as usual.
  std::vector<std::string> listen{};  ///< Instead of the configuration's, where not empty.
  bool watch_config = false;          ///< Take it over when its file changes.
};

/// Of the processes of a cluster.
struct NodeOptions {
  std::string config = "heddle.yaml";
  std::string name{};                 ///< Which of its role this one is; empty: as the machine.
  std::vector<std::string> listen{};  ///< Of a gateway: as ServeOptions has it.
  std::string address{};              ///< Of an agent that joins: where others reach it.
};

int serve(const ServeOptions& options);
int manager(const NodeOptions& options);
int gateway(const NodeOptions& options);
int agent(const NodeOptions& options);
int list(const ClientOptions& options);
int ps(const ClientOptions& options);
/// Shows memory, models, decisions and requests as they change, each `every` ("1s"), until a key
/// ends it; once where stdout or stdin is no terminal.
int top(const ClientOptions& options, const std::string& every);
/// How much models are asked for, what was decided lately, and why; of one model or, empty, all.
int explain(const ClientOptions& options, const std::string& model);
/// The hosts of a cluster: which are there, and what they do.
int hosts(const ClientOptions& options);
/// Has a cluster take over the models of this file, and how they are placed; or, with `dry_run`,
/// only says what is wrong with it.
int apply(const ClientOptions& options, const std::string& file, bool dry_run);
/// Has a host take nothing more, and what it has go to others. Without `undo` it waits until the
/// host is empty, unless `wait` is off.
int drain(const ClientOptions& options, const std::string& host, bool undo, bool wait);
int load(const ClientOptions& options, const std::string& model);
int unload(const ClientOptions& options, const std::string& model);
/// A chat on the terminal.
struct RunOptions {
  std::string model{};
  std::string prompt{};  ///< Answered, with what is piped in behind it; empty: what is typed is.
  std::string system{};  ///< Said before everything else.
  std::optional<double> temperature{};  ///< None: the model's own.
};
/// Chats with a model.
int run(const ClientOptions& options, const RunOptions& chat);
int inspect(const std::string& path, bool json);
/// @param listen  As ServeOptions has it.
int config_check(const std::string& file, const std::vector<std::string>& listen);
int config_schema();

/// What is measured, and where that goes.
struct CalibrateOptions {
  std::string config = "heddle.yaml";
  std::string device{};  ///< Of the configuration's; empty: the first.
  std::string model{};   ///< Likewise.
  std::string out{};     ///< Folder for what the simulator reads; empty: only tables are shown.
};
/// Measures a device of a configuration with one of its models.
int calibrate(const CalibrateOptions& options);
/// Prints the version, and which GPUs this machine has or why none.
int version();

/// The version of this program.
[[nodiscard]] std::string version_text();

}  // namespace heddle::cli
