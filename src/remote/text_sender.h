#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/any_io_executor.hpp>

#include "base/result.h"
#include "remote/messages.h"

namespace heddle::remote {

/// Where a model is, whose texts are sent: its directory or GGUF file.
using FindText = std::function<Result<std::filesystem::path>(const std::string& model,
                                                             const std::string& digest)>;

/// Most models that a gateway may wait for at once.
inline constexpr std::size_t kFetchesMost = 4096;

/// Answers what one gateway asks for of models' files: one after the other, and a piece only when
/// the one before is on its way. Loop thread; files are read beside it.
class TextSender {
 public:
  /// @param reader  Where files are read; another thread, or several.
  /// @param send    To the gateway. Not called from within a call.
  TextSender(const boost::asio::any_io_executor& loop,
             const boost::asio::any_io_executor& reader,
             FindText find,
             std::function<void(const HostToGateway&)> send);
  /// Sends nothing more.
  ~TextSender();
  TextSender(const TextSender&) = delete;
  TextSender& operator=(const TextSender&) = delete;

  /// kCorrupt for more than kFetchesMost.
  Result<void> fetch(FetchText wanted);
  /// Whether the gateway takes what it is sent; while it does not, nothing more is.
  void pause(bool paused);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace heddle::remote
