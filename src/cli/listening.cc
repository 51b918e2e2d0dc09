#include "cli/listening.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "config/web_names.h"

namespace heddle::cli {

Result<void> listen_instead(const std::vector<std::string>& listen, config::Config& config) {
  if (listen.empty()) {
    return {};
  }
  config.listen.clear();
  for (const std::string& text : listen) {
    const Result<config::ListenAddress> address = config::parse_listen(text);
    if (!address) {
      return Error{.code = address.error().code, .message = "--listen: " + address.error().message};
    }
    config.listen.push_back(*address);
  }
  return {};
}

std::vector<std::string> open_doors(const config::Config& config) {
  std::vector<std::string> warnings;
  for (const config::ListenAddress& address : config.listen) {
    const auto host = config::parse_listen_host(address.host);
    if (config.api_keys.empty() && !(host && host->local)) {
      warnings.push_back("listen: no key is asked for, so whoever reaches " + address.host +
                         " may do everything; want apiKeys, or an address of this machine alone");
    }
  }
  return warnings;
}

std::vector<std::string> with_two_dashes(std::vector<std::string> arguments) {
  constexpr auto kNames = std::to_array<std::string_view>({"-config", "-listen", "-watch-config"});
  for (std::string& argument : arguments) {
    const std::string_view name = std::string_view(argument).substr(0, argument.find('='));
    if (std::find(kNames.begin(), kNames.end(), name) != kNames.end()) {
      argument.insert(0, 1, '-');
    }
  }
  return arguments;
}

}  // namespace heddle::cli
