#include "bench/report.h"

#include <cstdio>

#include "spec/json_writer.h"

namespace heddle::bench {

namespace {

std::string fixed(double value, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

/// Milliseconds, with three digits that matter.
std::string milliseconds(double seconds) {
  const double value = seconds * 1000;
  return fixed(value, value < 10 ? 2 : value < 100 ? 1 : 0);
}

std::string percentiles(const sim::Quantiles& of) {
  return of.count() == 0 ? "-"
                         : milliseconds(of.at(0.5)) + " " + milliseconds(of.at(0.95)) + " " +
                               milliseconds(of.at(0.99));
}

std::vector<std::string> row_of(const Results& results, const Summary& summary) {
  const double part = summary.requests > 0 ? static_cast<double>(summary.good) /
                                                 static_cast<double>(summary.requests)
                                           : 0;
  return {summary.model,
          std::to_string(summary.requests),
          std::to_string(summary.failed),
          fixed(results.per_second(summary.requests - summary.failed), 2),
          fixed(results.per_second(summary.prompt_tokens), 0),
          fixed(results.per_second(summary.completion_tokens), 0),
          percentiles(summary.ttft),
          percentiles(summary.tpot),
          percentiles(summary.itl),
          fixed(results.per_second(summary.good), 2) + " (" + fixed(100 * part, 1) + " %)"};
}

void write_distribution(spec::JsonWriter& json, const char* name, const sim::Quantiles& of) {
  const sim::Distribution found = of.distribution();
  json.key(name).begin_object().key("count").integer(found.count).key("mean").number(found.mean);
  for (const auto& [key, part] :
       {std::pair("p50", 0.5), {"p90", 0.9}, {"p95", 0.95}, {"p99", 0.99}}) {
    json.key(key).number(of.at(part));
  }
  json.key("max").number(found.most).end_object();
}

void write_summary(spec::JsonWriter& json, const Results& results, const Summary& summary) {
  json.begin_object().key("model").string(summary.model);
  json.key("requests").integer(summary.requests).key("failed").integer(summary.failed);
  json.key("good").integer(summary.good);
  json.key("prompt_tokens").integer(summary.prompt_tokens);
  json.key("completion_tokens").integer(summary.completion_tokens);
  json.key("requests_per_second").number(results.per_second(summary.requests - summary.failed));
  json.key("goodput").number(results.per_second(summary.good));
  json.key("completion_tokens_per_second").number(results.per_second(summary.completion_tokens));
  write_distribution(json, "ttft", summary.ttft);
  write_distribution(json, "tpot", summary.tpot);
  write_distribution(json, "itl", summary.itl);
  write_distribution(json, "latency", summary.latency);
  json.end_object();
}

/// A moment that has not come is null.
void write_moment(spec::JsonWriter& json, std::string_view key, Duration moment) {
  json.key(key);
  if (moment == Duration{}) {
    json.null();
  } else {
    json.number(to_seconds(moment));
  }
}

void write_row(spec::JsonWriter& json, const Results& results, const Row& row) {
  json.begin_object().key("model").string(results.models().at(row.model).model);
  json.key("due").number(to_seconds(row.due)).key("begun").number(to_seconds(row.begun));
  write_moment(json, "first", row.first);
  write_moment(json, "last", row.last);
  json.key("ended").number(to_seconds(row.ended));
  json.key("prompt_tokens").integer(row.prompt_tokens);
  json.key("completion_tokens").integer(row.completion_tokens);
  if (!row.error.empty()) {
    json.key("error").string(row.error);
  }
  json.end_object();
}

}  // namespace

std::vector<std::vector<std::string>> report_table(const Results& results) {
  std::vector<std::vector<std::string>> rows{{"MODEL",
                                              "REQUESTS",
                                              "FAILED",
                                              "REQ/S",
                                              "TOK/S IN",
                                              "TOK/S OUT",
                                              "TTFT P50 P95 P99",
                                              "TPOT P50 P95 P99",
                                              "ITL P50 P95 P99",
                                              "GOODPUT"}};
  for (const Summary& model : results.models()) {
    rows.push_back(row_of(results, model));
  }
  if (results.models().size() > 1) {
    rows.push_back(row_of(results, results.all()));
  }
  return rows;
}

std::vector<std::string> report_notes(const Results& results) {
  std::vector<std::string> notes;
  const sim::Quantiles& late = results.lateness();
  notes.push_back("Times in ms. Requests were begun " + milliseconds(late.at(0.5)) +
                  " ms after they were due (median; P99 " + milliseconds(late.at(0.99)) +
                  " ms, at most " + milliseconds(late.at(1)) + " ms).");
  for (const auto& [message, count] : results.errors()) {
    notes.push_back(std::to_string(count) + " failed: " + message);
  }
  return notes;
}

std::string report_json(const Results& results, const Circumstances& circumstances) {
  spec::JsonWriter json;
  json.begin_object().key("circumstances").begin_object();
  for (const auto& [name, value] : circumstances) {
    json.key(name).string(value);
  }
  json.end_object().key("seconds").number(to_seconds(results.span()));
  json.key("slo").begin_object();
  for (const auto& [name, limit] :
       {std::pair("ttft", results.slo().ttft), {"tpot", results.slo().tpot}}) {
    json.key(name);
    if (limit) {
      json.number(to_seconds(*limit));
    } else {
      json.null();
    }
  }
  json.end_object();
  write_distribution(json, "lateness", results.lateness());
  json.key("errors").begin_object();
  for (const auto& [message, count] : results.errors()) {
    json.key(message).integer(count);
  }
  json.end_object().key("all");
  write_summary(json, results, results.all());
  json.key("models").begin_array();
  for (const Summary& model : results.models()) {
    write_summary(json, results, model);
  }
  json.end_array().key("requests").begin_array();
  for (const Row& row : results.rows()) {
    write_row(json, results, row);
  }
  json.end_array().end_object();
  return std::move(json).take();
}

}  // namespace heddle::bench
