// Logs of earlier versions, replayed: what the manager heard gives the same commands. They come
// from worlds with faults, from tests, and from `heddle serve` with models that alternate, with
// groups and with external engines.

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "base/test_places.h"
#include "core/codec.h"

namespace heddle::core {
namespace {

TEST(ManagerReplay, LogsOfEarlierVersionsGiveTheSameCommands) {
  int logs = 0;
  std::int64_t events = 0;
  const std::filesystem::path folder = places::source("src/core/manager/logs");
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    SCOPED_TRACE(entry.path().filename().string());
    std::ifstream file(entry.path());
    std::stringstream text;
    text << file.rdbuf();
    ManagerCore core;
    const Result<std::int64_t> replayed = replay(core, text.str());
    ASSERT_TRUE(replayed) << replayed.error().message;
    ++logs;
    events += *replayed;
  }
  EXPECT_GE(logs, 12);
  EXPECT_GT(events, 1000);
}

TEST(ManagerReplay, ACommandThatDiffersIsNamed) {
  const std::string log =
      R"({"at":1,"event":{"RequestCancelled":{"request":1}}}
{"command":{"Hold":{"request":1}}}
)";
  ManagerCore core;
  const Result<std::int64_t> replayed = replay(core, log);
  ASSERT_FALSE(replayed);
  EXPECT_EQ(replayed.error().code, Code::kFailedPrecondition);
  EXPECT_NE(replayed.error().message.find("Hold"), std::string::npos) << replayed.error().message;
}

}  // namespace
}  // namespace heddle::core
