#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace heddle::batches {

/// A request as it stands in a line of a batch's file.
struct Request {
  std::string custom_id{};  ///< The client's name for it; empty where that cannot be read.
  std::string model{};
  std::string body{};  ///< A JSON object.
};

/// What is wrong with a line, or became of it.
struct Fault {
  std::string code{};
  std::string message{};
};

/// A line that was read.
struct ReadLine {
  Request request{};  ///< What could be read.
  std::optional<Fault> fault{};
};

inline constexpr std::size_t kLineBytesMax = std::size_t{4} << 20U;
inline constexpr std::size_t kCustomIdBytesMax = 512;

/// Reads a line of a batch for `endpoint`: `{"custom_id", "method": "POST", "url", "body"}`.
[[nodiscard]] ReadLine read_line(std::string_view text, std::string_view endpoint);

/// What a line was answered with, as it stands in the file of answers, or of errors where the
/// status is not 200, with what ends it.
/// @param number  Of the line in its file, from 0.
[[nodiscard]] std::string answer_line(const std::string& batch,
                                      std::size_t number,
                                      const std::string& custom_id,
                                      int status,
                                      const std::string& request_id,
                                      std::string body);
/// The same of a line that was not asked.
[[nodiscard]] std::string fault_line(const std::string& batch,
                                     std::size_t number,
                                     const std::string& custom_id,
                                     const Fault& fault);

/// Which line an answer or a fault that was written is of, by its first bytes.
[[nodiscard]] std::optional<std::size_t> number_of(std::string_view written);

}  // namespace heddle::batches
