// The tensors of a case: recipe or file, seen through the index maps, then the edits of single elements.
#include "reference/inputs.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "reference/errors.h"
#include "reference/safetensors.h"
#include "reference/threads.h"

namespace flashproof {

// ---- Tensors

Tensor::Tensor(DType element, std::vector<int64_t> extents) : dtype(element), shape(std::move(extents)) {
  bytes.resize(size_t(size()) * size_t(format_of(dtype).bits / 8));
}

int64_t Tensor::size() const {
  if (shape.empty()) return 0;
  int64_t product = 1;
  for (const int64_t extent : shape) product *= extent;
  return product;
}

void Tensor::set_bits(int64_t index, uint32_t value) {
  const size_t width = size_t(format_of(dtype).bits / 8);
  std::memcpy(bytes.data() + size_t(index) * width, &value, width);
}

std::vector<double> decoded(const Tensor& tensor) {
  std::vector<double> values(size_t(tensor.size()));
  for (size_t n = 0; n < values.size(); ++n) values[n] = tensor.at(int64_t(n));
  return values;
}

Packing packing_of(const Problem& p) {
  Packing packing{{0}, {0}};
  for (int64_t b = 0; b < p.batch; ++b) {
    packing.q_begin.push_back(packing.total_q() + used_length(p.q, b));
    packing.k_begin.push_back(packing.total_k() + used_length(p.k, b));
  }
  return packing;
}

// ---- Data

namespace {

int64_t source_of(const std::vector<int64_t>& map, int64_t index) { return map.empty() ? index : map[size_t(index)]; }

/// Q, K and V of a file, decoded; the rules are FileData's.
struct Stored {
  std::vector<int64_t> shape[3];
  std::vector<double> values[3];
};

std::vector<double> decoded(const SafeTensor& tensor, const std::string& where) {
  const auto dtype = dtype_of_word(tensor.dtype);
  if (!dtype) throw UsageError(where + " has dtype `" + tensor.dtype + "`, needs F32, BF16, F16, F8_E4M3 or F8_E5M2");
  Tensor copy(*dtype, tensor.shape);
  copy.bytes = tensor.bytes;
  return decoded(copy);
}

Stored read_stored(const FileData& data) {
  const SafeTensors file = read_safetensors(data.path);
  Stored stored;
  const char* names[] = {"Q", "K", "V"};
  for (size_t n = 0; n < 3; ++n) {
    const std::string name = data.layer + names[n];
    const auto found = file.tensors.find(name);
    if (found == file.tensors.end()) {
      std::string why = data.path + ": has no tensor `" + name + "`; it has";
      for (const auto& [other, tensor] : file.tensors) why.append(" ").append(other);
      throw UsageError(why);
    }
    stored.shape[n] = found->second.shape;
    stored.values[n] = decoded(found->second, data.path + ": tensor `" + name + "`");
    if (stored.shape[n].size() != 3 || stored.values[n].empty()) {
      throw UsageError(data.path + ": tensor `" + name + "` must be [heads, seq, dim], none of them 0");
    }
  }
  const auto &q = stored.shape[0], &k = stored.shape[1], &v = stored.shape[2];
  if (k[0] != v[0] || k[1] != v[1] || q[2] != k[2] || q[0] % k[0] != 0) {
    throw UsageError(data.path +
                     ": Q, K, V do not belong together: K and V need the same heads and length, Q and K the same "
                     "dim, and the heads of K must divide those of Q");
  }
  return stored;
}

constexpr int64_t entry_shift = 97;  ///< positions between the batch entries' starts in a file

double stored_value(const Stored& stored, const FileData& data, Operand operand, const Place& at) {
  const size_t n = size_t(operand);
  const auto& shape = stored.shape[n];
  const int64_t group = stored.shape[0][0] / stored.shape[1][0];
  const int64_t head = ((operand == Operand::q ? data.first_head : data.first_head / group) + at.head) % shape[0];
  const int64_t first = operand == Operand::q ? data.first_row : data.first_key;
  const int64_t position = (first + entry_shift * at.b + at.position) % shape[1];
  if (operand != Operand::v && at.channel >= shape[2]) return 0;
  return stored.values[n][size_t((head * shape[1] + position) * shape[2] + at.channel % shape[2])];
}

/// One case's data at source positions.
struct Source {
  const Case& c;
  std::optional<Stored> stored;

