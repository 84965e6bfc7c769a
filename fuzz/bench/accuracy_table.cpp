// The methods of accuracy_table.h, each as its paper describes it, over the algorithms of reference/ in fp32
// arithmetic.
//
// fp16  baseline: what PyTorch's operations do, each rounding to fp16: q scale, S, softmax S, O (flash-attention's
//       attention_ref). FA2, FA3: P rounded to fp16, O rounded.
// e4m3  quantised x = t e4m3(x / t), t = max |x| / 448, by tensor or by tile of 128 rows or keys (section 3.3, "block
//       quantization"); incoherent: q M and k M for M = D H / sqrt(d), D random signs, H Hadamard's matrix, so that
//       scores stay as they are (section 3.3, after QuIP). Baseline: by tensor, scores in fp32, softmax in fp16, P in
//       fp16. FA3: P times 2^8 rounded to e4m3. O in bf16.
// Sums are fp32, product by product: neither the tensor cores' truncation nor their 13-bit accumulator in fp8 is in
// these figures, only the formats are.
#include "fuzz/bench/accuracy_table.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "oracle/value.h"
#include "reference/flash3.h"
#include "reference/inputs.h"
#include "reference/standard.h"
#include "reference/threads.h"

namespace flashproof {
namespace {

constexpr int64_t quantised_rows = 128;

/// Q, K and V of one head, [rows or keys, d].
struct Operands {
  Matrix<float> q, k, v;
};

Case drawn_case(const AccuracySettings& s, int64_t keys, uint64_t seed) {
  Case c;
  c.problem.dtype = DType::fp32;
  c.problem.q.slot = s.rows;
  c.problem.k.slot = keys;
  c.problem.head_dim = c.problem.value_dim = s.head_dim;
  c.recipe = {.family = Family::outliers, .seed = seed};
  return c;
}

Matrix<float> matrix_of(const Tensor& tensor, int64_t rows) {
  Matrix<float> matrix(rows, tensor.size() / rows);
  for (int64_t n = 0; n < tensor.size(); ++n) matrix.data[n] = float(tensor.at(n));
  return matrix;
}

Operands rounded(DType dtype, Operands x) {
  for (Matrix<float>* operand : {&x.q, &x.k, &x.v})
    for (float& element : operand->data) element = float(round_to(dtype, element));
  return x;
}

/// Groups of `group` rows share t = max |x| / 448.
void quantise(Matrix<float>& x, int64_t group) {
  for (int64_t first = 0; first < x.rows; first += group) {
    const Span rows = tile_at(first, group, x.rows);
    float *begin = x.row(rows.begin), *end = x.row(rows.begin) + rows.size() * x.columns;
    float largest = 0;
    for (const float* element = begin; element != end; ++element) largest = std::max(largest, std::fabs(*element));
    if (largest == 0) continue;
    const float t = largest / float(format_of(DType::e4m3).largest);
    for (float* element = begin; element != end; ++element) *element = t * float(round_to(DType::e4m3, *element / t));
  }
}

Operands quantised(Operands x, bool by_block) {
  for (Matrix<float>* operand : {&x.q, &x.k, &x.v}) quantise(*operand, by_block ? quantised_rows : operand->rows);
  return x;
}

/// Rows times D H / sqrt(d), by the fast Walsh-Hadamard transform; d a power of two.
void rotate(Matrix<float>& x, uint64_t seed) {
  const int64_t d = x.columns;
  const Recipe signs{.family = Family::normal, .seed = seed ^ 0x5157};
  const float unit = float(1 / std::sqrt(double(d)));
  for (int64_t i = 0; i < x.rows; ++i) {
    float* row = x.row(i);
    for (int64_t c = 0; c < d; ++c)
      if (draw(signs, Operand::bias, {0, 0, 0, c}).word[0] & 1) row[c] = -row[c];
    for (int64_t half = 1; half < d; half *= 2)
      for (int64_t c = 0; c < d; ++c)
        if ((c & half) == 0) {
          const float a = row[c], b = row[c + half];
          row[c] = a + b;
          row[c + half] = a - b;
        }
    for (int64_t c = 0; c < d; ++c) row[c] *= unit;
  }
}

Head<float> head_of(const Operands& x, float scale) {
  Head<float> head;
  head.rule.seq_q = x.q.rows;
  head.rule.seq_k = x.k.rows;
  head.rule.scale = scale;
  head.q = x.q, head.k = x.k, head.v = x.v;
  head.d_o = Matrix<float>(x.q.rows, x.v.columns);
  head.k_t = transpose(x.k), head.v_t = transpose(x.v);
  return head;
}

RoundedOps operations(DType p_format, DType output_format, int p_scale_log2 = 0) {
  RoundedOps ops;
  ops.p_format = p_format;
  ops.output_format = output_format;
  ops.p_scale_log2 = p_scale_log2;
  return ops;
}

/// Every matrix product rounds its result to a format, as separate operations on stored tensors do.
struct StoredProducts : RoundedOps {
  DType product_format = DType::fp16;
  void multiply_add(Array array, View<float> c, View<const float> a, View<const float> b) const {
    RoundedOps::multiply_add(array, c, a, b);
    for (int64 i = 0; i < c.rows; ++i)
      for (int64 n = 0; n < c.columns; ++n) c.row(i)[n] = float(round_to(product_format, c.row(i)[n]));
  }
};

constexpr TileSize tile{128, 128};

Matrix<float> standard_in_fp16(const Operands& x, float scale) {
  Operands scaled = x;
  for (float& element : scaled.q.data) element = float(round_to(DType::fp16, element * scale));
  return standard_forward(StoredProducts{operations(DType::fp16, DType::fp16)}, head_of(scaled, 1)).o;
}
Matrix<float> flash2_in_fp16(const Operands& x, float scale) {
  return flash2_forward(operations(DType::fp16, DType::fp16), head_of(x, scale), tile).o;
}
Matrix<float> flash3_in_fp16(const Operands& x, float scale) {
  return flash3_forward(operations(DType::fp16, DType::fp16), head_of(x, scale), tile, false).o;
}
Matrix<float> standard_in_fp8(const Operands& x, float scale) {
  return standard_forward(operations(DType::fp16, DType::bf16), head_of(x, scale)).o;
}
Matrix<float> flash3_in_fp8(const Operands& x, float scale) {
  return flash3_forward(operations(DType::e4m3, DType::bf16, 8), head_of(x, scale), tile, false).o;
}

struct Method {
  const char *format, *name;
  double published;  ///< RMSE of Table 3
  Operands (*prepare)(const Operands&, uint64_t seed);
  Matrix<float> (*attend)(const Operands&, float scale);
};

Operands in_fp16(const Operands& x, uint64_t) { return rounded(DType::fp16, x); }
Operands by_tensor(const Operands& x, uint64_t) { return quantised(x, false); }
Operands by_block(const Operands& x, uint64_t) { return quantised(x, true); }
Operands rotated(Operands x, uint64_t seed) {
  rotate(x.q, seed);
  rotate(x.k, seed);
  return x;
}
Operands rotated_by_tensor(const Operands& x, uint64_t seed) { return quantised(rotated(x, seed), false); }
Operands rotated_by_block(const Operands& x, uint64_t seed) { return quantised(rotated(x, seed), true); }

constexpr Method methods[] = {
    {"fp16", "baseline", 3.2e-4, in_fp16, standard_in_fp16},
    {"fp16", "FA2", 1.9e-4, in_fp16, flash2_in_fp16},
    {"fp16", "FA3", 1.9e-4, in_fp16, flash3_in_fp16},
    {"fp8", "baseline", 2.4e-2, by_tensor, standard_in_fp8},
    {"fp8", "FA3", 9.1e-3, rotated_by_block, flash3_in_fp8},
    {"fp8", "no block quantisation", 9.3e-3, rotated_by_tensor, flash3_in_fp8},
    {"fp8", "no incoherent processing", 2.4e-2, by_block, flash3_in_fp8},
};
constexpr int64_t method_count = std::size(methods);

/// O on these numbers, by the certified oracle.
std::vector<double> exact_output(Inputs in, const Operands& x) {
  const auto write = [](Tensor& tensor, const Matrix<float>& numbers) {
    for (int64_t n = 0; n < tensor.size(); ++n) tensor.set_bits(n, __builtin_bit_cast(uint32_t, numbers.data[n]));
  };
  write(in.q, x.q);
  write(in.k, x.k);
  write(in.v, x.v);
  return value_double(in, {}, 1)[OutputId::o].mid;
}

double rmse(const Matrix<float>& o, const std::vector<double>& exact) {
  double sum = 0;
  for (size_t n = 0; n < exact.size(); ++n) sum += (double(o.data[n]) - exact[n]) * (double(o.data[n]) - exact[n]);
  return std::sqrt(sum / double(exact.size()));
}

}  // namespace

double AccuracyRow::median() const {
  std::vector<double> sorted = rmse;
  std::sort(sorted.begin(), sorted.end());
  return (sorted[(sorted.size() - 1) / 2] + sorted[sorted.size() / 2]) / 2;
}
double AccuracyRow::low() const { return *std::min_element(rmse.begin(), rmse.end()); }
double AccuracyRow::high() const { return *std::max_element(rmse.begin(), rmse.end()); }

std::vector<AccuracyRow> accuracy_table(const AccuracySettings& s, int threads,
                                        const std::function<void(int64_t, int64_t)>& progress) {
  const auto lengths = std::ssize(s.keys);
  std::vector<AccuracyRow> table;
  for (const Method& method : methods)
    for (int64_t keys : s.keys)
      for (const char* reference : {"unrounded", "rounded"})
        table.push_back({method.format, method.name, reference, keys, std::vector<double>(s.seeds), method.published});
  const int64_t all = lengths * s.seeds;
  int64_t done = 0;
  std::mutex mutex;
  for_each_item(all, threads, [&](int64_t item) {
    const int64_t length = item % lengths, seed = item / lengths;
    const Inputs in = make_inputs(drawn_case(s, s.keys[length], uint64_t(seed) + 1));
    const Operands drawn{matrix_of(in.q, s.rows), matrix_of(in.k, s.keys[length]), matrix_of(in.v, s.keys[length])};
    const std::vector<double> unrounded = exact_output(in, drawn);
    for (int64_t m = 0; m < method_count; ++m) {
      const Operands given = methods[m].prepare(drawn, uint64_t(seed));
      const Matrix<float> o = methods[m].attend(given, scale_of(in.problem));
      AccuracyRow* rows = &table[(m * lengths + length) * 2];
      rows[0].rmse[seed] = rmse(o, unrounded);
      rows[1].rmse[seed] = rmse(o, exact_output(in, given));
    }
    const std::lock_guard lock(mutex);
    progress(++done, all);
  });
  return table;
}

std::vector<NotReproduced> not_reproduced(const std::vector<AccuracyRow>& table) {
  const auto distance = [](const AccuracyRow& row) { return std::fabs(std::log(row.published / row.median())); };
  const auto same = [](const AccuracyRow& a, const AccuracyRow& b) {
    return a.format == b.format && a.method == b.method && a.reference == b.reference;
  };
  std::vector<NotReproduced> list;
  for (size_t n = 0; n < table.size(); ++n) {
    bool first = true, held = false;
    const AccuracyRow* nearest = &table[n];
    for (size_t other = 0; other < table.size(); ++other) {
      if (!same(table[other], table[n])) continue;
      first &= other >= n;
      held |= table[other].holds_published();
      if (distance(table[other]) < distance(*nearest)) nearest = &table[other];
    }
    if (first && !held)
      list.push_back(
          {nearest->format, nearest->method, nearest->reference, nearest->published, nearest->median(), nearest->keys});
  }
  return list;
}

}  // namespace flashproof
