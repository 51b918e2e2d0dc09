#include "trace/trace_context.h"

#include <gtest/gtest.h>

namespace heddle::trace {
namespace {

constexpr TraceId kTrace{.high = 0x4bf92f3577b34da6, .low = 0xa3ce929d0e0e4736};
constexpr SpanId kSpan{0x00f067aa0ba902b7};

TEST(TraceParent, IsReadAndWritten) {
  const std::string text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  const TraceContext context{.trace = kTrace, .span = kSpan, .sampled = true};
  EXPECT_EQ(parse_traceparent(text), context);
  EXPECT_EQ(traceparent(context), text);
  EXPECT_EQ(hex(kTrace) + " " + hex(kSpan), "4bf92f3577b34da6a3ce929d0e0e4736 00f067aa0ba902b7");
}

TEST(TraceParent, OfItsFlagsOnlyTheFirstBitIsKnown) {
  const std::string ids = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-";
  EXPECT_FALSE(parse_traceparent(ids + "00")->sampled);
  EXPECT_FALSE(parse_traceparent(ids + "fe")->sampled);
  EXPECT_TRUE(parse_traceparent(ids + "03")->sampled);
  EXPECT_EQ(traceparent(*parse_traceparent(ids + "ff")), ids + "01");
}

TEST(TraceParent, OfLaterVersionsTheFirstFourFieldsAreRead) {
  const std::string fields = "-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  for (const std::string& text : {"01" + fields, "cc" + fields + "-what-the-future-holds"}) {
    const auto context = parse_traceparent(text);
    ASSERT_TRUE(context) << text;
    EXPECT_EQ(context->trace, kTrace);
  }
  EXPECT_FALSE(parse_traceparent("cc" + fields + ".what"));
}

TEST(TraceParent, WhatIsNoneIsThrownAway) {
  for (const char* text : {
           "",
           "00",
           "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
           "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
           "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-011",
           "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
           "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
           "0x-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
           "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
           "00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01",
           "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0g",
           "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
           "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
           "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
           "00-4bf92f3577b34da6a3ce929d0e0e4736 00f067aa0ba902b7-01",
           "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7 01",
           " 0-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
           "00-4bf92f3577b34da6-a3ce929d0e0e4736-00f067aa0ba902b7-01",
       }) {
    EXPECT_FALSE(parse_traceparent(text)) << text;
  }
}

TEST(Ids, AreDrawnAndNever0) {
  Rng rng(7);
  const TraceId one = draw_trace_id(rng);
  const TraceId other = draw_trace_id(rng);
  EXPECT_NE(one, other);
  EXPECT_NE(draw_span_id(rng), draw_span_id(rng));
  EXPECT_NE(one, TraceId{});
}

TEST(Sampling, KeepsThePartThatIsAskedFor) {
  Rng rng(1);
  int kept = 0;
  for (int i = 0; i < 10'000; ++i) {
    const TraceId id = draw_trace_id(rng);
    const bool among = is_among(id, 0.25);
    kept += among ? 1 : 0;
    EXPECT_EQ(is_among(id, 0.25), among);
    EXPECT_TRUE(!among || is_among(id, 0.5)) << "who keeps more keeps those, too";
    EXPECT_FALSE(is_among(id, 0));
    EXPECT_TRUE(is_among(id, 1));
  }
  EXPECT_NEAR(kept, 2500, 200);
  EXPECT_TRUE(is_among({.high = 0, .low = ~std::uint64_t{0}}, 1));
}

}  // namespace
}  // namespace heddle::trace
