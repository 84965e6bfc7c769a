// See case_files.h.
#include "fuzz/case_files.h"

#include <cstring>
#include <sstream>

#include "fuzz/json_text.h"
#include "fuzz/kernel_library.h"
#include "oracle/value.h"
#include "reference/errors.h"
#include "reference/nearest_word.h"

namespace flashproof {
namespace {

int bytes_of(DType dtype) { return format_of(dtype).bits / 8; }

/// Where the tokens of one side stand: entry b's token i is row begin[b] + i of the packed tensor.
struct Side {
  const std::vector<int64_t>& begin;
  int64_t slot;  ///< longest length
};

/// [total, H, w] as [B, S, H, w].
SafeTensor padded(const Tensor& tensor, const Side& side, uint32_t fill) {
  const int64_t batch = int64_t(side.begin.size()) - 1, heads = tensor.shape[1], width = tensor.shape[2];
  const size_t element = size_t(bytes_of(tensor.dtype)), row = size_t(heads * width) * element;
  SafeTensor file{safetensors_word(tensor.dtype), {batch, side.slot, heads, width}, {}};
  file.bytes.resize(size_t(batch * side.slot) * row);
  for (size_t at = 0; at < file.bytes.size(); at += element) std::memcpy(&file.bytes[at], &fill, element);
  for (int64_t b = 0; b < batch; ++b) {
    const size_t count = size_t(side.begin[b + 1] - side.begin[b]) * row;
    if (count > 0)
      std::memcpy(&file.bytes[size_t(b * side.slot) * row], &tensor.bytes[size_t(side.begin[b]) * row], count);
  }
  return file;
}

void unpad(const SafeTensor& file, const Side& side, Tensor& tensor) {
  const size_t row = side.slot == 0 ? 0 : file.bytes.size() / size_t(file.shape[0] * file.shape[1]);
  for (int64_t b = 0; b + 1 < int64_t(side.begin.size()); ++b) {
    const size_t count = size_t(side.begin[b + 1] - side.begin[b]) * row;
    if (count > 0)
      std::memcpy(&tensor.bytes[size_t(side.begin[b]) * row], &file.bytes[size_t(b * side.slot) * row], count);
  }
}

/// [total_q, H] as [B, H, Sq], and back.
SafeTensor padded_lse(const Tensor& lse, const Side& side) {
  const int64_t batch = int64_t(side.begin.size()) - 1, heads = lse.shape[1];
  SafeTensor file{"F32", {batch, heads, side.slot}, std::vector<uint8_t>(size_t(batch * heads * side.slot) * 4)};
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t i = side.begin[b]; i < side.begin[b + 1]; ++i)
      for (int64_t h = 0; h < heads; ++h)
        std::memcpy(&file.bytes[size_t((b * heads + h) * side.slot + i - side.begin[b]) * 4],
                    &lse.bytes[size_t(i * heads + h) * 4], 4);
  return file;
}

void unpad_lse(const SafeTensor& file, const Side& side, Tensor& lse) {
  const int64_t heads = lse.shape[1];
  for (int64_t b = 0; b + 1 < int64_t(side.begin.size()); ++b)
    for (int64_t i = side.begin[b]; i < side.begin[b + 1]; ++i)
      for (int64_t h = 0; h < heads; ++h)
        std::memcpy(&lse.bytes[size_t(i * heads + h) * 4],
                    &file.bytes[size_t((b * heads + h) * side.slot + i - side.begin[b]) * 4], 4);
}

SafeTensor floats(const std::vector<float>& values, std::vector<int64_t> shape) {
  SafeTensor file{"F32", std::move(shape), std::vector<uint8_t>(values.size() * 4)};
  if (!values.empty()) std::memcpy(file.bytes.data(), values.data(), file.bytes.size());
  return file;
}

SafeTensor lengths(const std::vector<int64_t>& begin) {
  SafeTensor file{"I32", {int64_t(begin.size()) - 1}, std::vector<uint8_t>((begin.size() - 1) * 4)};
  for (size_t b = 0; b + 1 < begin.size(); ++b) {
    const int32_t length = int32_t(begin[b + 1] - begin[b]);
    std::memcpy(&file.bytes[b * 4], &length, 4);
  }
  return file;
}

SafeTensor keep_mask(const Problem& p, int64_t seq_q, int64_t seq_k) {
  SafeTensor file{"U8", {p.batch, p.heads, seq_q, seq_k}, {}};
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t h = 0; h < p.heads; ++h)
      for (int64_t i = 0; i < seq_q; ++i)
        for (int64_t j = 0; j < seq_k; ++j) file.bytes.push_back(keeps(p, b, h, i, j));
  return file;
}

