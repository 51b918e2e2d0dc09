#include <cstdio>
#include <ctime>
#include <optional>
#include <string>
#include <utility>

#include "base/units.h"
#include "cli/client.h"
#include "cli/raw_terminal.h"
#include "cli/terminal.h"
#include "cli/top_picture.h"
#include "cli/verbs.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace heddle::cli {
namespace {

std::int64_t wall_clock_ms() {
  timespec now{};
  (void)clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1'000'000;
}

Result<spec::Json> ask(Client& client, const std::string& path) {
  const Result<std::string> body = client.get(path);
  return body ? spec::parse_json(*body, path) : Result<spec::Json>(body.error());
}

/// Asks for all that is shown. What a key does not open stays away, and is said.
/// Without a list of models: an error.
Result<TopAnswers> look(Client& client, const std::string& server) {
  TopAnswers answers{.server = server, .now_ms = wall_clock_ms()};
  Result<spec::Json> models = ask(client, "/v1/models");
  if (!models) {
    return models.error();
  }
  answers.models = std::move(*models);
  const std::pair<const char*, spec::Json*> others[] = {{"/running", &answers.running},
                                                        {"/api/devices", &answers.devices},
                                                        {"/api/forecasts", &answers.forecasts},
                                                        {"/api/requests", &answers.requests},
                                                        {"/api/decisions", &answers.decisions}};
  for (const auto& [path, answer] : others) {
    if (Result<spec::Json> said = ask(client, path)) {
      *answer = std::move(*said);
    } else {
      answers.trouble = std::string(path) + ": " + said.error().message;
    }
  }
  return answers;
}

TopSize terminal_size() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
    return {};
  }
  // The last line stays empty: a line's end there would have the screen roll.
  return {.columns = size.ws_col, .rows = static_cast<std::size_t>(size.ws_row) - 1};
}

/// Waits for a key, as long as this. False: the looking is to end.
bool goes_on(Duration wait) {
  pollfd keys{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(wait).count();
  if (::poll(&keys, 1, static_cast<int>(ms)) <= 0) {
    return true;  // Time is up, or the window has another size.
  }
  constexpr char kCtrlC = 3;
  constexpr char kCtrlD = 4;
  char key = 0;
  return ::read(STDIN_FILENO, &key, 1) == 1 && key != 'q' && key != kCtrlC && key != kCtrlD;
}

/// A screen of its own on the terminal of stdout, for as long as this lives.
class OtherScreen {
 public:
  OtherScreen() { std::fputs("\x1b[?1049h\x1b[?25l", stdout); }  // And no cursor.
  ~OtherScreen() {
    std::fputs("\x1b[?25h\x1b[?1049l", stdout);
    std::fflush(stdout);
  }
  OtherScreen(const OtherScreen&) = delete;
  OtherScreen& operator=(const OtherScreen&) = delete;
};

/// Draws over the lines of before, which does not flicker as an empty screen would.
void show(const TopAnswers& answers) {
  std::string text = draw_top(answers, terminal_size(), true);
  const std::string end = "\x1b[K\r\n";
  for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += end.size()) {
    text.replace(at, 1, end);
  }
  std::fputs(("\x1b[H" + text + "\x1b[J").c_str(), stdout);
  std::fflush(stdout);
}

/// Looks and shows again and again, until a key ends it.
void keep_showing(Client& client, TopAnswers answers, Duration every) {
  const OtherScreen screen;
  for (show(answers); goes_on(every); show(answers)) {
    Result<TopAnswers> latest = look(client, answers.server);
    if (latest) {
      answers = std::move(*latest);
    } else {
      answers.trouble = "what is below is old: " + latest.error().message;
    }
  }
}

}  // namespace

int top(const ClientOptions& options, const std::string& every) {
  const Result<Duration> interval = parse_duration(every);
  if (!interval || *interval < std::chrono::milliseconds(100)) {
    return fail(Error{.code = Code::kInvalidArgument,
                      .message = "--every \"" + every + "\": want at least 100ms, as 1s"});
  }
  const Result<HttpAddress> address = parse_server_address(options.url);
  if (!address) {
    return fail(address.error());
  }
  Client client(*address, options.access);
  Result<TopAnswers> answers = look(client, address->url());
  if (!answers) {
    return fail(answers.error());
  }
  if (stdout_is_terminal()) {
    const RawTerminal terminal;
    if (terminal.works()) {
      keep_showing(client, std::move(*answers), *interval);
      return 0;
    }
  }
  // Nobody can end it: once, and whole.
  std::fputs(draw_top(*answers, {.columns = 120, .rows = 1000}, false).c_str(), stdout);
  return 0;
}

}  // namespace heddle::cli
