#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/http_address.h"
#include "base/result.h"

namespace heddle::cluster {

/// `etcd://HOST[:2379][,HOST...][/PREFIX][?ca=FILE|system[&cert=FILE&key=FILE]]`
struct EtcdUrl {
  std::vector<HttpAddress> servers{};  ///< All with TLS, or none.
  std::string prefix = "heddle/";      ///< Of the keys in etcd; ends with '/'.
  std::string ca{};                    ///< Empty: whom the system trusts.
  std::string certificate{};           ///< Empty: none is shown.
  std::string key{};
};

/// `kubernetes://[NAMESPACE][/NAME][?server=URL][&token_file=FILE][&ca=FILE]`
struct KubernetesUrl {
  std::string name_space{};     ///< Empty: that of the service account.
  std::string name = "heddle";  ///< Begins the names of the objects.
  std::string server{};         ///< Empty: that of the pod's environment.
  std::string token_file{};     ///< Empty: the service account's, or none where `server` is said.
  std::string ca{};             ///< Likewise, or whom the system trusts.
};

/// `file:DIRECTORY`
struct FileUrl {
  std::string directory{};
};

using RegistryUrl = std::variant<EtcdUrl, KubernetesUrl, FileUrl>;

/// Reads one of them. kInvalidArgument says what is wrong and what would be right.
[[nodiscard]] Result<RegistryUrl> parse_registry_url(std::string_view url);

}  // namespace heddle::cluster
