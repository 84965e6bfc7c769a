// See campaign_directory.h.
#include "fuzz/campaign_directory.h"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "fuzz/summary.h"
#include "reference/errors.h"

namespace flashproof {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& what, const std::string& path) {
  throw UnavailableError(what + " " + path + ": " + std::strerror(errno));
}

/// Writes all of `text`, or throws with the file cut back to `size_before`.
void write_all(int file, const std::string& text, const std::string& path) {
  const off_t before = lseek(file, 0, SEEK_END);
  for (size_t done = 0; done < text.size();) {
    const ssize_t written = write(file, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const int reason = errno;
      if (ftruncate(file, before) != 0) errno = reason;
      errno = reason;
      refuse("cannot write", path);
    }
    done += size_t(written);
  }
}

/// Cuts a last line without its newline, which a kill in mid-write leaves.
void cut_torn_line(int file, const std::string& path) {
  const off_t size = lseek(file, 0, SEEK_END);
  off_t whole = size;
  char last = 0;
  while (whole > 0 && (pread(file, &last, 1, whole - 1) != 1 || last != '\n')) --whole;
  if (whole != size && ftruncate(file, whole) != 0) refuse("cannot cut the torn last line of", path);
}

}  // namespace

void write_file(const std::string& path, const std::string& content) {
  const std::string temporary = path + ".part";
  const int file = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) refuse("cannot create", temporary);
  try {
    write_all(file, content, temporary);
  } catch (const UnavailableError&) {
    close(file);
    unlink(temporary.c_str());
    throw;
  }
  close(file);
  if (rename(temporary.c_str(), path.c_str()) != 0) refuse("cannot rename to", path);
}

CampaignDirectory::CampaignDirectory(const std::string& path, Manifest& manifest, bool resume) : path_(path) {
  const bool exists = fs::exists(fs::path(path) / "manifest.json");
  if (exists && !resume)
    throw UsageError(path + " already holds a campaign; add --resume to go on with it, or name another --out");
  if (!exists && resume) throw UsageError(path + " holds no campaign to resume: there is no manifest.json in it");
  std::error_code error;
  fs::create_directories(fs::path(path) / "cases", error);
  if (!error) fs::create_directories(fs::path(path) / "findings", error);
  if (error) throw UnavailableError("cannot create the campaign directory " + path + ": " + error.message());

  const std::string lock_path = path + "/lock";
  lock_ = open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_ < 0) refuse("cannot open", lock_path);
  if (flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    close(lock_);
    throw UnavailableError("another engine is writing to the campaign " + path + " (its `lock` is held)");
  }
  if (exists)
    manifest = read_manifest(path);
  else
    write_file(path + "/manifest.json", print(manifest));

  const std::string shard_path = path + "/cases/shard-0.jsonl";
  shard_ = open(shard_path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (shard_ < 0) refuse("cannot open", shard_path);
  cut_torn_line(shard_, shard_path);
}

CampaignDirectory::~CampaignDirectory() {
  if (shard_ >= 0) close(shard_);
  if (lock_ >= 0) close(lock_);
}

void CampaignDirectory::append(const Record& record) {
  write_all(shard_, print(record) + "\n", path_ + "/cases/shard-0.jsonl");
}

}  // namespace flashproof