struct Sides {
  Packing packing;
  Side q, k;
  explicit Sides(const Problem& p)
      : packing(packing_of(p)),
        q{packing.q_begin, max_used_length(p.q, p.batch)},
        k{packing.k_begin, max_used_length(p.k, p.batch)} {}
};

/// An output as it must stand in the file.
struct Wanted {
  OutputId id;
  const char* name;
  std::string word;
  std::vector<int64_t> shape;
};

std::vector<Wanted> outputs_wanted(const Problem& p, const flashproof_conventions& conventions) {
  const Outputs like = make_outputs(p);
  const int64_t seq_q = max_used_length(p.q, p.batch), seq_k = max_used_length(p.k, p.batch);
  const std::string word = safetensors_word(output_dtype(p));
  std::vector<Wanted> wanted;
  if (p.direction != Direction::backward_exact) {
    wanted.push_back({OutputId::o, "o", word, {p.batch, seq_q, p.heads, p.value_dim}});
    if (conventions.lse_base != FLASHPROOF_LSE_NONE)
      wanted.push_back({OutputId::lse, "lse", "F32", {p.batch, p.heads, seq_q}});
  }
  if (!has_backward(p)) return wanted;
  wanted.push_back({OutputId::dq, "dq", word, {p.batch, seq_q, p.heads, p.head_dim}});
  wanted.push_back({OutputId::dk, "dk", word, {p.batch, seq_k, p.kv_heads, p.head_dim}});
  wanted.push_back({OutputId::dv, "dv", word, {p.batch, seq_k, p.kv_heads, p.value_dim}});
  if (p.sink) wanted.push_back({OutputId::dsink, "dsink", "F32", {p.heads}});
  if (p.bias) wanted.push_back({OutputId::dbias, "dbias", "F32", like.dbias.shape});
  return wanted;
}

std::string print_shape(const std::string& word, const std::vector<int64_t>& shape) {
  std::string text = word + " [";
  for (const int64_t n : shape) text += (text.back() == '[' ? "" : ", ") + std::to_string(n);
  return text + "]";
}

/// O and L of a query that sees no key.
std::string empty_rows(const flashproof_conventions& conventions) {
  const bool no_lse = conventions.lse_base == FLASHPROOF_LSE_NONE;
  std::string text = "  a query that sees no key has ";
  text += conventions.empty_o == FLASHPROOF_EMPTY_O_ZERO ? "o = 0" : "any o";
  switch (no_lse ? FLASHPROOF_EMPTY_LSE_UNDEFINED : flashproof_empty_lse(conventions.empty_lse)) {
    case FLASHPROOF_EMPTY_LSE_MINUS_INFINITY:
      return text + " and lse = -infinity\n";
    case FLASHPROOF_EMPTY_LSE_PLUS_INFINITY:
      return text + " and lse = +infinity\n";
    case FLASHPROOF_EMPTY_LSE_ZERO:
      return text + " and lse = 0\n";
    case FLASHPROOF_EMPTY_LSE_UNDEFINED:
      break;
  }
  return text + (no_lse ? "\n" : " and any lse\n");
}

