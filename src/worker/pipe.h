#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/any_io_executor.hpp>

#include "base/descriptor.h"
#include "base/ids.h"
#include "base/result.h"
#include "rpc/messages.h"

namespace heddle::worker {

/// A stage's links to those before and behind it in a pipeline. Made on the loop; used and
/// destroyed by the engine thread, which no socket ever blocks.
class Pipe {
 public:
  /// Called on the loop, none after the pipe has ended but for what is under way: each names the
  /// pipe, so that what comes late is for nobody.
  struct Handlers {
    std::function<void(std::uint64_t pipe, std::string payload)> on_payload{};
    /// One of the two others has gone. Nothing comes any more.
    std::function<void(std::uint64_t pipe)> on_closed{};
    /// The stage behind is there, and takes no more.
    std::function<void(const Error&)> on_failed{};
  };

  /// On the loop. `before` and `behind`: as rpc::JoinPipe has them.
  Pipe(const boost::asio::any_io_executor& executor,
       const rpc::JoinPipe& join,
       Descriptor before,
       Descriptor behind,
       Handlers handlers);
  ~Pipe();
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  /// To the stage behind, in order. Dropped where that has gone.
  void send(std::string payload);

  /// No two of a process have the same.
  [[nodiscard]] std::uint64_t id() const { return id_; }
  [[nodiscard]] ModelId model() const { return join_.model; }
  [[nodiscard]] std::int64_t stage() const { return join_.stage; }
  [[nodiscard]] std::int64_t stages() const { return join_.stages; }
  [[nodiscard]] bool shared() const { return join_.shared; }
  [[nodiscard]] bool leads() const { return join_.stage == 0; }

 private:
  struct Links;
  boost::asio::any_io_executor executor_;
  rpc::JoinPipe join_;
  std::uint64_t id_;
  std::shared_ptr<Links> links_;  ///< Used on the loop, and ends there.
};

}  // namespace heddle::worker
