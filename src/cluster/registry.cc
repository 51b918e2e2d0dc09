#include "cluster/registry.h"

#include <utility>

#include "cluster/etcd_registry.h"
#include "cluster/file_registry.h"
#include "cluster/kubernetes_registry.h"
#include "cluster/registry_url.h"

namespace heddle::cluster {

namespace {

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool is_joint(char c) {
  return c == '/' || c == '.';
}

/// What is wrong with a key; empty: nothing.
std::string fault_of(std::string_view key) {
  if (key.empty() || key.size() > kKeyMax) {
    return "has " + std::to_string(key.size()) + " bytes instead of 1 to " +
           std::to_string(kKeyMax);
  }
  for (std::size_t i = 0; i < key.size(); ++i) {
    const bool edge = i == 0 || i + 1 == key.size() || is_joint(key[i - 1]) || is_joint(key[i + 1]);
    const bool inner = key[i] == '-' || is_joint(key[i]);
    if (!is_letter_or_digit(key[i]) && (edge || !inner)) {
      return "is wrong at byte " + std::to_string(i) +
             "; right are words of a-z, 0-9, '-' and '.' with '/' between them, and a letter or "
             "digit at each end and beside each dot";
    }
  }
  return {};
}

}  // namespace

Result<void> check_key(std::string_view key) {
  const std::string fault = fault_of(key);
  if (fault.empty()) {
    return {};
  }
  return Error{Code::kInvalidArgument, "key \"" + std::string(key.substr(0, 200)) + "\" " + fault};
}

Result<void> check_record(std::string_view key, std::string_view value) {
  if (const Result<void> checked = check_key(key); !checked) {
    return checked;
  }
  if (value.size() > kValueMax) {
    return Error{Code::kInvalidArgument,
                 "the value of \"" + std::string(key) + "\" has " + std::to_string(value.size()) +
                     " bytes; at most " + std::to_string(kValueMax) + " are allowed"};
  }
  return {};
}

Result<std::shared_ptr<Registry>> open_registry(const boost::asio::any_io_executor& executor,
                                                std::string_view url,
                                                RegistryOptions options) {
  Result<RegistryUrl> parsed = parse_registry_url(url);
  if (!parsed) {
    return parsed.error();
  }
  if (const auto* etcd = std::get_if<EtcdUrl>(&*parsed)) {
    return open_etcd(executor, *etcd, options);
  }
  if (const auto* kubernetes = std::get_if<KubernetesUrl>(&*parsed)) {
    return open_kubernetes(executor, *kubernetes, options);
  }
  return open_file(executor, std::get<FileUrl>(*parsed), options);
}

}  // namespace heddle::cluster