/// What is computed from one entry's tensors, a line each.
std::string formulas(const Problem& p, const flashproof_conventions& conventions) {
  const bool base_2 = conventions.lse_base == FLASHPROOF_LSE_BASE_2;
  std::string text =
      "  s = scale <q_i, k_j>, query head h reading kv head h / (heads / kv_heads)\n"
      "  causal: query i sees key j if j <= i + off; window: i + off - window_left <= j <= i + off + window_right, -1 "
      "being open\n";
  if (p.descale)
    text += "  descales: s uses q q_descale[b, g] and k k_descale[b, g], o uses v v_descale[b, g], g the kv head\n";
  if (p.softcap > 0) text += "  softcap: s = softcap tanh(s / softcap)\n";
  if (p.alibi != Alibi::none) text += "  slopes: s -= slopes[b, h] |i + off - j|\n";
  if (p.bias) text += "  bias: s += bias[b, h, i, j], axes of extent 1 being broadcast; -infinity hides the key\n";
  text += std::string("  z = sum over the keys seen of exp(s)") + (p.sink ? " + exp(sink[h])\n" : "\n");
  text +=
      std::string("  o = sum_j exp(s) / z ") + (p.dropout ? "keep[b, h, i, j] / (1 - dropout_rate) " : "") + "v_j\n";
  if (conventions.lse_base != FLASHPROOF_LSE_NONE)
    text += base_2 ? "  lse = log2 z, the logarithm to base 2\n" : "  lse = ln z, the natural logarithm\n";
  text += p.sink ? "  a query that sees no key has o = 0\n" : empty_rows(conventions);
  if (p.direction == Direction::backward_exact)
    text += "  o and lse are given: the exact ones, rounded; the lse given is the natural logarithm\n";
  if (has_backward(p))
    text +=
        std::string("  dq, dk, dv") + (p.sink ? ", dsink" : "") + (p.bias ? ", dbias" : "") +
        ": the gradients of sum(o do) with respect to the stored inputs; lse is not differentiated; 0 where nothing "
        "contributes\n";
  return text;
}

struct ConventionWord {
  const char* text;
  int32_t flashproof_conventions::*field;
  int32_t value;
};
using C = flashproof_conventions;
constexpr ConventionWord convention_words[] = {{"empty_o=zero", &C::empty_o, FLASHPROOF_EMPTY_O_ZERO},
                                               {"empty_o=undefined", &C::empty_o, FLASHPROOF_EMPTY_O_UNDEFINED},
                                               {"empty_lse=-inf", &C::empty_lse, FLASHPROOF_EMPTY_LSE_MINUS_INFINITY},
                                               {"empty_lse=inf", &C::empty_lse, FLASHPROOF_EMPTY_LSE_PLUS_INFINITY},
                                               {"empty_lse=zero", &C::empty_lse, FLASHPROOF_EMPTY_LSE_ZERO},
                                               {"empty_lse=undefined", &C::empty_lse, FLASHPROOF_EMPTY_LSE_UNDEFINED},
                                               {"lse=natural", &C::lse_base, FLASHPROOF_LSE_NATURAL},
                                               {"lse=base2", &C::lse_base, FLASHPROOF_LSE_BASE_2},
                                               {"lse=none", &C::lse_base, FLASHPROOF_LSE_NONE},
                                               {"tail=untouched", &C::tail, FLASHPROOF_TAIL_UNTOUCHED},
                                               {"tail=zero", &C::tail, FLASHPROOF_TAIL_ZERO},
                                               {"tail=undefined", &C::tail, FLASHPROOF_TAIL_UNDEFINED},
                                               {"dropout=philox", &C::dropout, FLASHPROOF_DROPOUT_PHILOX},
                                               {"dropout=none", &C::dropout, FLASHPROOF_DROPOUT_NONE},
                                               {"saturates=no", &C::saturates, 0},
                                               {"saturates=yes", &C::saturates, 1},
                                               {"bears_hidden_nan=no", &C::bears_hidden_nan, 0},
                                               {"bears_hidden_nan=yes", &C::bears_hidden_nan, 1},
                                               {"deterministic=no", &C::deterministic, 0},
                                               {"deterministic=yes", &C::deterministic, 1},
                                               {"deterministic=any-layout", &C::deterministic, 2},
                                               {"deterministic=any-batch", &C::deterministic, 3},
                                               {"deterministic=any-rows", &C::deterministic, 4}};

}  // namespace

