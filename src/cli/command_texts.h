#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

/// Texts made of the table of verbs, for shells and for `man`.
namespace heddle::cli {

struct CommandOption {
  std::vector<std::string> names{};  ///< With their dashes.
  std::string about{};
  bool takes_value = false;
};

/// A verb, or the program itself.
struct CommandVerb {
  std::string name{};  ///< Of verbs within verbs "config check"; empty: the program.
  std::string about{};
  std::vector<std::string> arguments{};  ///< Names of positional ones.
  std::vector<CommandOption> options{};
};

/// The program and its verbs that are listed, in the order of their declaration.
[[nodiscard]] std::vector<CommandVerb> command_table(const CLI::App& app);

[[nodiscard]] std::string bash_completion(const std::vector<CommandVerb>& verbs);
[[nodiscard]] std::string zsh_completion(const std::vector<CommandVerb>& verbs);
[[nodiscard]] std::string fish_completion(const std::vector<CommandVerb>& verbs);
/// A page for `man`, in roff.
[[nodiscard]] std::string manual_page(const std::vector<CommandVerb>& verbs,
                                      const std::string& version);

}  // namespace heddle::cli
