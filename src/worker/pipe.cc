#include "worker/pipe.h"

#include <atomic>
#include <utility>

#include <boost/asio/post.hpp>

#include "rpc/link.h"
#include "worker/pipe_wire.h"

namespace heddle::worker {

namespace {

std::uint64_t next_id() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

constexpr rpc::LinkLimits kLimits{.payload_bytes_max = kStagePayloadMax,
                                  .queued_bytes_max = 4 * kStagePayloadMax};

}  // namespace

struct Pipe::Links {
  Links(const boost::asio::any_io_executor& executor,
        std::uint64_t id,
        Descriptor from,
        Descriptor to,
        Handlers handlers)
      : told(std::move(handlers)),
        before(executor,
               std::move(from),
               {.on_frame =
                    [this, id](rpc::Frame frame) { told.on_payload(id, std::move(frame.payload)); },
                .on_closed = [this, id](const Error&) { told.on_closed(id); }},
               kLimits),
        behind(executor,
               std::move(to),
               {.on_frame = [](const rpc::Frame&) {},
                .on_closed = [this, id](const Error&) { told.on_closed(id); }},
               kLimits) {}

  Handlers told;
  rpc::Link before;
  rpc::Link behind;
};

Pipe::Pipe(const boost::asio::any_io_executor& executor,
           const rpc::JoinPipe& join,
           Descriptor before,
           Descriptor behind,
           Handlers handlers)
    : executor_(executor),
      join_(join),
      id_(next_id()),
      links_(std::make_shared<Links>(
          executor, id_, std::move(before), std::move(behind), std::move(handlers))) {}

Pipe::~Pipe() {
  boost::asio::post(executor_, [links = std::move(links_)] {});
}

void Pipe::send(std::string payload) {
  boost::asio::post(executor_, [links = links_, payload = std::move(payload)]() mutable {
    if (const Result<void> sent = links->behind.send(std::move(payload));
        !sent && sent.error().code != Code::kUnavailable) {
      links->told.on_failed(sent.error());
    }
  });
}

}  // namespace heddle::worker
