#include "text/chat_template.h"

#include "text/rust_abi.h"

namespace heddle::text {

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::compile(std::string_view source,
                                                                  std::string_view defaults) {
  heddle_text_template* handle = nullptr;
  const Result<void> compiled = rust::checked([&](auto* error) {
    return heddle_text_template_compile(rust::lend(source), rust::lend(defaults), &handle, error);
  });
  if (!compiled) {
    return compiled.error();
  }
  // Not make_shared: the constructor is private.
  return std::shared_ptr<const ChatTemplate>(new ChatTemplate(handle));
}

ChatTemplate::~ChatTemplate() {
  heddle_text_template_free(handle_);
}

Result<std::string> ChatTemplate::render(const Chat& chat) const {
  const heddle_text_render_arguments arguments{
      .messages = rust::lend(chat.messages),
      .tools = rust::lend(chat.tools),
      .variables = rust::lend(chat.variables),
      .now = chat.unix_time.value_or(-1),
      .add_generation_prompt = chat.add_generation_prompt,
  };
  rust::ByteBuffer text;
  const Result<void> rendered = rust::checked([&](auto* error) {
    return heddle_text_template_render(handle_, &arguments, text.out(), error);
  });
  if (!rendered) {
    return rendered.error();
  }
  return std::string(text.view());
}

}  // namespace heddle::text
