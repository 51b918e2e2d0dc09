#include "batches/input.h"

#include <map>
#include <unordered_set>
#include <utility>

#include "batches/line_file.h"

namespace heddle::batches {

namespace {

constexpr const char* kSpace = " \t\r";

/// The file's lines as they come.
class Look {
 public:
  explicit Look(const std::string& endpoint) : endpoint_(endpoint) {}

  /// The next line; what is wrong with it, if something is.
  ReadLine take(const FileLine& line) {
    ReadLine read;
    if (line.bytes > kLineBytesMax) {
      read.fault = {"line_too_long",
                    "the line has " + std::to_string(line.bytes) + " bytes; want at most " +
                        std::to_string(kLineBytesMax)};
    } else {
      read = read_line(line.text, endpoint_);
    }
    if (!read.fault && !ids_.insert(read.request.custom_id).second) {
      read.fault = {"duplicate_custom_id", "custom_id: an earlier line has the same"};
    }
    input_.lines.push_back({.offset = line.offset});
    if (!read.fault) {
      input_.lines.back().bytes = static_cast<std::uint32_t>(line.bytes);
      input_.lines.back().model = number_of_model(read.request.model);
    }
    return read;
  }

  [[nodiscard]] std::size_t lines() const { return input_.lines.size(); }
  Input input() && { return std::move(input_); }

 private:
  std::uint32_t number_of_model(const std::string& model) {
    const auto [found, added] =
        models_.emplace(model, static_cast<std::uint32_t>(input_.models.size()));
    if (added) {
      input_.models.push_back(model);
    }
    return found->second;
  }

  const std::string& endpoint_;
  Input input_{};
  std::unordered_set<std::string> ids_{};
  std::map<std::string, std::uint32_t> models_{};
};

}  // namespace

Result<Input> look_through(
    const std::string& file,
    const std::string& endpoint,
    const std::function<void(std::size_t, const std::string&, const Fault&)>& on_fault) {
  Result<LineFile> lines = LineFile::open(file, kLineBytesMax);
  if (!lines) {
    return lines.error();
  }
  Look look(endpoint);
  for (;;) {
    const Result<std::optional<FileLine>> line = lines->next();
    if (!line) {
      return line.error();
    }
    if (!*line) {
      break;
    }
    if ((*line)->text.find_first_not_of(kSpace) == std::string::npos) {
      continue;
    }
    if (look.lines() == kLinesMax) {
      return Error{.code = Code::kInvalidArgument,
                   .message = "the file has more than " + std::to_string(kLinesMax) +
                              " lines; divide it into several"};
    }
    const ReadLine read = look.take(**line);
    if (read.fault) {
      on_fault(look.lines() - 1, read.request.custom_id, *read.fault);
    }
  }
  if (look.lines() == 0) {
    return Error{.code = Code::kInvalidArgument, .message = "the file has no lines"};
  }
  return std::move(look).input();
}

}  // namespace heddle::batches
