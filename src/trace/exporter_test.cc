#include "trace/exporter.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "http/test_server.h"

namespace heddle::trace {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

/// An exporter before a collector that gives the answers it was given.
class ExporterTest : public testing::Test {
 protected:
  void start(std::vector<std::string> answers) {
    collector = std::make_unique<http::TestServer>(loop, std::move(answers));
    options.collector = collector->address();
    options.collector.base_path = "/v1/traces";
    auto started = Exporter::start(options, metrics);
    ASSERT_TRUE(started) << started.error().message;
    exporter = std::move(*started);
  }
  /// So many spans, of names that begin with `name`.
  static std::vector<Span> spans(const std::string& name, int count) {
    std::vector<Span> all;
    for (int i = 0; i < count; ++i) {
      all.push_back({.name = name + std::to_string(i), .id = SpanId(1)});
    }
    return all;
  }
  /// Until that holds, whatever the collector hears and says.
  template <class Condition>
  void run_until(Condition holds) {
    while (!holds()) {
      loop.restart();
      loop.run_one_for(1ms);
    }
  }
  void flush(Duration patience = 1min) {
    bool done = false;
    exporter->flush(patience, [&] { boost::asio::post(loop, [&] { done = true; }); });
    run_until([&] { return done; });
  }
  [[nodiscard]] bool counted(const std::string& what, int spans) {
    return metrics.expose().find("heddle_trace_spans_" + what + "_total " + std::to_string(spans) +
                                 "\n") != std::string::npos;
  }

  boost::asio::io_context loop{1};
  Metrics metrics{};
  std::unique_ptr<http::TestServer> collector{};
  Exporter::Options options{.headers = {{"Authorization", "Basic c2VjcmV0"}},
                            .resource = {{"service.name", std::string("heddle")}},
                            .gather = 1h,
                            .first_wait = 1ms};
  std::unique_ptr<Exporter> exporter{};
};

TEST_F(ExporterTest, SendsAllThatWaitsTogether) {
  start({http::answer_of("{}")});
  exporter->add(spans("one", 2));
  exporter->add(spans("two", 1));
  flush();
  ASSERT_EQ(collector->heard.size(), 1U);
  const std::string& heard = collector->heard[0];
  EXPECT_TRUE(heard.starts_with("POST /v1/traces HTTP/1.1\r\n")) << heard;
  EXPECT_THAT(heard, HasSubstr("Authorization: Basic c2VjcmV0\r\n"));
  EXPECT_THAT(heard, HasSubstr("Content-Type: application/json\r\n"));
  for (const char* part : {"one0", "one1", "two0", "service.name"}) {
    EXPECT_THAT(heard, HasSubstr(part));
  }
  EXPECT_TRUE(counted("sent", 3)) << metrics.expose();
  EXPECT_TRUE(counted("dropped", 0)) << metrics.expose();
  EXPECT_TRUE(counted("failed", 0)) << metrics.expose();
}

TEST_F(ExporterTest, ABatchThatIsFullDoesNotWait) {
  options.batch_max = 2;
  start({http::answer_of("{}")});
  exporter->add(spans("a", 1));
  exporter->add(spans("b", 1));
  run_until([&] { return counted("sent", 2); });
  EXPECT_EQ(collector->heard.size(), 1U);
}

TEST_F(ExporterTest, LaterSpansComeInLaterRequests) {
  options.gather = 1ms;
  start({http::answer_of("{}"), http::answer_of("{}")});
  exporter->add(spans("a", 1));
  run_until([&] { return counted("sent", 1); });
  exporter->add(spans("b", 1));
  run_until([&] { return counted("sent", 2); });
  EXPECT_THAT(collector->heard.at(1), HasSubstr("b0"));
}

TEST_F(ExporterTest, TriesAgainWhatMayBeTakenLater) {
  options.gather = 1ms;
  start({http::answer_of("busy", "HTTP/1.1 503 Busy\r\nRetry-After: 0"),
         http::answer_of("", "HTTP/1.1 429 Slow Down"),
         http::answer_of("{}")});
  exporter->add(spans("a", 1));
  run_until([&] { return counted("sent", 1); });
  EXPECT_EQ(collector->heard.size(), 3U);
  EXPECT_THAT(collector->heard.at(2), HasSubstr("a0"));
  EXPECT_TRUE(counted("failed", 0)) << metrics.expose();
}

TEST_F(ExporterTest, CountsWhatIsNotTaken) {
  options.gather = 1ms;
  options.tries = 2;
  start({http::answer_of("what?", "HTTP/1.1 400 Bad"),
         http::answer_of("", "HTTP/1.1 502 Bad"),
         http::answer_of("", "HTTP/1.1 502 Bad"),
         http::answer_of(R"({"partialSuccess":{"rejectedSpans":"1","errorMessage":"old"}})")});
  exporter->add(spans("refused", 2));
  run_until([&] { return counted("failed", 2); });
  exporter->add(spans("in vain", 1));
  run_until([&] { return counted("failed", 3); });
  exporter->add(spans("in part", 3));
  run_until([&] { return counted("failed", 4); });
  EXPECT_TRUE(counted("sent", 2)) << metrics.expose();
  EXPECT_EQ(collector->heard.size(), 4U);
}

TEST_F(ExporterTest, WhatFindsNoRoomIsDroppedAndCounted) {
  options.waiting_max = 2;
  start({http::answer_of("{}")});
  exporter->add(spans("a", 2));
  exporter->add(spans("b", 1));
  flush();
  EXPECT_TRUE(counted("dropped", 1)) << metrics.expose();
  EXPECT_TRUE(counted("sent", 2)) << metrics.expose();
}

TEST_F(ExporterTest, AFlushEndsThoughNobodyAnswers) {
  start({""});
  exporter->add(spans("a", 1));
  flush(20ms);
  EXPECT_TRUE(counted("sent", 0)) << metrics.expose();
}

TEST_F(ExporterTest, AFlushDoesNotWaitForTheNextTry) {
  options.first_wait = 1h;
  options.batch_max = 1;
  start({http::answer_of("", "HTTP/1.1 503 Busy"), http::answer_of("{}"), http::answer_of("{}")});
  exporter->add(spans("a", 2));
  run_until([&] { return collector->heard.size() == 1; });
  flush();
  // Where the first answer has come before, that batch is tried once more.
  EXPECT_TRUE(counted("sent", 2) || (counted("sent", 1) && counted("failed", 1)))
      << metrics.expose();
}

TEST_F(ExporterTest, EndsWhileItWaitsForAnAnswer) {
  options.gather = 1ms;
  start({""});
  exporter->add(spans("a", 1));
  run_until([&] { return collector->heard.size() == 1; });
  exporter.reset();
  EXPECT_TRUE(counted("sent", 0)) << metrics.expose();
}

TEST_F(ExporterTest, ACollectorThatIsAwayCostsSpansAlone) {
  options.gather = 1ms;
  options.tries = 2;
  options.collector.port = http::free_port();
  auto started = Exporter::start(options, metrics);
  ASSERT_TRUE(started) << started.error().message;
  (*started)->add(spans("a", 3));
  run_until([&] { return counted("failed", 3); });
  EXPECT_TRUE(counted("sent", 0)) << metrics.expose();
}

}  // namespace
}  // namespace heddle::trace