SafeTensors input_file(const Inputs& in, bool nan_outside, std::map<std::string, std::string> metadata) {
  const Problem& p = in.problem;
  const Sides sides(p);
  const uint32_t fill = nan_outside ? nan_bits(p.dtype) : 0;
  SafeTensors file{{}, std::move(metadata)};
  auto& tensors = file.tensors;
  tensors["q"] = padded(in.q, sides.q, fill);
  tensors["k"] = padded(in.k, sides.k, fill);
  tensors["v"] = padded(in.v, sides.k, fill);
  tensors["seqlens_q"] = lengths(in.packing.q_begin);
  tensors["seqlens_k"] = lengths(in.packing.k_begin);
  if (has_backward(p)) tensors["do"] = padded(in.d_o, sides.q, fill);
  if (p.bias) tensors["bias"] = {safetensors_word(in.bias.dtype), in.bias.shape, in.bias.bytes};
  if (!in.slopes.empty()) tensors["slopes"] = floats(in.slopes, {p.batch, p.heads});
  if (!in.sinks.empty()) tensors["sink"] = floats(in.sinks, {p.heads});
  if (p.descale) {
    tensors["q_descale"] = floats(in.q_descale, {p.batch, p.kv_heads});
    tensors["k_descale"] = floats(in.k_descale, {p.batch, p.kv_heads});
    tensors["v_descale"] = floats(in.v_descale, {p.batch, p.kv_heads});
  }
  if (p.dropout) tensors["keep"] = keep_mask(p, sides.q.slot, sides.k.slot);
  if (p.direction == Direction::backward_exact) {
    Outputs exact = make_outputs(p);
    correctly_rounded_forward(in, exact.o, exact.lse);
    tensors["o"] = padded(exact.o, sides.q, 0);
    tensors["lse"] = padded_lse(exact.lse, sides.q);
  }
  return file;
}

SafeTensors output_file(const Problem& p, const Outputs& outputs) {
  const Sides sides(p);
  SafeTensors file;
  for (const Wanted& wanted : outputs_wanted(p, FLASHPROOF_DEFAULT_CONVENTIONS)) {
    const Tensor& tensor = tensor_of(outputs, wanted.id);
    SafeTensor& to = file.tensors[wanted.name];
    if (wanted.id == OutputId::lse)
      to = padded_lse(tensor, sides.q);
    else if (wanted.id == OutputId::o || wanted.id == OutputId::dq)
      to = padded(tensor, sides.q, 0);
    else if (wanted.id == OutputId::dk || wanted.id == OutputId::dv)
      to = padded(tensor, sides.k, 0);
    else
      to = {wanted.word, tensor.shape, tensor.bytes};
  }
  return file;
}

std::string problem_json(const Case& c) {
  const Problem& p = c.problem;
  const auto word = [](DType dtype) { return safetensors_word(dtype); };
  return json_object({{"case", print(c)},
                      {"dtype", word(p.dtype)},
                      {"out_dtype", word(output_dtype(p))},
                      {"batch", p.batch},
                      {"heads", p.heads},
                      {"kv_heads", p.kv_heads},
                      {"seq_q", max_used_length(p.q, p.batch)},
                      {"seq_k", max_used_length(p.k, p.batch)},
                      {"head_dim", p.head_dim},
                      {"value_dim", p.value_dim},
                      {"scale", double(scale_of(p))},
                      {"causal", p.mask.causal},
                      {"top_left", p.mask.top_left},
                      {"window_left", p.mask.window_left},
                      {"window_right", p.mask.window_right},
                      {"softcap", double(p.softcap)},
                      {"dropout_rate", p.dropout ? double(p.dropout->rate) : 0.0},
                      {"backward", has_backward(p)}})
             .text() +
         "\n";
}

