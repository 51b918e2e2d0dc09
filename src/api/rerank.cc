#include "api/rerank.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "api/generation_params.h"
#include "spec/json_writer.h"

namespace heddle::api {

namespace {

namespace dom = simdjson::dom;

constexpr std::size_t kPairsMax = 2048;
constexpr std::int64_t kTopMax = 1 << 30;

void read_common(BodyReader& body, PairsRequest& request) {
  request.truncate = read_truncation(body);
  request.priority =
      static_cast<std::int32_t>(body.integer("priority", -1'000'000, 1'000'000).value_or(0));
  request.keep_alive = read_keep_alive(body);
  request.warnings = body.take_warnings({"user", "metadata"});
}

/// A document: a string, or an object with `text`.
std::optional<std::string> document_of(dom::element item) {
  std::string_view text;
  dom::object object;
  if (item.get_object().get(object) == simdjson::SUCCESS &&
      object.at_key("text").get(item) != simdjson::SUCCESS) {
    return std::nullopt;
  }
  return item.get_string().get(text) == simdjson::SUCCESS ? std::optional(std::string(text))
                                                          : std::nullopt;
}

void read_documents(BodyReader& body, PairsRequest& request) {
  const std::optional<dom::element> value = body.find("documents");
  dom::array list;
  if (!value || value->get_array().get(list) != simdjson::SUCCESS || list.size() == 0) {
    const std::string want = "want a list of one text or more";
    body.fail(invalid_request("documents",
                              value ? "documents: is " + describe(*value) + "; " + want
                                    : "documents: is missing; " + want));
    return;
  }
  if (list.size() > kPairsMax) {
    body.fail(invalid_request("documents",
                              "documents: are " + std::to_string(list.size()) + "; want at most " +
                                  std::to_string(kPairsMax)));
    return;
  }
  for (const dom::element item : list) {
    const std::string param = "documents[" + std::to_string(request.pairs.size()) + "]";
    std::optional<std::string> text = document_of(item);
    if (!text) {
      body.fail(invalid_request(
          param,
          param + ": is " + describe(item) + R"(; want a string, or an object with "text")"));
      return;
    }
    request.pairs.push_back({.second = *std::move(text), .param = param});
  }
}

/// One text or several.
std::vector<std::string> read_some(BodyReader& body, std::string_view key) {
  constexpr std::string_view kWant = "a string, or a list of one string or more";
  std::vector<std::string> texts;
  const std::optional<dom::element> value = body.find(key);
  if (!value) {
    body.fail(invalid_request(std::string(key),
                              std::string(key) + ": is missing; want " + std::string(kWant)));
    return texts;
  }
  std::string_view text;
  if (value->get_string().get(text) == simdjson::SUCCESS) {
    return {std::string(text)};
  }
  dom::array list;
  if (value->get_array().get(list) != simdjson::SUCCESS || list.size() == 0) {
    body.reject(key, *value, kWant);
    return texts;
  }
  for (const dom::element item : list) {
    if (item.get_string().get(text) != simdjson::SUCCESS) {
      body.reject(key, item, kWant);
      return texts;
    }
    texts.emplace_back(text);
  }
  return texts;
}

void begin_answer(spec::JsonWriter& json, const std::string& id, const PairsRequest& request) {
  json.begin_object().key("id").string(id).key("model").string(request.model);
}

void write_usage(spec::JsonWriter& json, std::int64_t tokens) {
  json.key("usage").begin_object().key("prompt_tokens").integer(tokens);
  json.key("total_tokens").integer(tokens).end_object();
}

}  // namespace

Parsed<PairsRequest> parse_rerank_request(std::string_view text) {
  BodyReader body(text);
  PairsRequest request;
  request.model = body.required_text("model", kModelExample);
  const std::optional<std::string> query = body.text("query");
  if (body.ok() && !query) {
    body.fail(invalid_request("query", "query: is missing; want a string"));
  }
  request.firsts.push_back(query.value_or(""));
  read_documents(body, request);
  request.top_n = body.integer("top_n", 1, kTopMax);
  request.return_documents = body.flag("return_documents").value_or(true);
  read_common(body, request);
  if (!body.ok()) {
    return body.error();
  }
  return request;
}

Parsed<PairsRequest> parse_score_request(std::string_view text) {
  BodyReader body(text);
  PairsRequest request;
  request.model = body.required_text("model", kModelExample);
  request.firsts = read_some(body, "text_1");
  const std::vector<std::string>& firsts = request.firsts;
  const std::vector<std::string> seconds = read_some(body, "text_2");
  read_common(body, request);
  if (body.ok() && firsts.size() != seconds.size() && firsts.size() > 1) {
    body.fail(invalid_request("text_2",
                              "text_2: are " + std::to_string(seconds.size()) +
                                  "; want as many as text_1 has, which are " +
                                  std::to_string(firsts.size()) + ", or one text_1"));
  }
  if (body.ok() && seconds.size() > kPairsMax) {
    body.fail(invalid_request("text_2",
                              "text_2: are " + std::to_string(seconds.size()) + "; want at most " +
                                  std::to_string(kPairsMax)));
  }
  if (!body.ok()) {
    return body.error();
  }
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    request.pairs.push_back({.first = firsts.size() > 1 ? i : 0,
                             .second = seconds[i],
                             .param = "text_2[" + std::to_string(i) + "]"});
  }
  return request;
}

double relevance(float logit) {
  return 1.0 / (1.0 + std::exp(-static_cast<double>(logit)));
}

std::string rerank_json(const std::string& id,
                        const PairsRequest& request,
                        const std::vector<float>& logits,
                        std::int64_t tokens) {
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  if (request.top_n && std::cmp_less(*request.top_n, order.size())) {
    order.resize(static_cast<std::size_t>(*request.top_n));
  }
  spec::JsonWriter json;
  begin_answer(json, id, request);
  write_usage(json, tokens);
  json.key("results").begin_array();
  for (const std::size_t i : order) {
    json.begin_object().key("index").integer(i);
    if (request.return_documents) {
      json.key("document").begin_object().key("text").string(request.pairs[i].second).end_object();
    }
    json.key("relevance_score").number(relevance(logits[i])).end_object();
  }
  json.end_array().end_object();
  return std::move(json).take();
}

std::string scores_json(const std::string& id,
                        std::int64_t created,
                        const PairsRequest& request,
                        const std::vector<float>& logits,
                        std::int64_t tokens) {
  spec::JsonWriter json;
  begin_answer(json, id, request);
  json.key("object").string("list").key("created").integer(created).key("data").begin_array();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    json.begin_object().key("index").integer(i).key("object").string("score");
    json.key("score").number(relevance(logits[i])).end_object();
  }
  json.end_array();
  write_usage(json, tokens);
  json.end_object();
  return std::move(json).take();
}

}  // namespace heddle::api
