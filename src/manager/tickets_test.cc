#include "manager/tickets.h"

#include <string>

#include <gtest/gtest.h>

namespace heddle::manager {
namespace {

TEST(Tickets, EachIsAnsweredOnceAndMayOpenAnother) {
  Tickets tickets;
  std::string seen;
  const auto note = [&](const char* name) {
    return [&seen, name](const Result<void>& done) {
      seen += std::string(name) + (done ? "+" : "-" + done.error().message);
    };
  };
  const core::TicketId first = tickets.open([&](const Result<void>& done) {
    note("first ")(done);
    (void)tickets.open(note("third"));
  });
  const core::TicketId second = tickets.open(note(" second "));
  EXPECT_NE(first, second);
  tickets.answer(first, std::nullopt);
  tickets.answer(second, Error{Code::kUnavailable, "gone"});
  EXPECT_EQ(seen, "first + second -gone");
}

}  // namespace
}  // namespace heddle::manager
