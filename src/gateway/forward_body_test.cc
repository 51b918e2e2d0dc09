#include "gateway/forward_body.h"

#include <gtest/gtest.h>

namespace heddle::gateway {
namespace {

HttpRequest json_request(std::string body) {
  return {.method = "POST", .headers = {{"Content-Type", "application/json"}}, .body = body};
}

HttpRequest form_request(const std::string& body) {
  return {.method = "POST",
          .headers = {{"Content-Type", "multipart/form-data; charset=x; boundary=\"b-1\""}},
          .body = body};
}

const std::string kForm =
    "preamble\r\n--b-1\r\nContent-Disposition: form-data; name=\"file\"; filename=\"model\"\r\n"
    "Content-Type: audio/wav\r\n\r\nRIFF\r\n--b-\r\nname=\"model\"\r\n\r\nwrong\r\n--b-1\r\n"
    "Content-Disposition: form-data; name=\"model\"\r\n\r\norg/ear\r\n--b-1\r\n"
    "content-disposition: form-data;name=stream\r\n\r\ntrue\r\n--b-1--\r\n";

TEST(ForwardBody, ReadsWhatJsonSays) {
  const auto facts =
      read_facts(json_request(R"({"messages":[{"model":"no"}], "model":"a\/b", "stream" : true,
                                  "priority":-3})"));
  ASSERT_TRUE(facts);
  EXPECT_EQ(facts->model, "a/b");
  EXPECT_TRUE(facts->stream);
  EXPECT_EQ(facts->priority, -3);
  EXPECT_FALSE(read_facts(json_request(R"({"model":"a","stream":"true"})"))->stream);
  EXPECT_EQ(read_facts(json_request(R"({"priority":1.5,"model":7})"))->priority, std::nullopt);
  EXPECT_EQ(read_facts(json_request("[1]")).error().code, Code::kInvalidArgument);
}

TEST(ForwardBody, ReadsWhatFormsSay) {
  const auto facts = read_facts(form_request(kForm));
  ASSERT_TRUE(facts);
  EXPECT_EQ(facts->model, "org/ear");
  EXPECT_TRUE(facts->stream);
  for (std::size_t size = 0; size < kForm.size(); ++size) {  // However it is cut off.
    const auto cut = read_facts(form_request(kForm.substr(0, size)));
    ASSERT_TRUE(cut && (cut->model.empty() || cut->model == "org/ear")) << size;
  }
}

TEST(ForwardBody, StaysAsItIsWithoutFilters) {
  const std::string body = " {\"model\" : \"x\",\n\t\"temperature\":1e0 }\n";
  EXPECT_EQ(filtered_body(json_request(body), {}, "", "x"), body);
  EXPECT_EQ(filtered_body(form_request(kForm), {}, "", "org/ear"), kForm);
}

TEST(ForwardBody, IsFiltered) {
  config::EngineConfig engine;
  engine.served_name = "served \"name\"";
  engine.filters.strip_params = {"temperature", "model"};
  engine.filters.set_params = {{"top_k", "5"}, {"seed", "1"}};
  engine.filters.set_params_by_id = {{"x:high", {{"reasoning_effort", "\"high\""}, {"seed", "2"}}}};
  const std::string body = R"({"model": "x", "temperature": 1, "stop": ["temperature"],"top_k":9})";
  EXPECT_EQ(filtered_body(json_request(body), engine.filters, engine.served_name, "x"),
            R"({"model": "served \"name\"", "stop": ["temperature"],"top_k":5,"seed":1})");
  EXPECT_EQ(filtered_body(json_request(body), engine.filters, engine.served_name, "x:high"),
            R"({"model": "served \"name\"", "stop": ["temperature"],"top_k":5,)"
            R"("reasoning_effort":"high","seed":2})");
}

TEST(ForwardBody, TheModelIsNeverStripped) {
  config::EngineConfig engine;
  engine.filters.strip_params = {"model", "x"};
  EXPECT_EQ(filtered_body(
                json_request(R"({"model":"m","x":1})"), engine.filters, engine.served_name, "m"),
            R"({"model":"m"})");
}

TEST(ForwardBody, FormsGetTheNameThatTheEngineKnows) {
  config::EngineConfig engine;
  engine.served_name = "whisper";
  std::string expected = kForm;
  expected.replace(expected.find("org/ear"), 7, "whisper");
  EXPECT_EQ(filtered_body(form_request(kForm), engine.filters, engine.served_name, "org/ear"),
            expected);
}

}  // namespace
}  // namespace heddle::gateway
