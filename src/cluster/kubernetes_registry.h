#pragma once

#include <memory>

#include <boost/asio/any_io_executor.hpp>

#include "base/result.h"
#include "cluster/registry.h"
#include "cluster/registry_url.h"

namespace heddle::cluster {

/// Records as Leases in a namespace of Kubernetes 1.20 or later. Needs the verbs get, list, watch,
/// create, update and delete on `leases` of coordination.k8s.io there. kInvalidArgument where no
/// server is named and this runs in no pod, or a file of the service account cannot be read.
[[nodiscard]] Result<std::shared_ptr<Registry>> open_kubernetes(
    const boost::asio::any_io_executor& executor,
    const KubernetesUrl& url,
    RegistryOptions options);

}  // namespace heddle::cluster
