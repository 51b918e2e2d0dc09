#include "cluster/registry_url.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <tuple>
#include <utility>

#include "cluster/registry.h"

namespace heddle::cluster {

namespace {

constexpr std::string_view kKnown =
    "known are etcd://HOST:2379[,HOST:2379...], kubernetes://NAMESPACE and file:DIRECTORY";
constexpr std::uint16_t kEtcdPort = 2379;

using Options = std::map<std::string, std::string, std::less<>>;

/// "AUTHORITY/PATH?OPTIONS", taken apart.
struct UrlParts {
  std::string_view authority{};
  std::string_view path{};  ///< Without slashes at its ends.
  Options options{};
};

Error wrong(std::string_view url, const std::string& why) {
  return {Code::kInvalidArgument, "registry \"" + std::string(url) + "\": " + why};
}

std::pair<std::string_view, std::string_view> cut(std::string_view text, char at) {
  const std::size_t found = text.find(at);
  return found == std::string_view::npos ? std::pair{text, std::string_view()}
                                         : std::pair{text.substr(0, found), text.substr(found + 1)};
}

Result<UrlParts> take_apart(std::string_view url,
                            std::string_view rest,
                            std::initializer_list<std::string_view> known) {
  UrlParts parts;
  auto [place, query] = cut(rest, '?');
  std::tie(parts.authority, parts.path) = cut(place, '/');
  while (parts.path.ends_with('/')) {
    parts.path.remove_suffix(1);
  }
  while (!query.empty()) {
    const auto [option, others] = cut(query, '&');
    const auto [name, value] = cut(option, '=');
    if (std::ranges::find(known, name) == known.end() || value.empty()) {
      std::string right;
      for (const std::string_view each : known) {
        right += (right.empty() ? "" : ", ") + std::string(each) + "=...";
      }
      return wrong(url, "\"" + std::string(option) + "\" is no option; options are " + right);
    }
    parts.options[std::string(name)] = std::string(value);
    query = others;
  }
  if (!parts.path.empty()) {
    if (const Result<void> checked = check_key(parts.path); !checked) {
      return wrong(url, checked.error().message);
    }
  }
  return parts;
}

std::string option_of(const Options& options, std::string_view name) {
  const auto found = options.find(name);
  return found == options.end() ? std::string() : found->second;
}

Result<RegistryUrl> parse_etcd(std::string_view url, std::string_view rest) {
  const Result<UrlParts> parts = take_apart(url, rest, {"ca", "cert", "key"});
  if (!parts) {
    return parts.error();
  }
  EtcdUrl etcd{.ca = option_of(parts->options, "ca"),
               .certificate = option_of(parts->options, "cert"),
               .key = option_of(parts->options, "key")};
  if (etcd.certificate.empty() != etcd.key.empty() ||
      (etcd.ca.empty() && !etcd.certificate.empty())) {
    return wrong(url, "cert=FILE and key=FILE go together, and with ca=FILE or ca=system");
  }
  const bool tls = !etcd.ca.empty();
  if (etcd.ca == "system") {
    etcd.ca.clear();
  }
  if (!parts->path.empty()) {
    etcd.prefix = std::string(parts->path) + "/";
  }
  for (std::string_view left = parts->authority; !left.empty();) {
    const auto [server, others] = cut(left, ',');
    Result<HttpAddress> address =
        parse_http_address(server, {.port = kEtcdPort, .http_port = kEtcdPort});
    if (!address) {
      return wrong(url, "a server is HOST[:PORT]: " + address.error().message);
    }
    address->tls = tls;
    etcd.servers.push_back(std::move(*address));
    left = others;
  }
  if (etcd.servers.empty()) {
    return wrong(url, "it names no server; right is etcd://HOST:2379[,HOST:2379...]");
  }
  return RegistryUrl(std::move(etcd));
}

Result<RegistryUrl> parse_kubernetes(std::string_view url, std::string_view rest) {
  const Result<UrlParts> parts = take_apart(url, rest, {"server", "token_file", "ca"});
  if (!parts) {
    return parts.error();
  }
  KubernetesUrl kubernetes{.name_space = std::string(parts->authority),
                           .server = option_of(parts->options, "server"),
                           .token_file = option_of(parts->options, "token_file"),
                           .ca = option_of(parts->options, "ca")};
  constexpr std::string_view kNameLetters = "abcdefghijklmnopqrstuvwxyz0123456789-";
  constexpr std::size_t kNameMax = 63;
  for (const std::string_view each : {parts->authority, parts->path}) {
    if (each.size() > kNameMax || each.find_first_not_of(kNameLetters) != std::string_view::npos) {
      return wrong(url,
                   "\"" + std::string(each) + "\" is no name of Kubernetes: right are at most 63 " +
                       "of a-z, 0-9 and '-'");
    }
  }
  if (!parts->path.empty()) {
    kubernetes.name = std::string(parts->path);
  }
  if (!kubernetes.server.empty() && kubernetes.name_space.empty()) {
    return wrong(url, "with server=URL it has to name its namespace: kubernetes://NAMESPACE?...");
  }
  return RegistryUrl(std::move(kubernetes));
}

}  // namespace

Result<RegistryUrl> parse_registry_url(std::string_view url) {
  constexpr std::string_view kEtcd = "etcd://";
  constexpr std::string_view kKubernetes = "kubernetes://";
  constexpr std::string_view kFile = "file:";
  if (url.starts_with(kEtcd)) {
    return parse_etcd(url, url.substr(kEtcd.size()));
  }
  if (url.starts_with(kKubernetes)) {
    return parse_kubernetes(url, url.substr(kKubernetes.size()));
  }
  if (url.starts_with(kFile)) {
    std::string_view directory = url.substr(kFile.size());
    if (directory.starts_with("//")) {
      directory.remove_prefix(2);
    }
    if (directory.empty()) {
      return wrong(url, "it names no directory; right is file:DIRECTORY");
    }
    return RegistryUrl(FileUrl{.directory = std::string(directory)});
  }
  return wrong(url, "no such kind of registry; " + std::string(kKnown));
}

}  // namespace heddle::cluster
