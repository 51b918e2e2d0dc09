#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/error.h"
#include "api/responses.h"

namespace heddle::api {

/// Gives the answer of one request the form that its endpoint promises: as a whole, or as a stream
/// of events, which are asked for in the order of the members. Events are encoded as `content_type`
/// says; an empty string means that there is nothing to send.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;

  /// The body of an answer that is not streamed.
  [[nodiscard]] virtual std::string whole(const std::vector<Choice>& choices,
                                          const Usage& usage) = 0;

  /// Of a stream.
  [[nodiscard]] virtual std::string_view content_type() const { return "text/event-stream"; }
  /// What tells a client, between events, that its answer is still being waited for.
  /// @param what  For what, in words.
  [[nodiscard]] virtual std::string waiting(std::string_view what);

  /// Has the parts of the stream from here on say how much has been used so far, where they can.
  virtual void count(const Usage& usage);
  /// What a stream begins with.
  [[nodiscard]] virtual std::string begin() = 0;
  /// What is new of one choice.
  [[nodiscard]] virtual std::string news(const Choice& part) = 0;
  /// The end, after the last of every choice.
  [[nodiscard]] virtual std::string end(const Usage& usage) = 0;
  /// The end of an answer that fails.
  [[nodiscard]] virtual std::string fail(const ApiError& error) = 0;
};

/// The writer of /v1/chat/completions and /v1/completions.
/// @param openings    What each choice begins with, by index; its size is the number of choices.
/// @param with_usage  As ChunkWriter.
/// @param every_step  News that show nothing, as those of special tokens, are told by a chunk with
///                    an empty text. Benchmarks take the times between tokens from chunks.
[[nodiscard]] std::unique_ptr<AnswerWriter> completion_writer(AnswerHead head,
                                                              std::vector<std::string> openings,
                                                              bool with_usage,
                                                              bool every_step = false);

}  // namespace heddle::api
