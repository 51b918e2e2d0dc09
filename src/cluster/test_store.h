#pragma once

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <gtest/gtest.h>

#include "base/base64.h"
#include "base/check.h"
#include "base/child.h"
#include "base/clock.h"
#include "base/test_certificates.h"
#include "base/test_places.h"
#include "cluster/registry.h"
#include "http/blocking_client.h"
#include "http/test_server.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace heddle::cluster::test {

/// A folder of its own, removed afterwards.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "heddle-cluster-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_{};
};

/// Starts a program whose output goes to `log`.
inline Child start(const std::vector<std::string>& command, const std::string& log) {
  std::vector<char*> arguments;
  for (const std::string& each : command) {
    arguments.push_back(const_cast<char*>(each.c_str()));  // As the call wants it.
  }
  arguments.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(out, STDERR_FILENO);
    ::execv(arguments[0], arguments.data());
    ::_exit(127);
  }
  Result<Child> child = Child::adopt(pid);
  HEDDLE_CHECK(child.has_value());
  return std::move(*child);
}

/// A store that a registry speaks to, and that its tests may treat badly.
class Store {
 public:
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  virtual ~Store() = default;

  [[nodiscard]] virtual std::string url() const = 0;
  /// Whether it is a server, which can be killed and stopped.
  [[nodiscard]] virtual bool is_server() const { return true; }
  virtual void kill() {}
  virtual void restart() {}
  virtual void signal(int /*number*/) {}
  /// Brings back what it was at the last save().
  virtual void save() = 0;
  virtual void restore() = 0;
  /// Puts what no registry would.
  virtual void put_strange(const std::string& key, const std::string& value) = 0;
  /// Makes it know no change until now, where it can.
  virtual void forget() = 0;
};

class FileStore final : public Store {
 public:
  [[nodiscard]] std::string url() const override { return "file:" + directory().string(); }
  [[nodiscard]] bool is_server() const override { return false; }
  void save() override {
    std::filesystem::copy(
        records(), folder_.path() / "saved", std::filesystem::copy_options::overwrite_existing);
  }
  void restore() override { std::filesystem::rename(folder_.path() / "saved", records()); }
  void put_strange(const std::string& key, const std::string& value) override {
    std::ofstream(records(), std::ios::app) << key << " = " << value << "\n";
  }
  void forget() override {}
  [[nodiscard]] std::filesystem::path directory() const { return folder_.path() / "registry"; }
  [[nodiscard]] std::filesystem::path records() const { return directory() / "records"; }

 private:
  Folder folder_{};
};

/// A program that serves on a port of its own, and keeps its state in a folder.
class ServerStore : public Store {
 public:
  void kill() override {
    if (child_) {
      child_->signal(SIGKILL);
      child_->wait();
      child_.reset();
    }
  }
  void restart() override {
    kill();
    child_ = start(command(), (folder_.path() / "log").string());
    await();
  }
  void signal(int number) override { child_->signal(number); }
  void save() override {
    kill();
    std::filesystem::remove_all(saved());
    std::filesystem::copy(state(), saved(), std::filesystem::copy_options::recursive);
    restart();
  }
  void restore() override {
    kill();
    std::filesystem::remove_all(state());
    std::filesystem::copy(saved(), state(), std::filesystem::copy_options::recursive);
    restart();
  }

  /// Asks it something, as no registry does.
  http::Reply ask(std::string method, std::string target, std::string body) {
    http::BlockingClient client(address_, {.access = access_});
    Result<http::Reply> reply = client.exchange({.method = std::move(method),
                                                 .target = std::move(target),
                                                 .body = std::move(body),
                                                 .patience = std::chrono::seconds(10)});
    return reply ? std::move(*reply) : http::Reply{};
  }

 protected:
  [[nodiscard]] virtual std::vector<std::string> command() const = 0;
  /// Whether it answers now.
  virtual bool answers() = 0;
  [[nodiscard]] std::filesystem::path state() const { return folder_.path() / "state"; }
  [[nodiscard]] std::filesystem::path saved() const { return folder_.path() / "saved"; }
  [[nodiscard]] std::uint16_t port() const { return address_.port; }

  HttpAddress address_{.port = http::free_port()};
  http::Access access_{};

 private:
  void await() {
    const Instant end = steady_now() + std::chrono::seconds(60);
    while (!answers()) {
      if (steady_now() > end || !child_->running()) {
        std::ifstream log(folder_.path() / "log");
        ADD_FAILURE() << std::string{std::istreambuf_iterator<char>(log), {}};
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));  // Of another process.
    }
  }

  Folder folder_{};
  std::optional<Child> child_{};
};

