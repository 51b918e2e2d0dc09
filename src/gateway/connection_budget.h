#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle::gateway {

/// What there is to open, and who else needs some of it.
struct DescriptorNeeds {
  std::uint64_t limit = 0;          ///< That the process may have open.
  std::size_t open = 0;             ///< That it has open.
  std::size_t processes = 0;        ///< Workers and engines, which are started again.
  std::size_t of_a_connection = 1;  ///< More with TLS, and where it is passed on to an engine.
  std::size_t connections = 0;      ///< Of clients, as they are wanted.
};

/// How many connections of clients fit, so that workers, engines, files and logs never lack a
/// descriptor.
struct ConnectionBudget {
  std::size_t connections = 0;
  std::size_t overflow = 0;       ///< Further ones: HttpServer::Options::overflow.
  std::uint64_t right_limit = 0;  ///< The limit with which all that are wanted fit.
};

/// Pure. Some connections there are always, however low the limit.
[[nodiscard]] ConnectionBudget connection_budget(const DescriptorNeeds& needs);

}  // namespace heddle::gateway
