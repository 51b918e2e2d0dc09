#pragma once

#include <memory>

#include <boost/asio/any_io_executor.hpp>

#include "base/result.h"
#include "cluster/registry.h"
#include "cluster/registry_url.h"

namespace heddle::cluster {

/// Records of the processes of one machine, in a directory (file_log.h). For tests, and for
/// clusters of one host.
[[nodiscard]] Result<std::shared_ptr<Registry>> open_file(
    const boost::asio::any_io_executor& executor, const FileUrl& url, RegistryOptions options);

}  // namespace heddle::cluster
