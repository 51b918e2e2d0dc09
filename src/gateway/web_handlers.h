#pragma once

#include "gateway/http_exchange.h"

namespace heddle::gateway {

/// Sends a browser to the page. The way is relative, so that it holds behind any prefix.
[[nodiscard]] HttpResponse see_page();

}  // namespace heddle::gateway
