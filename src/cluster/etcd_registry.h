#pragma once

#include <memory>

#include <boost/asio/any_io_executor.hpp>

#include "base/result.h"
#include "cluster/registry.h"
#include "cluster/registry_url.h"

namespace heddle::cluster {

/// Records in etcd 3.4 or later, through its JSON gateway. The key of a record follows the prefix.
/// Records that expire hang on leases, one for each.
[[nodiscard]] Result<std::shared_ptr<Registry>> open_etcd(
    const boost::asio::any_io_executor& executor, const EtcdUrl& url, RegistryOptions options);

}  // namespace heddle::cluster
