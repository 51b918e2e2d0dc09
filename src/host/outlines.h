#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>

#include "base/result.h"
#include "base/time.h"
#include "core/messages.h"
#include "fetch/model_fetch.h"
#include "fetch/outline.h"

namespace heddle::host {

/// Learns from their sources what models are that are in no cache, a few at a time and beside the
/// loop, and tries again what fails. Loop thread only.
class Outlines {
 public:
  using Learnt = std::function<void(const std::string& source, const Result<fetch::Outline>&)>;

  /// @param on_learnt  Called on the loop, each time that a source has answered or has not.
  Outlines(const boost::asio::any_io_executor& executor,
           fetch::PullOptions options,
           Learnt on_learnt);
  /// Stops what runs, and waits until it has.
  ~Outlines();
  Outlines(const Outlines&) = delete;
  Outlines& operator=(const Outlines&) = delete;

  /// The sources to ask from now on. One that has answered is not asked again.
  void want(const std::set<std::string>& sources);
  using Hosts = std::map<std::string, std::vector<core::GroupHost>>;
  using FindPeer = std::function<std::shared_ptr<fetch::Peer>(const core::GroupHost&)>;
  /// Hosts, by source, that may have a model whose source is away. A source that has failed is
  /// asked again where they are others now.
  void set_peers(const Hosts& hosts, const FindPeer& find);
  /// It may say something else than it did.
  void ask_again(const std::string& source);

 private:
  struct Asked {
    explicit Asked(const boost::asio::any_io_executor& executor) : again(executor) {}
    std::int64_t failures = 0;  ///< In a row.
    bool running = false;
    bool stale = false;               ///< Ask once more when that has ended.
    boost::asio::steady_timer again;  ///< Of trying again.
  };

  void ask(const std::string& source);
  void learnt(const std::string& source, const Result<fetch::Outline>& outline);

  boost::asio::any_io_executor executor_;
  fetch::PullOptions options_;
  Learnt on_learnt_;
  std::stop_source stop_{};
  Hosts hosts_{};
  std::map<std::string, std::vector<std::shared_ptr<fetch::Peer>>> peers_{};
  std::map<std::string, std::unique_ptr<Asked>> asked_{};
  std::shared_ptr<Outlines*> alive_ = std::make_shared<Outlines*>(this);
  boost::asio::thread_pool threads_;  ///< Ends before the rest.
};

}  // namespace heddle::host