std::string instructions(const Case& c, const SafeTensors& inputs, const flashproof_conventions& conventions,
                         size_t runs) {
  const Problem& p = c.problem;
  std::string text = "case: " + print(c) + "\n\n";
  if (runs > 1)
    text += "One of " + std::to_string(runs) + " runs, which lie in run-000, run-001, ...: each folder has its own " +
            "inputs and wants its own outputs.\n\n";
  text += "Read inputs.safetensors:\n\n";
  for (const auto& [name, tensor] : inputs.tensors)
    text += "  " + name + "  " + print_shape(tensor.dtype, tensor.shape) + "\n";
  text += "\nWrite outputs.safetensors beside it, with these names, dtypes and shapes:\n\n";
  for (const Wanted& wanted : outputs_wanted(p, conventions))
    text += "  " + std::string(wanted.name) + "  " + print_shape(wanted.word, wanted.shape) + "\n";
  text +=
      "\n[batch, tokens, heads, dim]; lse [batch, heads, tokens]. Entry b has seqlens_q[b] and seqlens_k[b] tokens; "
      "those after are padding, which may hold\n"
      "NaN in inputs and anything in outputs. case.json has the problem's numbers. With Sq, Sk an entry's lengths and "
      "off = Sk - Sq (0 if top_left):\n\n";
  text += formulas(p, conventions);
  return text + "\nThen: ./flashproof verify " + (runs > 1 ? "FOLDER-OF-THE-RUNS" : "THIS-FOLDER") + "\n";
}

Outputs outputs_of_file(const Problem& p, const flashproof_conventions& conventions, const SafeTensors& file) {
  const Sides sides(p);
  Outputs outputs = make_outputs(p);
  for (const Wanted& wanted : outputs_wanted(p, conventions)) {
    const std::string right = print_shape(wanted.word, wanted.shape);
    const auto found = file.tensors.find(wanted.name);
    if (found == file.tensors.end())
      throw UsageError(std::string("the tensor `") + wanted.name + "` is missing; it must be " + right);
    const SafeTensor& tensor = found->second;
    if (tensor.dtype != wanted.word || tensor.shape != wanted.shape)
      throw UsageError(std::string("the tensor `") + wanted.name + "` is " + print_shape(tensor.dtype, tensor.shape) +
                       ", and must be " + right);
    Tensor& to = tensor_of(outputs, wanted.id);
    if (wanted.id == OutputId::lse)
      unpad_lse(tensor, sides.q, to);
    else if (wanted.id == OutputId::o || wanted.id == OutputId::dq)
      unpad(tensor, sides.q, to);
    else if (wanted.id == OutputId::dk || wanted.id == OutputId::dv)
      unpad(tensor, sides.k, to);
    else
      to.bytes = tensor.bytes;
  }
  return outputs;
}

flashproof_conventions parse_conventions(const std::string& text) {
  flashproof_conventions conventions = FLASHPROOF_DEFAULT_CONVENTIONS;
  std::istringstream in(text);
  for (std::string given; std::getline(in, given, ',');) {
    bool known = false;
    std::vector<std::string> right;
    for (const ConventionWord& word : convention_words) {
      right.push_back(word.text);
      if (given != word.text) continue;
      conventions.*word.field = word.value;
      known = true;
    }
    if (!known)
      throw UsageError("no convention is written `" + given + "`; did you mean `" + nearest_word(given, right) +
                       "`?\n  example: --conventions lse=base2,empty_o=undefined");
  }
  return conventions;
}

std::string print(const flashproof_conventions& conventions) {
  std::string text;
  for (const ConventionWord& word : convention_words)
    if (conventions.*word.field == word.value) text += (text.empty() ? "" : ",") + std::string(word.text);
  return text;
}

}  // namespace flashproof
