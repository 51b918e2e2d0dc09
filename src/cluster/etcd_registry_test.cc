#include "cluster/etcd_registry.h"

#include <gmock/gmock.h>

#include "cluster/test_store.h"

namespace heddle::cluster {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

/// What is particular to etcd, and to stores of several servers. The rest is in contract_test.cc.
struct EtcdRegistryTest : test::LoopTest {
  void SetUp() override {
    if (test::EtcdStore::program().empty()) {
      GTEST_SKIP() << "etcd is not there: ./dev test puts it into build/etcd";
    }
    server.restart();
  }
  std::shared_ptr<Registry> open(const std::string& url, Duration patience = 10s) {
    return *open_registry(loop.get_executor(), url, {.patience = patience, .check = 50ms});
  }
  test::EtcdStore server{};
};

TEST_F(EtcdRegistryTest, AsksTheNextServerWhereOneIsAway) {
  const std::string nobody = "etcd://127.0.0.1:" + std::to_string(http::free_port()) + ",";
  const auto registry = open(nobody + server.url().substr(7));
  const auto put = wait(registry->put_if("a", 0, "x"));
  ASSERT_TRUE(put) << put.error().message;
  std::vector<std::string> told;
  const auto watch =
      registry->watch("", *put, [&](const Change& change) { told.push_back(change.record.value); });
  ASSERT_TRUE(wait(registry->put_if("a", *put, "y")));
  until([&] { return told.size() == 1; });
  EXPECT_EQ(told[0], "y");
}

TEST_F(EtcdRegistryTest, AsksTheNextServerWhereOneIsFrozen) {
  test::EtcdStore frozen;
  frozen.restart();
  frozen.signal(SIGSTOP);
  const auto registry = open(frozen.url() + "," + server.url().substr(7), 12s);
  const auto put = wait(registry->put_if("a", 0, "x"));
  EXPECT_TRUE(put) << put.error().message;
  frozen.signal(SIGCONT);
}

TEST_F(EtcdRegistryTest, LosesTrackWhereAnotherStoreTakesItsPlace) {
  test::EtcdStore other;
  other.restart();
  const auto registry = open(server.url() + "," + other.url().substr(7));
  const auto put = wait(registry->put_if("a", 0, "x"));
  ASSERT_TRUE(put);
  const auto listing = wait(registry->list(""));
  std::string why;
  const auto watch =
      registry->watch("", listing->revision, [&](const Change& change) { why = change.why; });
  until([&] { return watch->trouble().empty(); });
  server.kill();
  until([&] { return !why.empty(); });
  EXPECT_THAT(why, testing::AnyOf(HasSubstr("another store"), HasSubstr("went back")));
}

TEST_F(EtcdRegistryTest, KeepsPrefixesApart) {
  const auto one = open(server.url() + "/one");
  const auto two = open(server.url() + "/one-two");
  ASSERT_TRUE(wait(one->put_if("a", 0, "1")));
  EXPECT_FALSE(wait(two->get("a"))->has_value());
  EXPECT_TRUE(wait(two->list(""))->records.empty());
}

TEST_F(EtcdRegistryTest, SpeaksTlsAndShowsItsCertificate) {
  heddle::test::CertificateFolder certificates;
  const heddle::test::CertificateFiles serving = certificates.write("server", 1);
  const heddle::test::CertificateFiles own = certificates.write("client", 2);
  test::EtcdStore secure(certificates, serving, own);
  secure.restart();
  const std::string all = secure.url() + "?ca=" + serving.certificate;
  const std::string shown = "&cert=" + own.certificate + "&key=" + own.key;
  const auto registry = open(all + shown);
  const auto put = wait(registry->put_if("a", 0, "x"));
  ASSERT_TRUE(put) << put.error().message;
  std::string told;
  const auto watch =
      registry->watch("", *put, [&](const Change& change) { told = change.record.value; });
  ASSERT_TRUE(wait(registry->put_if("a", *put, "y")));
  until([&] { return told == "y"; });

  const auto stranger = open(all, 300ms);
  EXPECT_FALSE(wait(stranger->get("a"))) << "it shows no certificate";
  const auto wary = open(secure.url() + "?ca=" + own.certificate + shown, 300ms);
  const auto got = wait(wary->get("a"));
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, Code::kFailedPrecondition);
  EXPECT_THAT(got.error().message, HasSubstr("certificate verify failed"));
}

TEST_F(EtcdRegistryTest, SaysThatSomethingElseListensThere) {
  test::KubernetesStore wrong;
  wrong.restart();
  const std::string url = wrong.url();
  const auto registry = open("etcd://" + url.substr(url.rfind('/') + 1));
  const auto got = wait(registry->get("a"));
  ASSERT_FALSE(got);
  EXPECT_THAT(got.error().message, HasSubstr("right is the client port of etcd 3.4 or later"));
}

}  // namespace
}  // namespace heddle::cluster
