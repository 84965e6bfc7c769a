// Safetensors: what is written reads back, and damaged or absurd files are refused with file, offset and reason.
#include "reference/safetensors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "reference/errors.h"

namespace flashproof {
namespace {

// Tests may run side by side, a process each.
std::string test_path() { return testing::TempDir() + "flashproof_test_" + std::to_string(getpid()) + ".safetensors"; }

void write_bytes(const std::string& bytes) { std::ofstream(test_path(), std::ios::binary) << bytes; }

/// A file of this header and `data` bytes of zeros.
std::string file_of(const std::string& header, size_t data) {
  std::string bytes;
  for (int n = 0; n < 8; ++n) bytes += char(header.size() >> (8 * n));
  return bytes + header + std::string(data, '\0');
}

std::string refusal_of(const std::string& bytes) {
  write_bytes(bytes);
  try {
    read_safetensors(test_path());
  } catch (const UsageError& error) {
    EXPECT_EQ(std::string(error.what()).rfind(test_path() + ": byte ", 0), 0u) << error.what();
    return error.what();
  }
  return "accepted";
}

SafeTensors small_file() {
  SafeTensors file;
  file.tensors["Q"] = {"BF16", {1, 2, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}};
  file.tensors["empty"] = {"F32", {0, 4}, {}};
  file.tensors["scalar \"\\\n\xc3\xa9"] = {"U8", {}, {255}};
  file.metadata["model"] = "a\tb";
  return file;
}

TEST(Safetensors, WhatIsWrittenReadsBack) {
  write_safetensors(test_path(), small_file());
  EXPECT_EQ(read_safetensors(test_path()), small_file());
  write_safetensors(test_path(), {});
  EXPECT_EQ(read_safetensors(test_path()), SafeTensors{});
}

TEST(Safetensors, EscapesOfJson) {
  write_bytes(file_of(R"({"__metadata__":{"k":"\u0041\u00e9\u20ac\ud83d\ude00\/\b"}})", 0));
  EXPECT_EQ(read_safetensors(test_path()).metadata["k"], "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80/\b");
}

TEST(Safetensors, AFileFromAnotherProgram) {
  const SafeTensors file = read_safetensors(std::string(FLASHPROOF_TEST_DATA) + "/data/minilm_layer00.safetensors");
  EXPECT_EQ(file.tensors.size(), 3u);
  EXPECT_EQ(file.tensors.at("K").shape, (std::vector<int64_t>{3, 480, 32}));
  EXPECT_EQ(file.tensors.at("K").dtype, "BF16");
  EXPECT_EQ(file.metadata.at("causal"), "false");
}

TEST(Safetensors, CutAnywhereIsRefused) {
  write_safetensors(test_path(), small_file());
  std::ifstream in(test_path(), std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  in.close();
  EXPECT_EQ(refusal_of(whole), "accepted");
  for (size_t length = 0; length < whole.size(); ++length)
    EXPECT_NE(refusal_of(whole.substr(0, length)), "accepted") << length;
  EXPECT_NE(refusal_of(whole + "x").find("bytes after the last tensor"), std::string::npos);
}

TEST(Safetensors, AbsurdFilesAreRefusedWithAReason) {
  const auto tensor = [](const std::string& members) { return file_of("{\"Q\":{" + members + "}}", 4); };
  const std::string rest = R"("dtype":"F32","shape":[1],)";
  const std::pair<std::string, const char*> refused[] = {
      {"", "ends before a header"},
      {std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10), "header is said to have 18446744073709551615 bytes"},
      {std::string("\0\0\0\0\0\1\0\0{}", 10), "header is said to have"},
      {std::string("PK\3\4 a zip archive"), "not a safetensors file"},
      {file_of("[]", 0), "expected `{`"},
      {file_of("{ ", 0), "expected `\"`"},
      {file_of("{}{}", 0), "text after the end"},
      {file_of(R"({"a")", 0), "expected `:`"},
      {file_of("{\"a\n\":1}", 0), "control character"},
      {file_of(R"({"\q":1})", 0), "unknown escape"},
      {file_of(R"({"\u12":1})", 0), "four hexadecimal digits"},
      {file_of(R"({"\ud800\u0041":1})", 0), "half a surrogate pair"},
      {file_of(R"({"__metadata__":{"a":1}})", 0), "expected `\"`"},
      {file_of(R"({"__metadata__":{"a":"","a":""}})", 0), "`a` stands twice"},
      {tensor(rest + R"("data_offsets":[0,8])"), "has 8 bytes, its shape and dtype need 4"},
      {tensor(rest + R"("data_offsets":[0])"), "two data_offsets"},
      {tensor(rest + R"("more":1)"), "unknown member `more`"},
      {tensor(rest.substr(0, rest.size() - 1)), "needs dtype, shape and two data_offsets"},
      {tensor(R"("dtype":"F31","shape":[1],"data_offsets":[0,4])"), "unknown dtype `F31`"},
      {tensor(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"), "whole number of at least 0"},
      {tensor(R"("dtype":"F32","shape":[1.5],"data_offsets":[0,4])"), "expected `]`"},
      {tensor(R"("dtype":"F32","shape":[9223372036854775807,9],"data_offsets":[0,4])"), "product overflows"},
      {tensor(R"("dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,4])"), "whole number"},
      {tensor(R"("dtype":"F32","shape":[2305843009213693951],"data_offsets":[0,9223372036854775804])"),
       "the file has 4 bytes"},
      {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"), "starts at offset 4"},
      {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"), "starts at offset 4"},
      {file_of(
           R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
           4),
       "starts at offset 2"},
      {file_of(
           R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
           2),
       "`a` stands twice"},
  };
  for (const auto& [bytes, reason] : refused)
    EXPECT_NE(refusal_of(bytes).find(reason), std::string::npos) << reason << ": " << refusal_of(bytes);
}

TEST(Safetensors, DamagedBytesNeverCrash) {
  write_safetensors(test_path(), small_file());
  std::ifstream in(test_path(), std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  in.close();
  int refused = 0;
  for (size_t at = 0; at < whole.size() - 13; ++at) {  // the header; any byte is legal in the data
    for (const char byte : {'"', '9'}) {
      std::string damaged = whole;
      damaged[at] = byte;
      refused += refusal_of(damaged) != "accepted";
    }
  }
  EXPECT_GT(refused, 200);
}

TEST(Safetensors, WritingThatFailsLeavesNothingBehind) {
  EXPECT_THROW(write_safetensors(testing::TempDir() + "no_such_folder/x.safetensors", small_file()), UnavailableError);
  EXPECT_THROW(read_safetensors(testing::TempDir() + "no_such_file"), UnavailableError);
  SafeTensors wrong = small_file();
  wrong.tensors["Q"].bytes.pop_back();
  EXPECT_THROW(write_safetensors(test_path(), wrong), UsageError);
}

// Beyond RLIMIT_FSIZE a write fails like one on a full disk.
void write_beyond_the_limit(const std::string& path) {
  SafeTensors large;
  large.tensors["x"] = {"U8", {1 << 20}, std::vector<uint8_t>(1 << 20)};
  const rlimit limit = {1 << 16, 1 << 16};
  setrlimit(RLIMIT_FSIZE, &limit);
  signal(SIGXFSZ, SIG_IGN);
  try {
    write_safetensors(path, large);
  } catch (const UnavailableError&) {
    exit(read_safetensors(path) == small_file() ? 7 : 1);
  }
  exit(1);
}

TEST(SafetensorsDeathTest, AFullDiskKeepsTheOldFile) {
  const std::string folder = testing::TempDir() + "flashproof_full_disk";
  std::filesystem::create_directory(folder);
  const std::string path = folder + "/x.safetensors";
  write_safetensors(path, small_file());
  EXPECT_EXIT(write_beyond_the_limit(path), testing::ExitedWithCode(7), "");
  const auto files = std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
  EXPECT_EQ(files, 1);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace flashproof
