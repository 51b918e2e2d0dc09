#include "external/child_watch.h"

#include <utility>

#include <boost/asio/posix/stream_descriptor.hpp>

namespace heddle::external {

namespace asio = boost::asio;

class ChildWatch::Impl : public std::enable_shared_from_this<ChildWatch::Impl> {
 public:
  Impl(const asio::any_io_executor& executor,
       Child child,
       std::function<void(const std::string&)> on_exit)
      : child_(std::move(child)),
        ended_(std::in_place, executor, child_->watch()),
        on_exit_(std::move(on_exit)) {}

  void watch() {
    ended_->async_wait(asio::posix::stream_descriptor::wait_read,
                       [self = shared_from_this()](const boost::system::error_code& error) {
                         if (!error && self->ended_) {
                           const std::string how = describe(self->child_->wait());
                           const auto tell = std::move(self->on_exit_);
                           tell(how);
                         }
                       });
  }

  void end() {
    (void)ended_->release();  // The descriptor is the child's; what waits for it is cancelled.
    ended_.reset();
    child_.reset();
  }

  [[nodiscard]] const Child& child() const { return *child_; }

 private:
  std::optional<Child> child_;
  std::optional<asio::posix::stream_descriptor> ended_;
  std::function<void(const std::string&)> on_exit_;
};

ChildWatch::ChildWatch(const asio::any_io_executor& executor,
                       Child child,
                       std::function<void(const std::string& how)> on_exit)
    : impl_(std::make_shared<Impl>(executor, std::move(child), std::move(on_exit))) {
  impl_->watch();
}
ChildWatch::~ChildWatch() {
  impl_->end();
}
const Child& ChildWatch::child() const {
  return impl_->child();
}

}  // namespace heddle::external
