// A case's tensors as safetensors files: what `gen` writes, `verify` reads and `--dump` keeps.
//
// Files hold dense tensors of Sq, Sk = the longest lengths of the batch, whatever layout the problem has; shorter
// entries are padded at the end. With B entries, H query and Hk kv heads, head dim d and value dim e:
//
//   inputs   q [B, Sq, H, d]   k [B, Sk, Hk, d]   v [B, Sk, Hk, e]   seqlens_q, seqlens_k [B] I32
//            where used: do [B, Sq, H, e]   bias [1|B, 1|H, 1|Sq, 1|Sk]   slopes [B, H]   sink [H]
//            q_descale, k_descale, v_descale [B, Hk]   keep [B, H, Sq, Sk] U8, 1 where dropout keeps a weight
//            o, lse for `backward_exact`: the exact ones, rounded
//   outputs  o [B, Sq, H, e]   lse [B, H, Sq] F32
//            for a backward: dq, dk, dv like q, k, v   dsink [H] F32   dbias like bias, F32
#pragma once
#include <string>

#include "kernels/flashproof_kernel.h"
#include "oracle/check.h"
#include "reference/inputs.h"
#include "reference/safetensors.h"

namespace flashproof {

/// Padding holds NaN if `nan_outside`, else 0. `metadata` goes into the file.
SafeTensors input_file(const Inputs&, bool nan_outside, std::map<std::string, std::string> metadata);
SafeTensors output_file(const Problem&, const Outputs&);
/// The problem's numbers as one JSON object, for programs that do not parse the case's text.
std::string problem_json(const Case&);
/// What a program must read, compute and write, for a person. `runs`: how many folders like this one the case has.
std::string instructions(const Case&, const SafeTensors& inputs, const flashproof_conventions&, size_t runs);
/// Throws UsageError naming the tensor that is missing or of the wrong dtype or shape, with the right one.
Outputs outputs_of_file(const Problem&, const flashproof_conventions&, const SafeTensors&);

/// Conventions of a program behind files, e.g. "lse=base2,empty_o=undefined"; what is not written is the default.
flashproof_conventions parse_conventions(const std::string& text);
/// Every convention as such a word.
std::string print(const flashproof_conventions&);

}  // namespace flashproof
