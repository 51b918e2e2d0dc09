#include <cstdlib>
#include <functional>
#include <iostream>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/nearest.h"
#include "cli/bench_command.h"
#include "cli/certs_command.h"
#include "cli/command_texts.h"
#include "cli/given_models.h"
#include "cli/lab_command.h"
#include "cli/listening.h"
#include "cli/plan_command.h"
#include "cli/pull_command.h"
#include "cli/simulate_command.h"
#include "cli/verbs.h"
#include "sandbox/inside.h"
#include "worker/worker.h"

#include <CLI/CLI.hpp>

namespace heddle::cli {
namespace {

/// The options that verbs which talk to a server share.
void add_client_options(CLI::App& verb, ClientOptions& options) {
  verb.add_option("--url", options.url, "Where the server is")
      ->envname("HEDDLE_HOST")
      ->capture_default_str();
  verb.add_option("--api-key", options.access.api_key, "What opens it")->envname("HEDDLE_API_KEY");
  verb.add_option("--ca", options.access.ca, "PEM file of who vouches for it, over https")
      ->envname("HEDDLE_CA");
  verb.add_flag("--insecure", options.access.insecure, "Over https, do not ask who it is");
}

void add_config_commands(CLI::App& app,
                         std::string& file,
                         std::vector<std::string>& listen,
                         std::function<int()>& chosen) {
  CLI::App* config = app.add_subcommand("config", "Check a configuration");
  config->require_subcommand(1);
  CLI::App* verb = config->add_subcommand("check", "Tell what is wrong with a configuration");
  verb->add_option("file", file, "Configuration file")->capture_default_str();
  verb->add_option("--listen", listen, "Addresses, instead of the configuration's");
  verb->callback([&] { chosen = [&] { return config_check(file, listen); }; });
  verb = config->add_subcommand("schema", "Print the JSON schema of the configuration");
  verb->callback([&] { chosen = [] { return config_schema(); }; });
}

void add_inspect_command(CLI::App& app,
                         std::string& path,
                         bool& json,
                         std::function<int()>& chosen) {
  CLI::App* verb =
      app.add_subcommand("inspect", "Tell what is in a checkpoint and what memory it needs");
  verb->add_option("path", path, "Model directory, safetensors file or config.json")->required();
  verb->add_flag("--json", json, "Print JSON");
  verb->callback([&] { chosen = [&] { return inspect(path, json); }; });
}

void add_calibrate_command(CLI::App& app, CalibrateOptions& options, std::function<int()>& chosen) {
  CLI::App* verb = app.add_subcommand("calibrate", "Measure a device for the simulator");
  verb->add_option("config", options.config, "Configuration file")->capture_default_str();
  verb->add_option("-d,--device", options.device, "Of its devices, this; else the first");
  verb->add_option("-m,--model", options.model, "With this of its models; else the first");
  verb->add_option("-o,--out", options.out, "Folder for what `heddle simulate` reads");
  verb->callback([&] { chosen = [&] { return calibrate(options); }; });
}

void add_serve_command(CLI::App& app, ServeOptions& options, std::function<int()>& chosen) {
  CLI::App* verb = app.add_subcommand("serve", "Serve models");
  CLI::Option* file =
      verb->add_option("-c,--config", options.config, "Configuration file")->capture_default_str();
  CLI::Option* given =
      verb->add_option("what",
                       options.models,
                       "The configuration; or models: GGUF files, directories, names of the hub "
                       "or URLs, each perhaps as NAME=MODEL")
          ->excludes(file);
  verb->add_option("--memory", options.memory, "Of models named here: what they take in all")
      ->needs(given);
  verb->add_option("--listen", options.listen, "Addresses, instead of the configuration's")
      ->allow_extra_args(false);
  verb->add_flag(
      "--watch-config", options.watch_config, "Take the configuration over when its file changes");
  verb->callback([&] {
    if (is_configuration(options.models)) {
      options.config = options.models.front();
      options.models.clear();
    }
    chosen = [&] { return serve(options); };
  });
}

/// The processes of a cluster.
void add_cluster_commands(CLI::App& app, NodeOptions& options, std::function<int()>& chosen) {
  const auto add = [&](const char* name, const char* about, int (*run)(const NodeOptions&)) {
    CLI::App* verb = app.add_subcommand(name, about);
    verb->add_option("-c,--config,config", options.config, "Configuration file")
        ->capture_default_str();
    verb->add_option(
        "-n,--name", options.name, "Which of the cluster's this is; else the machine's name");
    verb->callback([&options, &chosen, run] { chosen = [&options, run] { return run(options); }; });
    return verb;
  };
  add("manager", "Decide for a cluster of hosts", manager);
  add("gateway", "Serve HTTP for a cluster of hosts", gateway)
      ->add_option("--listen", options.listen, "Addresses, instead of the configuration's");
  add("agent", "Be a host of a cluster", agent)
      ->add_option("--address",
                   options.address,
                   "Where the others reach it, if the configuration lists no hosts: host:port");
}

/// Verbs that only look.
void add_listing_commands(CLI::App& app,
                          ClientOptions& client,
                          std::string& model,
                          std::string& every,
                          std::function<int()>& chosen) {
  CLI::App* verb = app.add_subcommand("list", "List the models that a server has");
  add_client_options(*verb, client);
  verb->add_flag("--json", client.json, "Print JSON");
  verb->callback([&] { chosen = [&] { return list(client); }; });

  verb = app.add_subcommand("ps", "List the models that are in memory");
  add_client_options(*verb, client);
  verb->add_flag("--json", client.json, "Print JSON");
  verb->callback([&] { chosen = [&] { return ps(client); }; });

  verb = app.add_subcommand("top", "Show memory, models and requests as they change; q ends it");
  add_client_options(*verb, client);
  verb->add_option("--every", every, "Time between looks")->capture_default_str();
  verb->callback([&] { chosen = [&] { return top(client, every); }; });

  verb = app.add_subcommand("hosts", "List the hosts of a cluster");
  add_client_options(*verb, client);
  verb->add_flag("--json", client.json, "Print JSON");
  verb->callback([&] { chosen = [&] { return hosts(client); }; });

  verb = app.add_subcommand("explain", "Tell what was decided about models lately, and why");
  add_client_options(*verb, client);
  verb->add_flag("--json", client.json, "Print JSON");
  verb->add_option("model", model, "Only what concerns this one");
  verb->callback([&] { chosen = [&] { return explain(client, model); }; });
}

/// What is to become of a cluster.
struct ClusterChange {
  std::string file{};
  bool dry_run = false;
  std::string host{};
  bool undo = false;
  bool no_wait = false;
};

/// Verbs that change a cluster.
void add_change_commands(CLI::App& app,
                         ClientOptions& client,
                         ClusterChange& change,
                         std::function<int()>& chosen) {
  CLI::App* verb = app.add_subcommand("apply", "Have a cluster take over a configuration");
  add_client_options(*verb, client);
  verb->add_option("file", change.file, "With models, and how they are placed")->required();
  verb->add_flag("--dry-run", change.dry_run, "Only say what is wrong with it");
  verb->callback([&] { chosen = [&] { return apply(client, change.file, change.dry_run); }; });

  verb = app.add_subcommand("drain", "Empty a host of a cluster, so that it can be ended");
  add_client_options(*verb, client);
  verb->add_option("host", change.host, "Its name")->required();
  verb->add_flag("--undo", change.undo, "Let it take requests again");
  verb->add_flag("--no-wait", change.no_wait, "Do not wait until it is empty");
  verb->callback(
      [&] { chosen = [&] { return drain(client, change.host, change.undo, !change.no_wait); }; });
}

/// Verbs that have a model do something.
void add_model_commands(CLI::App& app,
                        ClientOptions& client,
                        std::string& model,
                        RunOptions& chat,
                        std::function<int()>& chosen) {
  CLI::App* verb = app.add_subcommand("load", "Load a model");
  add_client_options(*verb, client);
  verb->add_option("model", model, "Its name")->required();
  verb->callback([&] { chosen = [&] { return load(client, model); }; });

  for (const auto& [name, about] : {std::pair("unload", "Unload a model"),
                                    std::pair("stop", "Unload a model, as unload does")}) {
    verb = app.add_subcommand(name, about);
    add_client_options(*verb, client);
    verb->add_option("model", model, "Its name")->required();
    verb->callback([&] { chosen = [&] { return unload(client, model); }; });
  }

  verb = app.add_subcommand("run", "Chat with a model");
  add_client_options(*verb, client);
  verb->add_option("model", chat.model, "Its name")->required();
  verb->add_option("prompt",
                   chat.prompt,
                   "Answer this, with what is piped in behind it, and end; else what is typed is "
                   "answered");
  verb->add_option("--system", chat.system, "What the model is told before everything else");
  verb->add_option("--temperature", chat.temperature, "How freely it draws; 0: not at all");
  verb->callback([&] { chosen = [&] { return run(client, chat); }; });
}

/// What the program says of itself: its version, and what packages put where shells and `man` look.
void add_text_commands(CLI::App& app, std::string& shell, std::function<int()>& chosen) {
  CLI::App* verb = app.add_subcommand("completions", "Print what completes these verbs in a shell");
  verb->add_option("shell", shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  verb->callback([&] {
    chosen = [&] {
      const std::vector<CommandVerb> verbs = command_table(app);
      std::cout << (shell == "bash"  ? bash_completion(verbs)
                    : shell == "zsh" ? zsh_completion(verbs)
                                     : fish_completion(verbs));
      return EXIT_SUCCESS;
    };
  });
  verb = app.add_subcommand("version", "Print the version, and the GPUs of this machine");
  verb->callback([&] { chosen = [] { return version(); }; });
  verb = app.add_subcommand("manual", "Print the page for man, in roff");
  verb->callback([&] {
    chosen = [&] {
      std::cout << manual_page(command_table(app), version_text());
      return EXIT_SUCCESS;
    };
  });
}

/// The processes that serve starts from itself.
void add_started_commands(CLI::App& app, int& fd, std::function<int()>& chosen) {
  CLI::App* verb = app.add_subcommand("worker", "Act for one device; started by serve")->group("");
  verb->add_option("--fd", fd, "Socket to the process that started it")->required();
  verb->callback([&] { chosen = [&]() -> int { worker::run(fd); }; });

  verb = app.add_subcommand("sandbox", "Try grammars and files; started by serve")->group("");
  verb->add_option("--fd", fd, "Socket to the process that started it")->required();
  verb->callback([&] { chosen = [&]() -> int { sandbox::run(fd); }; });
}

/// What to say to who mistyped a verb, of which the parser itself would say that it is missing;
/// empty where `word` is a verb or an option.
std::string unknown_verb(CLI::App& app, std::string_view word) {
  std::set<std::string, std::less<>> listed;
  for (const CLI::App* verb : app.get_subcommands({})) {
    if (verb->get_name() == word) {
      return "";
    }
    if (!verb->get_group().empty()) {
      listed.insert(verb->get_name());
    }
  }
  if (word.starts_with("-")) {
    return "";
  }
  const std::string meant = nearest(word, {listed.begin(), listed.end()});
  return "there is no verb \"" + std::string(word) + "\"; " +
         (meant.empty() ? "" : "did you mean \"" + meant + "\"? ") + "heddle --help lists them";
}

std::vector<const char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<const char*> pointers;
  for (const std::string& word : words) {
    pointers.push_back(word.c_str());
  }
  return pointers;
}

int parse_and_run(int count, char** arguments) {
  CLI::App app("heddle: many language models behind one OpenAI-compatible endpoint", "heddle");
  app.require_subcommand(1);
  app.set_version_flag("--version", "heddle " + version_text());
  std::function<int()> chosen;

  ServeOptions serving;
  add_serve_command(app, serving, chosen);

  NodeOptions node;
  add_cluster_commands(app, node, chosen);

  ClientOptions client;
  std::string model;
  std::string every = "1s";
  add_listing_commands(app, client, model, every, chosen);

  ClusterChange change;
  add_change_commands(app, client, change, chosen);

  RunOptions chat;
  add_model_commands(app, client, model, chat, chosen);

  std::string path;
  add_inspect_command(app, path, client.json, chosen);

  std::string file = "heddle.yaml";
  add_config_commands(app, file, serving.listen, chosen);

  CalibrateOptions measuring;
  add_calibrate_command(app, measuring, chosen);

  SimulateOptions simulation;
  add_simulate_command(app, simulation, chosen);

  PlanOptions planning;
  add_plan_command(app, planning, chosen);

  BenchOptions load;
  add_bench_command(app, load, chosen);

  LabOptions experiment;
  add_lab_command(app, experiment, chosen);

  PullCommandOptions pulling;
  add_pull_command(app, pulling, chosen);

  CertsOptions certificates;
  add_certs_commands(app, certificates, chosen);

  std::string shell;
  add_text_commands(app, shell, chosen);

  int fd = -1;
  add_started_commands(app, fd, chosen);

  if (count == 1) {
    std::cout << app.help();
    return EXIT_SUCCESS;
  }
  if (const std::string problem = unknown_verb(app, arguments[1]); !problem.empty()) {
    std::cerr << "heddle: " << problem << "\n";
    return EXIT_FAILURE;
  }
  const std::vector<std::string> words = with_two_dashes({arguments, arguments + count});
  const std::vector<const char*> argv = pointers_to(words);
  CLI11_PARSE(app, static_cast<int>(argv.size()), argv.data());
  return chosen();
}

}  // namespace
}  // namespace heddle::cli

int main(int count, char** arguments) {
  return heddle::cli::parse_and_run(count, arguments);
}
