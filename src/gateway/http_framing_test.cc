#include "gateway/http_framing.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace heddle::gateway {
namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;

/// The status that a request, or an answer, of these fields gets; 0: none, it is taken.
int status_of(const Fields& fields, bool is_11 = true, bool is_request = true) {
  HttpFraming framing;
  for (const auto& [name, value] : fields) {
    framing.add(name, value);
  }
  const auto fault = is_request ? framing.fault_of_request(is_11) : framing.fault_of_answer(is_11);
  return fault ? fault->status : 0;
}

TEST(HttpFraming, TransferEncodingIsChunkedOnceAndAlone) {
  const auto with = [](const std::string& value) {
    return status_of({{"Host", "a"}, {"Transfer-Encoding", value}});
  };
  EXPECT_EQ(with("chunked"), 0);
  EXPECT_EQ(with("CHUNKED"), 0);
  for (const char* value : {"xchunked",
                            "chunked, identity",
                            "gzip, chunked",
                            "chunked, chunked",
                            "identity",
                            "",
                            ",chunked",
                            "chunked;q=1",
                            "\"chunked\"",
                            "chunked\v"}) {
    EXPECT_EQ(with(value), 501) << value;
  }
  EXPECT_EQ(
      status_of(
          {{"Host", "a"}, {"Transfer-Encoding", "chunked"}, {"transfer-encoding", "chunked"}}),
      400);
  EXPECT_EQ(status_of({{"Host", "a"}, {"Transfer-Encoding", "chunked"}}, /*is_11=*/false), 400);
  EXPECT_EQ(status_of({{"Host", "a"}, {"Transfer-Encoding", "chunked"}, {"Content-Length", "3"}}),
            400);
  EXPECT_EQ(status_of({{"Host", "a"}, {"Content-Length", "3"}, {"Transfer-Encoding", "chunked"}}),
            400);
}

TEST(HttpFraming, ContentLengthIsOneNumber) {
  const auto with = [](const std::string& value) {
    return status_of({{"Host", "a"}, {"Content-Length", value}});
  };
  EXPECT_EQ(with("0"), 0);
  EXPECT_EQ(with("18446744073709551615"), 0);
  for (const char* value :
       {"", "-1", "+1", "1,1", "1, 1", "0x1", "1 1", "18446744073709551616", "1;", "1.0", "one"}) {
    EXPECT_EQ(with(value), 400) << value;
  }
  EXPECT_EQ(status_of({{"Host", "a"}, {"Content-Length", "3"}, {"content-length", "3"}}), 400);
}

TEST(HttpFraming, HostIsThereOnceAndIsOne) {
  EXPECT_EQ(status_of({}), 400);
  EXPECT_EQ(status_of({}, /*is_11=*/false), 0);
  EXPECT_EQ(status_of({{"Host", "a"}, {"host", "a"}}), 400);
  EXPECT_EQ(status_of({{"Host", "a"}, {"Host", "b"}}, /*is_11=*/false), 400);
  for (const char* host : {"", "a", "a.b:80", "127.0.0.1", "[::1]", "[::1]:8080", "a:", "a_b.c"}) {
    EXPECT_EQ(status_of({{"Host", host}}), 0) << host;
  }
  for (const char* host : {"a b",
                           "a/b",
                           "a@b",
                           "a, b",
                           "[::1",
                           "::1",
                           "a:b",
                           ":80",
                           "[]",
                           "[::1]a",
                           "a:80:80",
                           "a\"",
                           "<a>",
                           "http://a"}) {
    EXPECT_EQ(status_of({{"Host", host}}), 400) << host;
  }
}

TEST(HttpFraming, AnswersHaveToSayOneThing) {
  EXPECT_EQ(status_of({}, true, false), 0);
  EXPECT_EQ(status_of({{"Transfer-Encoding", "chunked"}}, true, false), 0);
  EXPECT_NE(status_of({{"Transfer-Encoding", "gzip, chunked"}}, true, false), 0);
  EXPECT_NE(status_of({{"Transfer-Encoding", "chunked"}}, false, false), 0);
  EXPECT_NE(status_of({{"Transfer-Encoding", "chunked"}, {"Content-Length", "1"}}, true, false), 0);
  EXPECT_NE(status_of({{"Content-Length", "2"}, {"Content-Length", "1"}}, true, false), 0);
}

TEST(HttpFraming, ConnectionSaysWhetherThereMayBeAnother) {
  const auto kept = [](const std::string& value, bool is_11) {
    HttpFraming framing;
    framing.add("Connection", value);
    return framing.keep_alive(is_11);
  };
  EXPECT_TRUE(kept("", true));
  EXPECT_FALSE(kept("", false));
  EXPECT_TRUE(kept("Keep-Alive, x", false));
  EXPECT_FALSE(kept("x ,\tClose", true));
  EXPECT_FALSE(kept("keep-alive, close", true));
}

}  // namespace
}  // namespace heddle::gateway
