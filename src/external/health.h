#pragma once

#include <functional>
#include <optional>
#include <string>

#include <boost/asio/awaitable.hpp>

#include "base/http_address.h"
#include "base/result.h"
#include "base/time.h"

namespace heddle::external {

/// Returns when an engine is ready: `path` answers 200, or, where it is empty, somebody listens.
/// @param died  Why it is over before that, if it is; asked again and again.
/// kUnavailable, with died()'s words; kNotFound where the engine has had no such path for five
/// seconds, although it listens; kDeadlineExceeded after `patience`, with the last that was heard.
[[nodiscard]] boost::asio::awaitable<Result<void>> await_healthy(
    HttpAddress address,
    std::string path,
    Duration patience,
    std::function<std::optional<Error>()> died);

/// Whether an engine gives any answer at `path`, or, where that is empty, listens.
[[nodiscard]] boost::asio::awaitable<bool> gives_answer(HttpAddress address,
                                                        std::string path,
                                                        Duration patience);

}  // namespace heddle::external
