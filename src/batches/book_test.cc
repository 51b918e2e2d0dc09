#include "batches/book.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "base/test_directory.h"
#include "batches/line_file.h"

namespace heddle::batches {
namespace {

namespace fs = std::filesystem;

class BookTest : public testing::Test {
 protected:
  [[nodiscard]] std::string folder() const { return (directory_.path() / "batches").string(); }
  [[nodiscard]] std::unique_ptr<Book> open(Book::Limits limits = {}) const {
    auto book = Book::open(folder(), limits);
    EXPECT_TRUE(book) << book.error().message;
    return std::move(book).value();
  }
  static FileRecord file(const std::string& id, const std::string& owner = "alice") {
    return {.id = id, .owner = owner, .name = "../x", .purpose = "batch", .bytes = 3};
  }
  static BatchRecord batch(const std::string& id, const std::string& owner = "alice") {
    BatchRecord made{.id = id,
                     .owner = owner,
                     .endpoint = "/v1/embeddings",
                     .input = "in",
                     .output = id + "-out",
                     .errors = id + "-err"};
    made.enter(State::kInProgress, 7);
    return made;
  }

  TempDirectory directory_{};
};

TEST_F(BookTest, FilesOutliveTheProcessAndBelongToTheirOwner) {
  SipKey salt{};
  {
    const auto book = open();
    salt = book->salt();
    ASSERT_TRUE(book->add_file(file("file-1"), "abc"));
    EXPECT_EQ(book->bytes(), 3U);
  }
  const auto book = open();
  EXPECT_EQ(book->salt(), salt);
  EXPECT_EQ(book->bytes(), 3U);
  const Result<FileRecord> found = book->file("alice", "file-1");
  ASSERT_TRUE(found);
  EXPECT_EQ(*found, file("file-1"));
  EXPECT_EQ(book->file("bob", "file-1").error().code, Code::kNotFound);
  EXPECT_EQ(book->remove_file("bob", "file-1").error().code, Code::kNotFound);
  EXPECT_EQ(book->file("alice", "../book.db").error().code, Code::kNotFound);
  ASSERT_TRUE(book->remove_file("alice", "file-1"));
  EXPECT_EQ(book->bytes(), 0U);
  EXPECT_FALSE(fs::exists(book->path_of("file-1")));
}

TEST_F(BookTest, BudgetsAreKept) {
  const auto book = open({.bytes = 10, .owner_files = 2, .owner_batches = 1, .batches = 2});
  ASSERT_TRUE(book->add_file(file("a"), "12345"));
  EXPECT_EQ(book->add_file(file("b"), "123456").error().code, Code::kResourceExhausted);
  EXPECT_FALSE(book->is_full());
  ASSERT_TRUE(book->add_file(file("b"), "12345"));
  EXPECT_TRUE(book->is_full());
  EXPECT_EQ(book->add_file(file("c"), "").error().code, Code::kResourceExhausted);
  ASSERT_TRUE(book->add_batch(batch("x")));
  EXPECT_EQ(book->add_batch(batch("y")).error().code, Code::kResourceExhausted);
  ASSERT_TRUE(book->add_batch(batch("y", "bob")));
  EXPECT_EQ(book->add_batch(batch("z", "carol")).error().code, Code::kResourceExhausted);
}

TEST_F(BookTest, ABatchIsWrittenAndFinished) {
  const auto book = open();
  BatchRecord one = batch("batch_1");
  ASSERT_TRUE(book->add_file(file("in"), "abc"));
  ASSERT_TRUE(book->add_batch(one));
  EXPECT_EQ(book->remove_file("alice", "in").error().code, Code::kFailedPrecondition);
  one.counts.completed = 1;
  ASSERT_TRUE(book->write(one, false, "{}\n"));
  EXPECT_EQ(book->bytes(), 6U);
  EXPECT_EQ(book->file("alice", one.output).error().code, Code::kNotFound);
  ASSERT_TRUE(book->finish(one, State::kCompleted, 9));
  EXPECT_TRUE(one.has_output);
  EXPECT_FALSE(one.has_errors);
  const Result<BatchRecord> kept = book->batch("alice", "batch_1");
  ASSERT_TRUE(kept);
  EXPECT_EQ(*kept, one);
  const Result<FileRecord> output = book->file("alice", one.output);
  ASSERT_TRUE(output);
  EXPECT_EQ(output->bytes, 3U);
  EXPECT_EQ(output->purpose, "batch_output");
  EXPECT_TRUE(book->remove_file("alice", "in"));
  const auto left = book->unfinished();
  ASSERT_TRUE(left);
  EXPECT_TRUE(left->empty());
}

TEST_F(BookTest, AnotherProcessFindsWhatWasUnderWay) {
  {
    const auto book = open();
    ASSERT_TRUE(book->add_batch(batch("b1")));
    ASSERT_TRUE(book->add_batch(batch("a2", "bob")));
    ASSERT_TRUE(book->write(batch("b1"), true, "wrong\n"));
    ASSERT_TRUE(append_to(book->path_of("stray"), "of a file that was not written whole"));
  }
  const auto book = open();
  EXPECT_FALSE(fs::exists(book->path_of("stray")));
  EXPECT_EQ(book->bytes(), 6U);
  const auto left = book->unfinished();
  ASSERT_TRUE(left);
  ASSERT_EQ(left->size(), 2U);
  EXPECT_EQ(left->front(), batch("b1"));
  EXPECT_EQ(book->batch("bob", "b1").error().code, Code::kNotFound);
  const auto of_bob = book->batches("bob");
  ASSERT_TRUE(of_bob);
  EXPECT_EQ(of_bob->size(), 1U);
}

TEST_F(BookTest, WhatIsKeptLateTakesNothingBack) {
  const auto book = open();
  const BatchRecord before = batch("b");
  BatchRecord after = before;
  after.enter(State::kCancelling, 8);
  ASSERT_TRUE(book->add_batch(before));
  ASSERT_TRUE(book->keep(after));
  ASSERT_TRUE(book->keep(before));
  EXPECT_EQ(book->batch("alice", "b")->state, State::kCancelling);
  BatchRecord over = after;
  ASSERT_TRUE(book->finish(over, State::kCancelled, 9));
  ASSERT_TRUE(book->keep(after));
  EXPECT_EQ(book->batch("alice", "b")->state, State::kCancelled);
}

TEST_F(BookTest, FilesExpireUnlessTheyAreRead) {
  const auto book = open();
  FileRecord gone = file("gone");
  gone.expires_s = 100;
  FileRecord in = file("in");
  in.expires_s = 100;
  ASSERT_TRUE(book->add_file(gone, "abc"));
  ASSERT_TRUE(book->add_file(in, "abc"));
  ASSERT_TRUE(book->add_batch(batch("b")));
  ASSERT_TRUE(book->remove_expired(99));
  EXPECT_EQ(book->bytes(), 6U);
  ASSERT_TRUE(book->remove_expired(100));
  EXPECT_FALSE(book->file("alice", "gone"));
  EXPECT_TRUE(book->file("alice", "in"));
}

TEST_F(BookTest, BatchesLongOverAreForgotten) {
  const auto book = open({.owner_past = 2});
  for (const char* id : {"b1", "b2", "b3"}) {
    BatchRecord one = batch(id);
    ASSERT_TRUE(book->add_batch(one));
    ASSERT_TRUE(book->finish(one, State::kCompleted, 9));
  }
  const auto kept = book->batches("alice");
  ASSERT_TRUE(kept);
  ASSERT_EQ(kept->size(), 2U);
  EXPECT_EQ(kept->front().id, "b2");
}

TEST_F(BookTest, ADamagedBookIsNamed) {
  fs::create_directories(folder());
  std::ofstream(folder() + "/book.db") << std::string(5000, 'x');
  const auto book = Book::open(folder(), {});
  ASSERT_FALSE(book);
  EXPECT_EQ(book.error().code, Code::kCorrupt);
  EXPECT_NE(book.error().message.find("book.db"), std::string::npos);
}

}  // namespace
}  // namespace heddle::batches
