#pragma once

#include <string>
#include <utility>
#include <vector>

#include "api/error.h"
#include "batches/book.h"
#include "gateway/context.h"

namespace heddle::gateway {

/// Status 501: there are no batches on this server.
[[nodiscard]] api::ApiError no_batches();
/// What an error of the book means to the client.
[[nodiscard]] api::ApiError book_error(const Error& error, std::string param = {});

/// Calls `work` with the book on the pool.
template <class T>
Task<Result<T>> ask_book(Context& context, std::function<Result<T>(batches::Book&)> work) {
  std::optional<Result<T>> result;
  std::function<void()> ask = [&result, &work, book = context.batches->book()] {
    result = work(*book);
  };
  co_await context.pool.run(std::move(ask));
  co_return std::move(*result);
}

/// Which of a listing a client wants: those behind `after`, so many of them.
struct PageWanted {
  std::string after{};  ///< Empty: from the first on.
  std::size_t limit = 0;
};
/// By the query; status 400 where that cannot be meant.
[[nodiscard]] api::Parsed<PageWanted> page_wanted(const HttpRequest& request,
                                                  std::size_t usual,
                                                  std::size_t most);

/// A page of `all`, whose entries are ids and objects in JSON, as OpenAI lists them.
[[nodiscard]] std::string page_json(const std::vector<std::pair<std::string, std::string>>& all,
                                    const PageWanted& wanted);

}  // namespace heddle::gateway