class EtcdStore final : public ServerStore {
 public:
  /// Debian's, or the one that `./dev` has put into the build folder; empty: neither.
  static std::string program() {
    for (const std::string& path : {places::source("build/etcd/usr/bin/etcd"),
                                    std::string("/usr/bin/etcd"),
                                    std::string("/usr/local/bin/etcd")}) {
      if (::access(path.c_str(), X_OK) == 0) {
        return path;
      }
    }
    return {};
  }

  EtcdStore() = default;
  /// Over TLS, and only for those who show a certificate.
  EtcdStore(const heddle::test::CertificateFolder& folder,
            const heddle::test::CertificateFiles& serving,
            const heddle::test::CertificateFiles& client)
      : serving_(serving), trusted_(folder.folder() / "trusted.crt") {
    // Its gateway asks it by its own certificate.
    std::ofstream(trusted_) << std::ifstream(serving.certificate).rdbuf()
                            << std::ifstream(client.certificate).rdbuf();
    address_ = {.host = "localhost", .port = port(), .tls = true};
    access_ = {.ca = serving.certificate, .certificate = client.certificate, .key = client.key};
  }

  [[nodiscard]] std::string url() const override { return "etcd://" + address_.authority(); }
  void put_strange(const std::string& key, const std::string& value) override {
    ask("POST",
        "/v3/kv/put",
        R"({"key":")" + to_base64("heddle/" + key) + R"(","value":")" + to_base64(value) + "\"}");
  }
  void forget() override {
    const std::string body = ask("POST", "/v3/kv/range", R"({"key":"eA=="})").body;
    const std::size_t begin = body.find(R"("revision":")") + 12;
    const std::string revision = body.substr(begin, body.find('"', begin) - begin);
    EXPECT_EQ(ask("POST", "/v3/kv/compaction", R"({"revision":")" + revision + "\"}").status, 200);
  }

 protected:
  [[nodiscard]] std::vector<std::string> command() const override {
    const std::string scheme = address_.tls ? "https" : "http";
    const std::string here = scheme + "://127.0.0.1:" + std::to_string(port());
    std::vector<std::string> command{program(),
                                     "--data-dir=" + state().string(),
                                     "--listen-client-urls=" + here,
                                     "--advertise-client-urls=" + here,
                                     "--listen-peer-urls=http://127.0.0.1:0",
                                     "--heartbeat-interval=20",
                                     "--election-timeout=200"};
    if (address_.tls) {
      command.insert(command.end(),
                     {"--cert-file=" + serving_.certificate,
                      "--key-file=" + serving_.key,
                      "--client-cert-auth",
                      "--trusted-ca-file=" + trusted_.string()});
    }
    return command;
  }
  bool answers() override { return ask("POST", "/v3/kv/range", R"({"key":"eA=="})").status == 200; }

 private:
  heddle::test::CertificateFiles serving_{};
  std::filesystem::path trusted_{};
};

/// tests/cluster/fake_kubernetes.py
class KubernetesStore final : public ServerStore {
 public:
  [[nodiscard]] std::string url() const override {
    return "kubernetes://tests?server=http://127.0.0.1:" + std::to_string(port());
  }
  void put_strange(const std::string& key, const std::string& value) override {
    ask("POST",
        std::string(kLeases),
        R"({"metadata":{"name":"heddle.)" + key +
            R"(","labels":{"heddle/registry":"heddle"},"annotations":{"other":")" + value +
            R"("}},"spec":{}})");
  }
  void forget() override { misbehave(R"({"forget":true})"); }
  /// Answers from now on only who shows this token.
  void demand(const std::string& token) { misbehave(R"({"token":")" + token + "\"}"); }
  void misbehave(const std::string& how) { EXPECT_EQ(ask("POST", "/fake", how).status, 200); }

 protected:
  static constexpr std::string_view kLeases =
      "/apis/coordination.k8s.io/v1/namespaces/tests/leases";

  [[nodiscard]] std::vector<std::string> command() const override {
    std::filesystem::create_directories(state());
    return {"/usr/bin/python3",
            places::source("tests/cluster/fake_kubernetes.py"),
            "--port=" + std::to_string(port()),
            "--state=" + (state() / "leases.json").string()};
  }
  bool answers() override { return ask("GET", std::string(kLeases), "").status == 200; }
};

/// A loop that tests wait on.
struct LoopTest : testing::Test {
  /// Runs the loop until it is so.
  void until(const std::function<bool()>& so) {
    const Instant end = steady_now() + std::chrono::seconds(60);
    while (!so()) {
      ASSERT_LT(steady_now(), end) << "it never came";
      loop.restart();
      loop.run_one_for(std::chrono::milliseconds(100));
    }
  }
  template <class T>
  T wait(boost::asio::awaitable<T> work) {
    return http::run(loop, std::move(work));
  }
  boost::asio::io_context loop{1};
};

}  // namespace heddle::cluster::test
