#include "api/sse.h"

#include <gtest/gtest.h>

namespace heddle::api {
namespace {

TEST(Sse, EventsAndCommentsEndInAnEmptyLine) {
  EXPECT_EQ(sse_event("{\"a\":1}"), "data: {\"a\":1}\n\n");
  EXPECT_EQ(sse_event(kDone), "data: [DONE]\n\n");
  EXPECT_EQ(sse_comment("loading"), ": loading\n\n");
}

TEST(Sse, ACommentCannotSmuggleAnEvent) {
  EXPECT_EQ(sse_comment("a\ndata: b\r\n"), ": a data: b  \n\n");
}

TEST(SseDeath, AnEventIsOneLine) {
  EXPECT_DEATH((void)sse_event("a\nb"), "npos");
}

TEST(Sse, AnEventMayHaveAName) {
  EXPECT_EQ(sse_event("response.created", "{}"), "event: response.created\ndata: {}\n\n");
}

}  // namespace
}  // namespace heddle::api