  uint32_t bits(Operand operand, const ElementContext& context, const Place& at) const {
    if (stored && operand <= Operand::v) {
      const double largest = format_of(context.dtype).largest, x = stored_value(*stored, c.file, operand, at);
      return encode(context.dtype, std::abs(x) > largest ? std::copysign(largest, x) : x);
    }
    return element(c.recipe, operand, context, at.b, at.position, at.head, at.channel);
  }
};

/// Sk of entry b at the source: one past the furthest source key.
int64_t source_seq_k(const Case& c, int64_t b) {
  const int64_t used = used_length(c.problem.k, b);
  if (c.maps.keys.empty() || used == 0) return used;
  return *std::max_element(c.maps.keys.begin(), c.maps.keys.begin() + used) + 1;
}

ElementContext context_of(const Case& c, DType dtype, int64_t b) {
  const Problem& p = c.problem;
  // Families speak of the source's last channel and wrap at the source's value dim.
  const auto extent = [](const std::vector<int64_t>& map, int64_t size) {
    return map.empty() ? size : *std::max_element(map.begin(), map.end()) + 1;
  };
  return {dtype, source_seq_k(c, b), extent(c.maps.channels, p.head_dim), extent(c.maps.value_channels, p.value_dim),
          scale_of(p)};
}

std::vector<int64_t> sources_of(const std::vector<int64_t>& map, int64_t count) {
  std::vector<int64_t> sources;
  for (int64_t index = 0; index < count; ++index) sources.push_back(source_of(map, index));
  return sources;
}

/// The tokens of q, k, v or dO, of which entry b has those from begin[b] on.
TokenPlan plan_tokens(const Case& c, Operand operand, const std::vector<int64_t>& begin) {
  const Problem& p = c.problem;
  const bool query_side = operand == Operand::q || operand == Operand::d_o;
  const bool wide_as_v = operand == Operand::v || operand == Operand::d_o;
  const auto& positions = query_side ? c.maps.rows : c.maps.keys;
  TokenPlan plan{c.recipe, operand, {}, {}, {}, {}};
  plan.heads = query_side ? sources_of(c.maps.heads, p.heads) : sources_of(c.maps.kv_heads, p.kv_heads);
  plan.channels = wide_as_v ? sources_of(c.maps.value_channels, p.value_dim) : sources_of(c.maps.channels, p.head_dim);
  for (int64_t b = 0; b < p.batch; ++b) {
    plan.contexts.push_back(context_of(c, p.dtype, b));
    for (int64_t i = 0; i < begin[size_t(b) + 1] - begin[size_t(b)]; ++i)
      plan.tokens.push_back({b, source_of(c.maps.batches, b), source_of(positions, i)});
  }
  return plan;
}

/// Elements from which on other threads or a maker are worth their start of some 50 us; one takes some 50 ns.
constexpr int64_t worth_others = 1 << 17;

/// Tokens of q, k, v or dO: [total, heads, channels].
Tensor make_tokens(const Source& source, Operand operand, const std::vector<int64_t>& begin, const TokenMaker& make) {
  const TokenPlan plan = plan_tokens(source.c, operand, begin);
  Tensor tensor(source.c.problem.dtype, {begin.back(), int64_t(plan.heads.size()), int64_t(plan.channels.size())});
  if (make && !source.stored && tensor.size() >= worth_others) {
    try {
      make(plan, tensor);
      return tensor;
    } catch (const UnavailableError&) {  // its memory is short; the host makes the same bits
    }
  }
  for_each_item(begin.back(), tensor.size() < worth_others ? 1 : 0, [&](int64_t n) {
    const TokenPlace& token = plan.tokens[size_t(n)];
    int64_t index = n * int64_t(plan.heads.size() * plan.channels.size());
    for (const int64_t head : plan.heads)
      for (const int64_t channel : plan.channels)
        tensor.set_bits(index++, source.bits(operand, plan.contexts[size_t(token.context)],
                                             {token.b, token.position, head, channel}));
  });
  return tensor;
}

Tensor make_bias(const Source& source) {
  const Case& c = source.c;
  const Problem& p = c.problem;
  if (!p.bias) return {};
  const Bias& bias = *p.bias;
  const DType dtype = bias.fp32 ? DType::fp32 : p.dtype;
  Tensor tensor(dtype, {bias.batch ? p.batch : 1, bias.head ? p.heads : 1,
                        bias.query ? max_used_length(p.q, p.batch) : 1, bias.key ? max_used_length(p.k, p.batch) : 1});
  const ElementContext context = context_of(c, dtype, 0);
  int64_t index = 0;
  for (int64_t b = 0; b < tensor.shape[0]; ++b) {
    for (int64_t h = 0; h < tensor.shape[1]; ++h) {
      for (int64_t i = 0; i < tensor.shape[2]; ++i) {
        for (int64_t j = 0; j < tensor.shape[3]; ++j) {
          const Place at = {bias.batch ? source_of(c.maps.batches, b) : 0, bias.query ? source_of(c.maps.rows, i) : 0,
                            bias.head ? source_of(c.maps.heads, h) : 0, bias.key ? source_of(c.maps.keys, j) : 0};
          tensor.set_bits(index++, source.bits(Operand::bias, context, at));
        }
      }
    }
  }
  return tensor;
}

/// fp32 numbers [batch, heads]; where they are not per entry, those of entry 0 repeated.
std::vector<float> make_numbers(const Source& source, Operand operand, bool per_entry, int64_t heads,
                                const std::vector<int64_t>& head_map) {
  const ElementContext context = context_of(source.c, DType::fp32, 0);
  std::vector<float> numbers;
  for (int64_t b = 0; b < source.c.problem.batch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      const Place at = {per_entry ? source_of(source.c.maps.batches, b) : 0, 0, source_of(head_map, h), 0};
      numbers.push_back(float(decode(DType::fp32, source.bits(operand, context, at))));
    }
  }
  return numbers;
}

void make_modifiers(const Source& source, Inputs& inputs) {
  const Case& c = source.c;
  const Problem& p = c.problem;
  if (p.alibi != Alibi::none) {
    const bool per_entry = p.alibi == Alibi::per_batch_and_head;
    inputs.slopes = make_numbers(source, Operand::slope, per_entry, p.heads, c.maps.heads);
  }
  if (p.sink) {
    inputs.sinks = make_numbers(source, Operand::sink, false, p.heads, c.maps.heads);
    inputs.sinks.resize(size_t(p.heads));
  }
  std::vector<float>* descales[] = {&inputs.q_descale, &inputs.k_descale, &inputs.v_descale};
  for (int n = 0; n < 3; ++n) {
    *descales[n] = std::vector<float>(size_t(p.batch * p.kv_heads), 1.0f);
    if (p.descale) {
      *descales[n] = make_numbers(source, Operand(int(Operand::q_descale) + n), true, p.kv_heads, c.maps.kv_heads);
    }
  }
}

// ---- Edits

void set_number(std::vector<float>& numbers, int64_t index, uint32_t bits) {
  numbers[size_t(index)] = float(decode(DType::fp32, bits));
  if (!std::isfinite(numbers[size_t(index)]))
    throw UsageError("slopes, sinks and descales must be finite fp32 numbers");
}

void apply(const SetElement& set, Inputs& inputs) {
  const Problem& p = inputs.problem;
  const int64_t row = inputs.packing.q_begin[size_t(set.b)] + set.position;
  const int64_t key = inputs.packing.k_begin[size_t(set.b)] + set.position;
  switch (set.operand) {
    case Operand::q:
      return inputs.q.set_bits((row * p.heads + set.head) * p.head_dim + set.channel, set.bits);
    case Operand::k:
      return inputs.k.set_bits((key * p.kv_heads + set.head) * p.head_dim + set.channel, set.bits);
    case Operand::v:
      return inputs.v.set_bits((key * p.kv_heads + set.head) * p.value_dim + set.channel, set.bits);
    case Operand::d_o:
      return inputs.d_o.set_bits((row * p.heads + set.head) * p.value_dim + set.channel, set.bits);
    case Operand::bias: {
      const auto& shape = inputs.bias.shape;
      const int64_t index = ((set.b * shape[1] + set.head) * shape[2] + set.position) * shape[3] + set.channel;
      return inputs.bias.set_bits(index, set.bits);
    }
    case Operand::slope:
      set_number(inputs.slopes, set.b * p.heads + set.head, set.bits);
      for (int64_t b = 1; b < p.batch && p.alibi == Alibi::per_head; ++b) {
        set_number(inputs.slopes, b * p.heads + set.head, set.bits);
      }
      return;
    case Operand::sink:
      return set_number(inputs.sinks, set.head, set.bits);
    case Operand::q_descale:
      return set_number(inputs.q_descale, set.b * p.kv_heads + set.head, set.bits);
    case Operand::k_descale:
      return set_number(inputs.k_descale, set.b * p.kv_heads + set.head, set.bits);
    case Operand::v_descale:
      return set_number(inputs.v_descale, set.b * p.kv_heads + set.head, set.bits);
  }
}

}  // namespace

