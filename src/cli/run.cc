#include <cstdio>
#include <iostream>
#include <iterator>
#include <string>

#include "cli/chat_settings.h"
#include "cli/client.h"
#include "cli/terminal.h"
#include "cli/typed_lines.h"
#include "cli/verbs.h"
#include "spec/json_view.h"
#include "spec/json_writer.h"

#include <sys/stat.h>
#include <unistd.h>

namespace heddle::cli {

namespace {

/// A conversation with one model.
class Chat {
 public:
  Chat(Client& client, std::string model, ChatSettings settings)
      : client_(client), model_(std::move(model)), settings_(std::move(settings)) {}

  [[nodiscard]] ChatSettings& settings() { return settings_; }
  /// Forgets what was said.
  void clear() { turns_.clear(); }

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
    std::string messages;
    if (!settings_.system.empty()) {
      add_turn(messages, "system", settings_.system);
    }
    messages += (messages.empty() ? "" : ",") + turns;
    return "{\"model\":" + name.text() + ",\"stream\":true,\"messages\":[" + messages + "]" +
           settings_.members() + "}";
  }

  Client& client_;
  std::string model_;
  ChatSettings settings_;
  std::string turns_{};  ///< JSON of the messages so far, with commas between.
};

constexpr const char* kHelp =
    "/help            this\n"
    "/clear           forgets the conversation\n"
    "/set             shows the settings: system, temperature, top_p, max_tokens, seed\n"
    "/set NAME VALUE  changes one; without a value it is the model's own again\n"
    "/bye             ends, as Ctrl-D does\n"
    "Up and Down bring earlier lines back. Ctrl-C ends an answer.\n";

/// What a line of slash commands asks; false for one that is a message.
bool obey(Chat& chat, const std::string& line) {
  if (line == "/help" || line == "/?") {
    std::fputs(kHelp, stderr);
  } else if (line == "/clear") {
    chat.clear();
  } else if (line == "/set") {
    std::fputs(chat.settings().shown().c_str(), stderr);
  } else if (line.starts_with("/set ")) {
    if (const Result<void> set = chat.settings().set(line.substr(5)); !set) {
      std::fprintf(stderr, "%s\n", printable(set.error().message).c_str());
    }
  } else {
    return false;
  }
  return true;
}

/// Answers line by line until the input ends. An answer that fails does not end a conversation, but
/// is what the exit status tells.
int converse(Chat& chat) {
  const bool typed = stdin_is_terminal();
  TypedLines lines;
  int status = 0;
  if (typed) {
    std::fputs("Type a message; /help tells what else there is, /bye ends the conversation.\n",
               stderr);
  }
  for (;;) {
    std::optional<std::string> line;
    if (typed) {
      line = lines.read(">>> ");
    } else if (std::string piped; std::getline(std::cin, piped)) {
      line = piped;
    }
    if (!line || *line == "/bye" || *line == "/exit") {
      return typed ? 0 : status;
    }
    if (line->find_first_not_of(" \t\r") == std::string::npos || obey(chat, *line)) {
      continue;
    }
    const Result<void> answered = chat.ask(*line);
    if (!answered && answered.error().code != Code::kCancelled) {
      status = fail(answered.error());
    }
  }
}

/// What is piped in, or comes from a file; empty where stdin is neither.
std::string piped_text() {
  struct stat input{};
  if (fstat(STDIN_FILENO, &input) != 0 || !(S_ISFIFO(input.st_mode) || S_ISREG(input.st_mode))) {
    return {};
  }
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

}  // namespace

int run(const ClientOptions& options, const RunOptions& asked) {
  const Result<HttpAddress> address = parse_server_address(options.url);
  if (!address) {
    return fail(address.error());
  }
  Client client(*address, options.access);
  if (stderr_is_terminal()) {
    client.watch_loading(asked.model, [&asked](std::optional<double> progress) {
      show_bar("loading " + printable(asked.model), progress);
    });
  }
  Chat chat(client, asked.model, {.system = asked.system, .temperature = asked.temperature});
  if (asked.prompt.empty()) {
    return converse(chat);
  }
  const Result<void> answered = chat.ask(joined_prompt(asked.prompt, piped_text()));
  return answered ? 0 : fail(answered.error());
}

}  // namespace heddle::cli
