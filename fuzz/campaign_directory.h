// The files of one campaign on disk: manifest, shard, witnesses, lock. Nothing recorded is ever rewritten.
#pragma once
#include <string>

#include "fuzz/record.h"

namespace flashproof {

/// An open campaign directory; holds the lock until destroyed.
class CampaignDirectory {
 public:
  /// Creates the directory and writes the manifest, or with `resume` opens an existing one and takes its manifest.
  /// UsageError: a campaign is there and `resume` is false, or none is there and it is true; UnavailableError: no
  /// permission, no space, or another engine holds the lock.
  CampaignDirectory(const std::string& path, Manifest& manifest, bool resume);
  ~CampaignDirectory();
  CampaignDirectory(const CampaignDirectory&) = delete;
  CampaignDirectory& operator=(const CampaignDirectory&) = delete;

  /// Appends one line with a single write; a torn last line of an earlier run was cut off at opening. Not thread-safe.
  /// UnavailableError when the disk refuses it; what was written before stays whole.
  void append(const Record&);

 private:
  std::string path_;
  int lock_ = -1;
  int shard_ = -1;
};

/// Writes a file whole or not at all (temporary file, then rename). UnavailableError with the reason.
void write_file(const std::string& path, const std::string& content);

}  // namespace flashproof
