#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

/// OpenAI's batches: files of requests that are answered when nobody else needs the devices.
namespace heddle::batches {

/// A file that a client has uploaded, or that a batch has made. Times are seconds since 1970.
struct FileRecord {
  std::string id{};
  std::string owner{};    ///< Whose it is: what stands for an API key; empty where none is asked.
  std::string name{};     ///< As its client calls it; no name of anything on this machine.
  std::string purpose{};  ///< "batch", "batch_output".
  std::uint64_t bytes = 0;
  std::int64_t created_s = 0;
  std::int64_t expires_s = 0;  ///< 0: it stays until it is deleted.
  friend bool operator==(const FileRecord&, const FileRecord&) = default;
};

/// Where a batch is.
enum class State : std::uint8_t {
  kValidating,  ///< Its lines are being looked at.
  kInProgress,
  kFinalizing,  ///< All lines have ended; its files are made.
  kCompleted,
  kFailed,  ///< None of it could be run, or its key is gone.
  kExpired,
  kCancelling,  ///< Its lines end.
  kCancelled,
};
inline constexpr std::size_t kStates = 8;

/// As in answers: "in_progress".
[[nodiscard]] std::string_view name(State state);
/// Whether nothing more happens to a batch in this state.
[[nodiscard]] bool is_over(State state);

/// Its lines.
struct Counts {
  std::int64_t total = 0;
  std::int64_t completed = 0;
  std::int64_t failed = 0;
  friend bool operator==(const Counts&, const Counts&) = default;
};

struct BatchRecord {
  std::string id{};
  std::string owner{};     ///< As FileRecord has it.
  std::string endpoint{};  ///< Of all its lines: "/v1/chat/completions".
  std::string input{};     ///< The id of its file of requests.
  std::string output{};    ///< The id of its file of answers, whether there are any or not.
  std::string errors{};    ///< Likewise of lines that failed.
  State state = State::kValidating;
  std::array<std::int64_t, kStates> at{};  ///< When it came into each state; 0: never.
  std::int64_t expires_s = 0;
  Counts counts{};
  std::string metadata{};  ///< A JSON object; empty: none.
  std::string code{};      ///< Of why it failed; empty: it has not.
  std::string message{};   ///< The same for people.
  bool has_output = false;
  bool has_errors = false;
  friend bool operator==(const BatchRecord&, const BatchRecord&) = default;

  [[nodiscard]] std::int64_t created_s() const {
    return at[static_cast<std::size_t>(State::kValidating)];
  }
  void enter(State next, std::int64_t now_s) {
    state = next;
    at[static_cast<std::size_t>(next)] = now_s;
  }
};

/// As OpenAI's API tells of them.
[[nodiscard]] std::string file_json(const FileRecord& file);
[[nodiscard]] std::string batch_json(const BatchRecord& batch);
/// That a file is gone.
[[nodiscard]] std::string deleted_json(const std::string& file);

}  // namespace heddle::batches
