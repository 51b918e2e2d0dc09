#include <cstdio>
#include <iostream>
#include <string>

#include "cli/client.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "spec/json_view.h"
#include "spec/json_writer.h"

namespace heddle::cli {

namespace {

/// A conversation with one model.
class Chat {
 public:
  Chat(Client& client, std::string model) : client_(client), model_(std::move(model)) {}

  /// Asks, and prints the answer as it comes. What was not answered is not remembered.
  Result<void> ask(const std::string& prompt) {
    std::string turns = turns_;
    add_turn(turns, "user", prompt);
    std::string answer;
    Result<void> failed;
    const Result<void> done =
        client_.stream("/v1/chat/completions", request(turns), [&](std::string_view data) {
          const Result<spec::Json> event = spec::parse_json(data, "answer");
          if (!event) {
            failed = event.error();
            return;
          }
          const std::string error = spec::text_at(*event, {"error", "message"});
          if (!error.empty()) {
            failed = Error{.code = Code::kUnavailable, .message = error};
          }
          for (const spec::Json& choice : spec::items_at(*event, {"choices"})) {
            const std::string piece = spec::text_at(choice, {"delta", "content"});
            answer += piece;
            std::fputs(printable(piece).c_str(), stdout);
            std::fflush(stdout);
          }
        });
    if (!answer.empty()) {
      std::fputs("\n", stdout);
      add_turn(turns, "assistant", answer);
      turns_ = std::move(turns);
    }
    if (!done) {
      return done;
    }
    return failed;
  }

 private:
  static void add_turn(std::string& turns, const char* role, const std::string& content) {
    spec::JsonWriter json;
    json.begin_object().key("role").string(role).key("content").string(content).end_object();
    turns += (turns.empty() ? "" : ",") + json.text();
  }

  [[nodiscard]] std::string request(const std::string& turns) const {
    spec::JsonWriter name;
    name.string(model_);
    return "{\"model\":" + name.text() + ",\"stream\":true,\"messages\":[" + turns + "]}";
  }

  Client& client_;
  std::string model_;
  std::string turns_{};  ///< JSON of the messages so far, with commas between.
};

/// Answers line by line until the input ends. An answer that fails does not end a conversation, but
/// is what the exit status tells.
int converse(Chat& chat) {
  const bool typed = stdin_is_terminal();
  int status = 0;
  if (typed) {
    std::fputs("Type a message; Ctrl-C ends an answer, /bye ends the conversation.\n", stderr);
  }
  for (;;) {
    if (typed) {
      std::fputs(">>> ", stderr);
    }
    std::string line;
    if (!std::getline(std::cin, line) || line == "/bye" || line == "/exit") {
      return typed ? 0 : status;
    }
    if (line.find_first_not_of(" \t\r") == std::string::npos) {
      continue;
    }
    const Result<void> answered = chat.ask(line);
    if (!answered && answered.error().code != Code::kCancelled) {
      status = fail(answered.error());
    }
  }
}

}  // namespace

int run(const ClientOptions& options, const std::string& model, const std::string& prompt) {
  const Result<HttpAddress> address = parse_server_address(options.url);
  if (!address) {
    return fail(address.error());
  }
  Client client(*address, options.access);
  if (stderr_is_terminal()) {
    client.watch_loading(model, [&model](std::optional<double> progress) {
      show_bar("loading " + printable(model), progress);
    });
  }
  Chat chat(client, model);
  if (prompt.empty()) {
    return converse(chat);
  }
  const Result<void> answered = chat.ask(prompt);
  return answered ? 0 : fail(answered.error());
}

}  // namespace heddle::cli
