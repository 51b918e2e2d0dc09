#include "api/event_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::api {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(EventReader, FindsEventsWhereverThePiecesEnd) {
  const std::string stream = ": loading\n\ndata: {\"a\":1}\n\ndata: {\"b\":2}\n\ndata: [DONE]\n\n";
  for (std::size_t piece = 1; piece <= stream.size(); ++piece) {
    EventReader reader;
    std::vector<std::string> all;
    for (std::size_t at = 0; at < stream.size(); at += piece) {
      for (std::string& event : reader.push(std::string_view(stream).substr(at, piece))) {
        all.push_back(std::move(event));
      }
    }
    EXPECT_THAT(all, ElementsAre("{\"a\":1}", "{\"b\":2}")) << piece;
  }
}

TEST(EventReader, TheBlankAndTheLineEndMayBeAnyThatServersSend) {
  EventReader reader;
  EXPECT_THAT(reader.push("data:a\r\n\r\nevent: x\ndata:  b\n\ndata:[DONE]\n\n"),
              ElementsAre("a", " b"));
}

TEST(EventReader, WaitsForTheEndOfALine) {
  EventReader reader;
  EXPECT_THAT(reader.push("data: x"), IsEmpty());
  EXPECT_THAT(reader.push("y\n"), ElementsAre("xy"));
}

}  // namespace
}  // namespace heddle::api
