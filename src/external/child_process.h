#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/any_io_executor.hpp>

#include "base/descriptor.h"
#include "base/result.h"
#include "external/child_watch.h"

#include <sys/types.h>

namespace heddle::external {

/// A program to be run.
struct Command {
  std::vector<std::string> argv{};  ///< Not empty; the program is looked up in PATH.
  std::vector<std::pair<std::string, std::string>> env{};  ///< Added to ours.
  std::string directory{};                                 ///< Empty: where we are.
  std::string join_file{};  ///< Gets "0" before the program runs (OwnSet); empty: none.
};

/// A child of this process, in a session of its own, that dies with the thread that started it
/// (which therefore is the loop thread, to the end) and with this object. What *it* starts is
/// ProcessSet's. It reads nothing, and has no descriptors of ours. Loop thread only.
class ChildProcess {
 public:
  /// @param output   Becomes its stdout and stderr.
  /// @param on_exit  Told how it ended ("exit status 1", "signal 9 (Killed)"), on the loop, unless
  ///                 the object was destroyed before.
  /// kInvalidArgument where there is no such program or directory, kUnavailable where no process
  /// can be made.
  static Result<std::unique_ptr<ChildProcess>> spawn(
      const boost::asio::any_io_executor& executor,
      const Command& command,
      const Descriptor& output,
      std::function<void(const std::string& how)> on_exit);

  [[nodiscard]] pid_t pid() const;
  /// To its process group; nothing where it has ended.
  void signal(int number) const;

 private:
  ChildProcess(const boost::asio::any_io_executor& executor,
               Child child,
               std::function<void(const std::string&)> on_exit);
  ChildWatch watch_;
};

}  // namespace heddle::external
