#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/http_exchange.h"

namespace heddle::gateway {

/// What a client shows to be let in.
struct Credentials {
  std::string_view authorization{};  ///< Header Authorization.
  std::string_view api_key{};        ///< Header x-api-key.
};

/// The keys that open. A client shows one as `Authorization: Bearer KEY`, as the password of
/// `Authorization: Basic`, or as `x-api-key: KEY`.
class ApiKeys {
 public:
  struct Key {
    std::string text{};     ///< Not empty.
    Principal principal{};  ///< What who shows it may do.
  };

  /// No keys at all let everybody in.
  explicit ApiKeys(std::vector<Key> keys);

  /// Nothing for who stays out. Takes the same time whatever the keys are and wherever a wrong one
  /// differs.
  [[nodiscard]] std::optional<Principal> admit(const Credentials& shown) const;

 private:
  std::vector<Key> keys_;
};

}  // namespace heddle::gateway
