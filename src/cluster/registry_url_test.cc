#include "cluster/registry_url.h"

#include <boost/asio/io_context.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/registry.h"

namespace heddle::cluster {
namespace {

using testing::HasSubstr;

TEST(RegistryUrlTest, ReadsEtcd) {
  const auto plain = parse_registry_url("etcd://a,b:1,[::1]:2/team/x");
  ASSERT_TRUE(plain) << plain.error().message;
  const EtcdUrl& etcd = std::get<EtcdUrl>(*plain);
  ASSERT_EQ(etcd.servers.size(), 3U);
  EXPECT_EQ(etcd.servers[0].url(), "http://a:2379");
  EXPECT_EQ(etcd.servers[1].url(), "http://b:1");
  EXPECT_EQ(etcd.servers[2].url(), "http://[::1]:2");
  EXPECT_EQ(etcd.prefix, "team/x/");

  const auto tls = parse_registry_url("etcd://a?ca=/ca.pem&cert=/c.pem&key=/k.pem");
  ASSERT_TRUE(tls) << tls.error().message;
  EXPECT_EQ(std::get<EtcdUrl>(*tls).servers[0].url(), "https://a:2379");
  EXPECT_EQ(std::get<EtcdUrl>(*tls).ca, "/ca.pem");
  EXPECT_EQ(std::get<EtcdUrl>(*tls).certificate, "/c.pem");
  EXPECT_EQ(std::get<EtcdUrl>(*tls).key, "/k.pem");
  EXPECT_EQ(std::get<EtcdUrl>(*tls).prefix, "heddle/");
  EXPECT_EQ(std::get<EtcdUrl>(*parse_registry_url("etcd://a?ca=system")).ca, "");
}

TEST(RegistryUrlTest, ReadsKubernetes) {
  const auto pod = parse_registry_url("kubernetes://");
  ASSERT_TRUE(pod) << pod.error().message;
  EXPECT_EQ(std::get<KubernetesUrl>(*pod).name_space, "");
  EXPECT_EQ(std::get<KubernetesUrl>(*pod).name, "heddle");
  const auto whole =
      parse_registry_url("kubernetes://ns/blue?server=https://k:6443&token_file=/t&ca=/c");
  ASSERT_TRUE(whole) << whole.error().message;
  const KubernetesUrl& kubernetes = std::get<KubernetesUrl>(*whole);
  EXPECT_EQ(kubernetes.name_space, "ns");
  EXPECT_EQ(kubernetes.name, "blue");
  EXPECT_EQ(kubernetes.server, "https://k:6443");
  EXPECT_EQ(kubernetes.token_file, "/t");
  EXPECT_EQ(kubernetes.ca, "/c");
}

TEST(RegistryUrlTest, ReadsFiles) {
  EXPECT_EQ(std::get<FileUrl>(*parse_registry_url("file:/var/x")).directory, "/var/x");
  EXPECT_EQ(std::get<FileUrl>(*parse_registry_url("file:///var/x")).directory, "/var/x");
  EXPECT_EQ(std::get<FileUrl>(*parse_registry_url("file:x?y")).directory, "x?y");
}

TEST(RegistryUrlTest, SaysWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"zookeeper://a", "known are etcd://HOST:2379[,HOST:2379...], kubernetes://NAMESPACE and"},
      {"", "known are"},
      {"etcd://", "names no server"},
      {"etcd://http://a", "key \"/a\""},
      {"etcd://a:0", "a server is HOST[:PORT]: "},
      {"etcd://a?cert=x", "go together"},
      {"etcd://a?ca=x&cert=x", "go together"},
      {"etcd://a?cert=x&key=y", "ca=system"},
      {"etcd://a?user=x", "options are ca=..., cert=..., key=..."},
      {"etcd://a/B", "key \"B\""},
      {"kubernetes://a.b", "no name of Kubernetes"},
      {"kubernetes://a/b/c", "no name of Kubernetes"},
      {"kubernetes://?server=http://x", "name its namespace"},
      {"file:", "no directory"},
  };
  for (const auto& [url, what] : cases) {
    const auto parsed = parse_registry_url(url);
    ASSERT_FALSE(parsed) << url;
    EXPECT_EQ(parsed.error().code, Code::kInvalidArgument);
    EXPECT_THAT(parsed.error().message, HasSubstr(what));
    EXPECT_THAT(parsed.error().message, HasSubstr("\"" + std::string(url) + "\""));
  }
}

TEST(RegistryUrlTest, SaysWhatIsWrongWithThePlace) {
  boost::asio::io_context loop;
  const auto open = [&](const char* url) {
    const auto opened = open_registry(loop.get_executor(), url);
    return opened ? std::string() : opened.error().message;
  };
  EXPECT_THAT(open("kubernetes://ns"), HasSubstr("runs in no pod"));
  EXPECT_THAT(open("kubernetes://ns?server=http://a&token_file=/no/such"), HasSubstr("/no/such"));
  EXPECT_THAT(open("kubernetes://ns?server=a:b:c"), HasSubstr("server: "));
  EXPECT_THAT(open("file:/proc/no"), HasSubstr("make directory /proc/no"));
  EXPECT_EQ(open("etcd://127.0.0.1"), "");
}

}  // namespace
}  // namespace heddle::cluster
