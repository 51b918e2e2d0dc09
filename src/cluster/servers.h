#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include "base/http_address.h"
#include "base/result.h"
#include "base/time.h"
#include "cluster/registry.h"
#include "http/client.h"

namespace heddle::cluster {

/// An answer, and whether an earlier try, of which nothing was heard, may have been carried out.
struct Answer {
  http::Reply reply{};
  bool unsure = false;
};

/// Servers of which any one will do. A request that one does not answer goes to the next.
class Servers {
 public:
  /// @param name     The store, as messages name it.
  /// @param options  Asked for again and again, as the file of a token changes.
  Servers(const boost::asio::any_io_executor& executor,
          std::string name,
          std::vector<HttpAddress> addresses,
          std::function<http::ClientOptions()> options,
          RegistryOptions times);

  /// The answer of the first server that gives one below status 500. kUnavailable or
  /// kDeadlineExceeded with what the last one did where none does within the patience.
  boost::asio::awaitable<Result<Answer>> ask(http::Request request);

  /// A client of its own of the server whose turn it is.
  [[nodiscard]] std::shared_ptr<http::Client> connect() const;
  /// It is the next one's turn.
  void pass_on() { turn_ = (turn_ + 1) % addresses_.size(); }

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const RegistryOptions& times() const { return times_; }
  [[nodiscard]] const boost::asio::any_io_executor& executor() const { return executor_; }

 private:
  std::shared_ptr<http::Client> client();

  boost::asio::any_io_executor executor_;
  std::string name_;
  std::vector<HttpAddress> addresses_;
  std::function<http::ClientOptions()> options_;
  RegistryOptions times_;
  std::size_t turn_ = 0;
  std::vector<std::shared_ptr<http::Client>> clients_;  ///< Null: not made yet.
  Instant made_{};                                      ///< When the first of them was.
};

}  // namespace heddle::cluster
