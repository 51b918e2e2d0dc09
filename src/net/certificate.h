#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "net/identity.h"

struct x509_st;

namespace heddle::net {

/// What a certificate of a cluster says.
struct CertificateFacts {
  std::string cluster{};
  std::optional<Identity> identity{};    ///< None: it is the cluster's authority.
  std::vector<std::string> addresses{};  ///< Names and numeric addresses, for other programs.
  std::chrono::sys_seconds from{};
  std::chrono::sys_seconds until{};
};

/// "2026-11-21 08:47:01 UTC".
[[nodiscard]] std::string time_text(std::chrono::sys_seconds time);

/// kInvalidArgument for a certificate that is of no cluster: it must have exactly one alternative
/// name that begins with heddle://. Trusts nothing.
Result<CertificateFacts> facts_of(const x509_st& certificate);

/// Reads the first certificate of a PEM file. kNotFound, kInvalidArgument as above; errors name the
/// file.
Result<CertificateFacts> read_certificate(const std::string& file);

/// kFailedPrecondition where it is not good at `now`, with when it would be.
Result<void> check_time(const CertificateFacts& facts, std::chrono::sys_seconds now);

}  // namespace heddle::net
