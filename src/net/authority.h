#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/result.h"
#include "net/identity.h"

/// A cluster's certificate authority as two files, for those who have none. Keys are ECDSA P-256,
/// in files that only their owner may read. Nothing is ever overwritten.
namespace heddle::net {

/// The authority's own files are named ca.crt and ca.key.
inline constexpr const char* kAuthority = "ca";

/// What was written.
struct IssuedFiles {
  std::string certificate{};
  std::string key{};
};

/// From when on, and how long, a certificate is good.
struct Validity {
  std::chrono::sys_seconds now{};  ///< It is good from five minutes before, for clocks that differ.
  std::chrono::days days{};
};

/// Makes the folder where there is none, and in it the authority of a cluster. kInvalidArgument for
/// a name that none can have, kFailedPrecondition where there is one, kUnavailable where a file
/// cannot be written.
Result<IssuedFiles> make_authority(const std::string& folder,
                                   const std::string& cluster,
                                   const Validity& validity);

/// What is asked of an authority. It knows the cluster.
struct CertificateRequest {
  Role role = Role::kAgent;
  std::string name{};
  std::vector<std::string> addresses{};  ///< Names of hosts, or numeric addresses.
};

/// Writes NAME.crt and NAME.key into the folder of an authority. kNotFound where there is none,
/// kFailedPrecondition where its certificate would not last as long or the files are there;
/// otherwise as above.
Result<IssuedFiles> issue_certificate(const std::string& folder,
                                      const CertificateRequest& request,
                                      const Validity& validity);

}  // namespace heddle::net
