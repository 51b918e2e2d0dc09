#include "cli/top_picture.h"

#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

spec::Json said(const std::string& text) {
  const Result<spec::Json> json = spec::parse_json(text, "answer");
  EXPECT_TRUE(json) << text;
  return json ? *json : spec::Json();
}

TopAnswers two_models() {
  return {.server = "http://127.0.0.1:8080",
          .now_ms = 100'000,
          .models = said(R"({"data": [
              {"id": "adder", "status": {"value": "unloaded", "residency": "cold"}},
              {"id": "morse", "status": {"value": "loading", "residency": "loading",
                                         "device": "cpu0", "progress": 0.405}}]})"),
          .running = said(R"({"running": [{"model": "morse", "bytes": 1048576,
              "requests_running": 0, "requests_waiting": 2}]})"),
          .devices = said(R"({"devices": [{"name": "cpu0", "up": true, "page_bytes": 65536,
              "pages_total": 160, "pages_free": 80, "pages": {"kv_cached": {"held": 16}},
              "models": [{"model": "morse", "weights_pages": 64, "kv_pages": 0}]}],
              "host": {"pages_total": 0, "pages_free": 0}})"),
          .forecasts = said(R"({"models": [{"model": "morse", "expected_mean": 0.25,
              "expected_peak": 3, "starts": {"warm": 9, "hit": 1, "attach": 0, "miss": 2}}]})"),
          .requests = said(R"({"requests": [
              {"model": "morse", "running": true, "arrived_ms": 98000, "parts": []},
              {"model": "adder", "running": false, "arrived_ms": 30000, "status": 200, "parts": [
                {"prompt_tokens": 5, "completion_tokens": 6, "phases": {"total_ms": 9}},
                {"prompt_tokens": 5, "completion_tokens": 7, "phases":
                  {"queue_ms": 1, "load_ms": 30, "prefill_ms": 2, "decode_ms": 7,
                   "total_ms": 40}}]},
              {"model": "adder", "running": false, "arrived_ms": 20000, "status": 429,
               "error": "slow down", "parts": []}]})"),
          .decisions = said(R"({"decisions": [
              {"age_ms": 3000, "decision": "evict", "model": "adder", "device": "cpu0",
               "for": "morse", "why": "displaced"},
              {"age_ms": 2000, "decision": "load", "model": "morse", "device": "cpu0",
               "why": "a request waits"}]})")};
}

TEST(TopPicture, ShowsWhatGoesOn) {
  const std::string text = draw_top(two_models(), {}, false);
  EXPECT_THAT(text,
              HasSubstr("heddle at http://127.0.0.1:8080\n1 running, 1 came in the last "
                        "minute; first token 33.0 ms, 95th percentile 33.0 ms\n"));
  EXPECT_THAT(text, HasSubstr("] 6.00 MiB of 10.0 MiB free\n"));
  EXPECT_THAT(text, HasSubstr("cpu0 [BBB"));
  EXPECT_THAT(text,
              HasSubstr("b  morse  loading 41 %  cpu0    1.00 MiB  0        2        "
                        "0.2 / 3   9 / 1 / 0 / 2\n"));
  EXPECT_THAT(text,
              HasSubstr("2.00 s ago: load morse on cpu0: a request waits\n"
                        "3.00 s ago: evict adder on cpu0 for morse: displaced\n"));
  EXPECT_THAT(text,
              HasSubstr("morse: runs for 2.00 s\n"
                        "adder: 40.0 ms, queue 1.00 ms, load 30.0 ms, prefill 2.00 ms, "
                        "decode 7.00 ms; 10 + 13 tokens\n"
                        "adder: 429 slow down\n"));
}

TEST(TopPicture, NamesFewAdaptersAndCountsMany) {
  TopAnswers answers{.server = "s"};
  const auto with = [&](const std::string& adapters) {
    answers.devices = said(R"({"devices": [{"name": "cpu0", "up": true, "page_bytes": 65536,
        "pages_total": 160, "pages_free": 80, "adapters": [)" +
                           adapters + "]}]}");
    return draw_top(answers, {.columns = 100, .rows = 24}, false);
  };
  const std::string gone = R"({"name": "gone", "pages": 0})";
  EXPECT_THAT(with(gone), Not(HasSubstr("adapters")));
  EXPECT_THAT(with(gone + R"(, {"name": "sql", "pages": 16})"),
              HasSubstr("5.00 MiB of 10.0 MiB free, adapters sql of 1.00 MiB\n"));
  EXPECT_THAT(with(R"({"name": "a", "pages": 8}, {"name": "b", "pages": 8},
                      {"name": "c", "pages": 16})"),
              HasSubstr("free, 3 adapters of 2.00 MiB\n"));
}

TEST(TopPicture, WhatIsAskedForComesFirst) {
  const std::string text = draw_top(two_models(), {}, false);
  EXPECT_LT(text.find("b  morse"), text.find("a  adder"));
}

// A key that opens the list of models alone.
TEST(TopPicture, ShowsWhatTheKeyOpens) {
  TopAnswers answers{.server = "s", .trouble = "/running: not with this key"};
  answers.models = two_models().models;
  const std::string text = draw_top(answers, {}, false);
  EXPECT_THAT(text, HasSubstr("/running: not with this key\n"));
  EXPECT_THAT(text, HasSubstr("a  adder  cold"));
  EXPECT_THAT(text, Not(HasSubstr("DECISIONS")));
}

TEST(TopPicture, NamesHaveNoPowerOverTheTerminal) {
  TopAnswers answers{.server = "s"};
  answers.models = said(R"({"data": [{"id": "a\u001b[2J\nb"}]})");
  answers.devices = said(R"({"devices": [{"name": "d\u001b[2J", "pages_total": 1}]})");
  const std::string text = draw_top(answers, {}, false);
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, HasSubstr("a?[2J b"));
}

// Whatever there is to show and however small the terminal is, lines and columns are kept.
TEST(TopPicture, KeepsToTheTerminal) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    TopAnswers answers = two_models();
    std::string models;
    std::string devices;
    for (std::uint64_t i = 0; i < rng.below(60); ++i) {
      const std::string name = std::string(rng.below(30), 'm') + std::to_string(i);
      models += (i == 0 ? "" : ",") + (R"({"id": ")" + name + R"("})");
      devices += (i == 0 ? "" : ",") + (R"({"pages_total": 9, "name": ")" + name + R"("})");
    }
    answers.models = said(R"({"data": [)" + models + "]}");
    answers.devices = said(R"({"devices": [)" + devices + "]}");
    const TopSize size{.columns = 40 + rng.below(100), .rows = 8 + rng.below(60)};
    std::istringstream text(draw_top(answers, size, false));
    std::size_t rows = 0;
    for (std::string line; std::getline(text, line); ++rows) {
      EXPECT_LE(line.size(), size.columns) << line;
    }
    EXPECT_LE(rows, size.rows);
    EXPECT_GE(rows, 2U);
  }
}

}  // namespace
}  // namespace heddle::cli