Inputs make_inputs(const Case& c) { return make_inputs(c, {}); }

Inputs make_inputs(const Case& c, const TokenMaker& make) {
  validate(c);
  Source source{c, {}};
  if (c.recipe.family == Family::file) source.stored = read_stored(c.file);
  Inputs inputs;
  inputs.problem = c.problem;
  inputs.packing = packing_of(c.problem);
  inputs.q = make_tokens(source, Operand::q, inputs.packing.q_begin, make);
  inputs.k = make_tokens(source, Operand::k, inputs.packing.k_begin, make);
  inputs.v = make_tokens(source, Operand::v, inputs.packing.k_begin, make);
  inputs.d_o = make_tokens(source, Operand::d_o, inputs.packing.q_begin, make);
  inputs.bias = make_bias(source);
  make_modifiers(source, inputs);
  for (const SetElement& set : c.sets) {
    apply(set, inputs);
    if (set.operand == Operand::bias && !(decode(inputs.bias.dtype, set.bits) < INFINITY)) {
      throw UsageError("a bias must not be NaN or +infinity");
    }
  }
  return inputs;
}

// ---- Outputs

Outputs make_outputs(const Problem& p) {
  const Packing packing = packing_of(p);
  const DType dtype = output_dtype(p);
  Outputs outputs;
  outputs.o = Tensor(dtype, {packing.total_q(), p.heads, p.value_dim});
  outputs.lse = Tensor(DType::fp32, {packing.total_q(), p.heads});
  if (!has_backward(p)) return outputs;
  outputs.dq = Tensor(dtype, {packing.total_q(), p.heads, p.head_dim});
  outputs.dk = Tensor(dtype, {packing.total_k(), p.kv_heads, p.head_dim});
  outputs.dv = Tensor(dtype, {packing.total_k(), p.kv_heads, p.value_dim});
  if (p.sink) outputs.dsink = Tensor(DType::fp32, {p.heads});
  if (p.bias) {
    outputs.dbias = Tensor(DType::fp32, {p.bias->batch ? p.batch : 1, p.bias->head ? p.heads : 1,
                                         p.bias->query ? max_used_length(p.q, p.batch) : 1,
                                         p.bias->key ? max_used_length(p.k, p.batch) : 1});
  }
  return outputs;
}

