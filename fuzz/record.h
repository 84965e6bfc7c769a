// What a campaign writes: one JSON line a case, a manifest, and two witnesses a finding.
//
//   DIR/manifest.json                  settings, version, machine, kernels' hashes; written first
//   DIR/cases/shard-0.jsonl            one Record a line, append-only
//   DIR/findings/BUCKET/worst.json     the failing case with the largest ratio
//   DIR/findings/BUCKET/smallest.json  the reduced one
//   DIR/lock                           held while an engine writes
//
// Every file has `format` and `version`. Floats are hexadecimal strings, so that nothing is lost in printing. All
// reports are functions of these files.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "fuzz/execute.h"

namespace flashproof {

constexpr int campaign_format_version = 1;

/// One executed case. `index` is its number in the campaign; equal seeds and kernels give equal (index, id, verdicts).
struct Record {
  int64_t index = 0;
  std::string kernel, config, text;  ///< text: the case
  std::string id;                    ///< case_id
  std::string rejected;
  std::vector<Verdict> verdicts;
  std::vector<Unjudged> unjudged;
  std::string arithmetic;          ///< that the kernel declared for this case; "" unknown
  int64_t tile_m = 0, tile_n = 0;  ///< whose edges the case's lengths are held against; 0 in records without it
  double kernel_seconds = 0, oracle_seconds = 0;
  Status status() const;
};

/// Of a case outside a campaign: index -1, no tile.
Record record_of(const LoadedKernel&, const Job&, const Judgement&);

/// What identifies a campaign; the hash of its text is the citable id.
struct Manifest {
  uint64_t seed = 0;
  int64_t cases = 0;  ///< budget; 0 = until `seconds`
  double seconds = 0;
  double work = 0;
  std::vector<std::string> kernels, kernel_hashes, checks, data;
  std::vector<uint64_t> kernel_features, kernel_dtypes;  ///< as in flashproof_kernel; empty in manifests without them
  std::string program_version, compiler, machine, gpu, started;
};

/// One line, no newline inside.
std::string print(const Record&);
/// Throws UsageError where the line is not a record of a version this program reads.
Record parse_record(const std::string& line);
std::string print(const Manifest&);
Manifest parse_manifest(const std::string& text);
/// First 16 hexadecimal digits of the SHA-256 of the manifest's text.
std::string citable_id(const Manifest&);

/// The JSON object that records hold for a verdict.
std::string print(const Verdict&);

/// One witness of a finding.
struct Witness {
  std::string bucket, kernel, config, text, id;
  Verdict verdict;
  std::string replay;  ///< the command line
  double reduce_seconds = 0;
  int64_t reduce_runs = 0;
};
/// Of a verdict that failed; not reduced yet.
Witness witness_of(const LoadedKernel&, const Job&, const Verdict&);
std::string print(const Witness&);
Witness parse_witness(const std::string& text);

/// A float as "0x1.8p+3", "inf", "-inf" or "nan", and back.
std::string hex_float(double);
double parse_hex_float(const std::string&);

}  // namespace flashproof
