#include "config/capabilities.h"

namespace heddle::config {

namespace {

void check_modalities(Fields& f, std::string_view key, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (name != "text" && name != "audio" && name != "image") {
      f.reject(key, "\"" + name + "\" is not one of text, audio, image");
    }
  }
}

}  // namespace

void declare_capabilities(Fields& fields, Capabilities& capabilities) {
  fields.section(
      {"capabilities", "What it takes and gives, shown where models are listed."}, [&](Fields& f) {
        f.texts({"in", "What it takes, of text, audio and image."}, capabilities.in);
        check_modalities(f, "in", capabilities.in);
        f.texts({"out", "What it gives, likewise."}, capabilities.out);
        check_modalities(f, "out", capabilities.out);
        f.flag({"tools", "Whether it calls tools."}, capabilities.tools);
        f.flag({"reranker", "Whether it has /v1/rerank."}, capabilities.reranker);
        f.integer({"context", "Its context length in tokens; 0: as its files or command say it."},
                  {.least = 0},
                  capabilities.context);
      });
}

}  // namespace heddle::config