const char* name_of(OutputId id) {
  constexpr const char* names[output_count] = {"O", "L", "dQ", "dK", "dV", "dsink", "dbias"};
  return names[int(id)];
}

const Tensor& tensor_of(const Outputs& outputs, OutputId id) {
  const Tensor* tensors[output_count] = {&outputs.o,  &outputs.lse,   &outputs.dq,   &outputs.dk,
                                         &outputs.dv, &outputs.dsink, &outputs.dbias};
  return *tensors[int(id)];
}
Tensor& tensor_of(Outputs& outputs, OutputId id) {
  return const_cast<Tensor&>(tensor_of(static_cast<const Outputs&>(outputs), id));
}

// ---- What a row sees

double bias_at(const Inputs& inputs, int64_t b, int64_t h, int64_t i, int64_t j) {
  if (!inputs.problem.bias) return 0;
  const Bias& axes = *inputs.problem.bias;
  const auto& shape = inputs.bias.shape;
  const int64_t entry = axes.batch ? b : 0, head = axes.head ? h : 0, row = axes.query ? i : 0, key = axes.key ? j : 0;
  return inputs.bias.at(((entry * shape[1] + head) * shape[2] + row) * shape[3] + key);
}

bool sees(const Inputs& inputs, int64_t b, int64_t h, int64_t i, int64_t j) {
  return visible(inputs.problem.mask, inputs.packing.seq_q(b), inputs.packing.seq_k(b), i, j) &&
         bias_at(inputs, b, h, i, j) != -INFINITY;
}

bool keeps(const Problem& p, int64_t b, int64_t h, int64_t i, int64_t j) {
  return !p.dropout || dropout_keeps(p.dropout->seed, dropout_threshold(p.dropout->rate), b, h, i, j);
}

}  // namespace flashproof
