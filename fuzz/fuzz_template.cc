// Chat templates, which come with models, and the conversations that clients send them: a prompt
// comes out, or an error, within the limits of time and memory.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "split.h"
#include "text/chat_template.h"

using namespace heddle;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto [source, messages, tools, variables] =
      fuzz::split<4>({reinterpret_cast<const char*>(data), size});
  const auto compiled = text::ChatTemplate::compile(source, R"({"eos_token": "</s>"})");
  if (!compiled) {
    HEDDLE_CHECK(!compiled.error().message.empty());
    return 0;
  }
  const text::Chat chat{
      .messages = messages, .tools = tools, .variables = variables, .unix_time = 1'700'000'000};
  const auto first = (*compiled)->render(chat);
  if (first) {
    const auto again = (*compiled)->render(chat);
    HEDDLE_CHECK(!again || *again == *first);  // Only a limit of time can come between them.
  } else {
    HEDDLE_CHECK(!first.error().message.empty());
  }
  return 0;
}
