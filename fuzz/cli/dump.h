// A judged case as files that any program can re-check; fuzz/README.md lists them.
#pragma once
#include <string>

#include "fuzz/cli/execution.h"

namespace flashproof {

/// Writes into DIR, or DIR/run-000, ... when several runs were judged:
///   case.json            the problem's numbers, kernel, config and arithmetic
///   inputs.safetensors   outputs.safetensors   as in fuzz/case_files.h
///   elements.jsonl       one line an output element: observed bits, exact value to 128 bits, bound
/// UnavailableError where a file cannot be written.
void dump(const Execution&, const std::string& directory);

}  // namespace flashproof
