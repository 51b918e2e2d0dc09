#pragma once

#include <string>
#include <string_view>
#include <vector>

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
  /// No keys at all let everybody in; none is empty.
  explicit ApiKeys(std::vector<std::string> keys);

  /// Takes the same time whatever the keys are and wherever a wrong one differs.
  [[nodiscard]] bool admit(const Credentials& shown) const;

 private:
  std::vector<std::string> keys_;
};

}  // namespace heddle::gateway
