#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "base/test_directory.h"
#include "batches/book.h"
#include "gateway/test_gateway.h"

namespace heddle::gateway {

/// Where they are; outlives the gateway.
class BatchFolder {
 protected:
  TempDirectory folder{};
};

/// A gateway that has files and batches.
class BatchesTest : protected BatchFolder, public GatewayTest {
 protected:
  BatchesTest() {
    options.batches = open();
    config.batches.quiet = {};
  }

  [[nodiscard]] std::shared_ptr<batches::Book> open() const {
    Result<std::unique_ptr<batches::Book>> book =
        batches::Book::open((folder.path() / "batches").string(), {});
    EXPECT_TRUE(book);
    return std::move(*book);
  }

  /// A form with this file.
  static std::string form(const std::string& content,
                          const std::string& purpose = "batch",
                          const std::string& name = "in.jsonl") {
    return "--x\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\n" + purpose +
           "\r\n--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"" + name +
           "\"\r\n\r\n" + content + "\r\n--x--\r\n";
  }
  [[nodiscard]] TestResponse upload(const std::string& content,
                                    const std::string& headers = {}) const {
    return call("POST",
                "/v1/files",
                form(content),
                "Content-Type: multipart/form-data; boundary=x\r\n" + headers);
  }
  /// The id of a file with this content.
  [[nodiscard]] std::string file(const std::string& content) const {
    return nlohmann::json::parse(upload(content).body)["id"];
  }
  static std::string line(const std::string& name, const std::string& model = "tiny") {
    return R"({"custom_id":")" + name +
           R"(","method":"POST","url":"/v1/chat/completions","body":{"model":")" + model +
           R"(","messages":[{"role":"user","content":"hi"}]}})" + "\n";
  }
  [[nodiscard]] static std::string batch_body(const std::string& input) {
    return R"({"input_file_id":")" + input +
           R"(","endpoint":"/v1/chat/completions","completion_window":"24h"})";
  }
  /// The id of a batch of this content.
  [[nodiscard]] std::string batch(const std::string& content) const {
    return ask("POST", "/v1/batches", batch_body(file(content)))["id"];
  }
  /// The batch, once `holds` says so of it.
  template <class Condition>
  nlohmann::json await(const std::string& id, Condition holds) const {
    nlohmann::json told;
    for (int i = 0; i < 2000; ++i) {
      told = ask("GET", "/v1/batches/" + id);
      if (holds(told)) {
        return told;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ADD_FAILURE() << "it came to nothing: " << told.dump();
    return told;
  }
  [[nodiscard]] nlohmann::json await_state(const std::string& id, const std::string& state) const {
    return await(id, [&state](const nlohmann::json& told) { return told["status"] == state; });
  }
  /// Lines of a file that a batch has made, by their names.
  [[nodiscard]] std::map<std::string, nlohmann::json> lines_of(const nlohmann::json& id) const {
    const std::string content = call("GET", "/v1/files/" + id.get<std::string>() + "/content").body;
    std::map<std::string, nlohmann::json> lines;
    for (std::size_t at = 0; at < content.size();) {
      const std::size_t end = content.find('\n', at);
      nlohmann::json one = nlohmann::json::parse(content.substr(at, end - at));
      const std::string name = one["custom_id"].is_null() ? "" : one["custom_id"];
      EXPECT_TRUE(lines.emplace(name, std::move(one)).second) << name << " is there twice";
      at = end + 1;
    }
    return lines;
  }
};

}  // namespace heddle::gateway
