// FlashAttention 2's forward (reference/flash2.h) for a group of up to 16 query rows, as a team of threads carries it
// out with the chip's operations in ordinary instructions: a block of a GPU, or one thread of the host.
//
// The rows of a tile share which tiles of keys they pass over, and nothing else, so a tile is worked on in groups.
// For each tile of keys, which is worked on whole (nobody sees the keys of its rest), with waits between the steps:
//   scores       thread n: s of one row and key after the other
//   softmax      thread r < rows: softmax_step and drop_and_round of row r
//   weights      thread n: the weights as operands
//   accumulator  thread n: O of one row and channel after the other, rescaled, plus P V
#pragma once
#include "oracle/gpu/decoded_step.h"
#include "oracle/hardware_ops.h"
#include "reference/flash2.h"

namespace flashproof {

/// Encoded numbers that belong to another.
struct EncodedView {
  DType dtype = DType::fp32;
  const unsigned char* data = nullptr;

  FLASHPROOF_HD bool empty() const { return data == nullptr; }
  FLASHPROOF_HD double operator[](int64 n) const {
    const int bytes = format_of(dtype).bits / 8;
    uint32 word = 0;
    for (int byte = 0; byte < bytes; ++byte) word |= uint32(data[n * bytes + byte]) << 8 * byte;
    return decode(dtype, word);
  }
};

/// The rows of one head in a packed tensor [tokens, heads, columns].
struct EncodedRows {
  EncodedView tensor;
  int64 first = 0, step = 1, columns = 1;  ///< row i is row first + i step of [tokens heads, columns]
  FLASHPROOF_HD float at(int64 i, int64 c) const { return float(tensor[(first + i * step) * columns + c]); }
};

/// Threads that work together.
struct Team {
  int lane = 0, lanes = 1;
  FLASHPROOF_HD void wait() const {
#ifdef __CUDA_ARCH__
    __syncthreads();
#endif
  }
};

/// One query head: its rule, its operands and where its outputs lie. Inner axes of decoded operands are in the steps'
/// order and padded with zeros to whole instructions.
struct HeadTask {
  ScoreRule<float, EncodedView> rule;
  EncodedRows encoded_q, encoded_k, encoded_v;
  DecodedOperand* q = nullptr;          ///< [Sq, inner]
  DecodedOperand* k = nullptr;          ///< [inner, Sk]; k and v are shared by the query heads of a kv head
  DecodedOperand* v = nullptr;          ///< [Sk up to a whole tile, dv]
  uint32 *o = nullptr, *lse = nullptr;  ///< encoded, of row 0; the next row's stand `heads` rows further
};

/// What all heads share.
struct PredictionShape {
  HardwareOps ops;
  int64 heads = 1, inner = 0, value_dim = 0, tile_m = 0, tile_n = 0;
};

constexpr int group_rows = 16;  ///< at most; where a tile ends, fewer

FLASHPROOF_HD constexpr int64 groups_a_tile(int64 tile_m) { return (tile_m + group_rows - 1) / group_rows; }
FLASHPROOF_HD constexpr int64 groups_of_head(const PredictionShape& shape, int64 seq_q) {
  return (seq_q + shape.tile_m - 1) / shape.tile_m * groups_a_tile(shape.tile_m);
}
/// The rows of a group; none (begin >= end) where the tile has ended before it.
FLASHPROOF_HD constexpr Span rows_of_group(const PredictionShape& shape, int64 seq_q, int64 group) {
  const int64 groups = groups_a_tile(shape.tile_m);
  const Span tile = tile_at(group / groups * shape.tile_m, shape.tile_m, seq_q);
  return tile_at(tile.begin + group % groups * group_rows, group_rows, tile.end);
}

/// What a team keeps of its rows: one array for each line below.
struct GroupState {
  float* score;            ///< S, then P, [group_rows, tile_n]
  DecodedOperand* weight;  ///< P as operands, likewise
  float* accumulator;      ///< O, not normalised, [group_rows, dv]
  float *maximum, *rescale;
  FourLanes* sum;
};
FLASHPROOF_HD constexpr int64 group_state_bytes(int64 tile_n, int64 value_dim) {
  return group_rows * (tile_n * int64(sizeof(DecodedOperand) + sizeof(float)) + value_dim * int64(sizeof(float)) +
                       int64(2 * sizeof(float) + sizeof(FourLanes)));
}
/// Lays the arrays out in group_state_bytes() bytes, aligned to 8.
FLASHPROOF_HD inline GroupState group_state_at(void* memory, int64 tile_n, int64 value_dim) {
  GroupState state = {};
  state.weight = static_cast<DecodedOperand*>(memory);
  state.score = reinterpret_cast<float*>(state.weight + group_rows * tile_n);
  state.accumulator = state.score + group_rows * tile_n;
  state.maximum = state.accumulator + group_rows * value_dim;
  state.rescale = state.maximum + group_rows;
  state.sum = reinterpret_cast<FourLanes*>(state.rescale + group_rows);
  return state;
}

/// Up to a whole instruction.
FLASHPROOF_HD constexpr int64 padded(const MatrixUnit& unit, int64 count) {
  const int64 length = products_an_instruction(unit);
  return (count + length - 1) / length * length;
}
/// Which index of the inner axis stands at a position of its decoded operands.
FLASHPROOF_HD constexpr int64 index_at(const MatrixUnit& unit, int64 position) {
  const int64 length = products_an_instruction(unit);
  return position / length * length + product_at(unit, int(position % length));
}

/// Rows of decoded V: whole tiles, with zeros behind the last key.
FLASHPROOF_HD constexpr int64 rows_of_values(const PredictionShape& shape, int64 seq_k) {
  return (seq_k + shape.tile_n - 1) / shape.tile_n * shape.tile_n;
}

FLASHPROOF_HD inline void decode_queries(const PredictionShape& shape, const HeadTask& head, const Team& team) {
  const MatrixUnit& unit = shape.ops.scores;
  for (int64 n = team.lane; n < head.rule.seq_q * shape.inner; n += team.lanes) {
    const int64 c = index_at(unit, n % shape.inner);
    head.q[n] = c < head.encoded_q.columns
                    ? decoded_operand(head.encoded_q.at(n / shape.inner, c), format_of(unit_of_step(unit).a).emin)
                    : DecodedOperand{};
  }
}
FLASHPROOF_HD inline void decode_keys(const PredictionShape& shape, const HeadTask& head, const Team& team) {
  const MatrixUnit& unit = shape.ops.scores;
  const int64 seq_k = head.rule.seq_k;
  for (int64 n = team.lane; n < seq_k * shape.inner; n += team.lanes) {
    const int64 c = index_at(unit, n / seq_k);
    head.k[n] = c < head.encoded_k.columns
                    ? decoded_operand(head.encoded_k.at(n % seq_k, c), format_of(unit_of_step(unit).b).emin)
                    : DecodedOperand{};
  }
}
FLASHPROOF_HD inline void decode_values(const PredictionShape& shape, const HeadTask& head, const Team& team) {
  const MatrixUnit& unit = shape.ops.values;
  const int64 columns = shape.value_dim;
  for (int64 n = team.lane; n < rows_of_values(shape, head.rule.seq_k) * columns; n += team.lanes) {
    const int64 j = index_at(unit, n / columns);
    head.v[n] = j < head.rule.seq_k
                    ? decoded_operand(head.encoded_v.at(j, n % columns), format_of(unit_of_step(unit).b).emin)
                    : DecodedOperand{};
  }
}

/// C and the products of `inner` operands, whole instructions of them.
FLASHPROOF_HD inline float add_products(const MatrixUnit& unit, const DecodedOperand* a, const DecodedOperand* b,
                                        int64 b_stride, int64 inner, float c) {
  const int length = products_an_instruction(unit);
  for (int64 k = 0; k < inner; k += length) c = decoded_instruction(unit, a + k, b + k * b_stride, b_stride, c);
  return c;
}

FLASHPROOF_HD inline void start_group(const PredictionShape& shape, const HeadTask& head, const GroupState& state,
                                      const Team& team) {
  const bool sink = head.rule.has_sink;
  for (int n = team.lane; n < group_rows * int(shape.value_dim); n += team.lanes) state.accumulator[n] = 0;
  for (int r = team.lane; r < group_rows; r += team.lanes) {
    state.maximum[r] = sink ? head.rule.sink : HardwareOps::minus_infinity();
    state.sum[r] = FourLanes(sink ? 1 : 0);
  }
}

/// S of the tile, -infinity where the row does not see the key.
FLASHPROOF_HD inline void set_scores(const PredictionShape& shape, const HeadTask& head, Span rows, Span keys,
                                     const GroupState& state, const Team& team) {
  const int columns = int(keys.size());
  for (int n = team.lane; n < int(rows.size()) * columns; n += team.lanes) {
    const int64 i = rows.begin + n / columns, j = keys.begin + n % columns;
    float s = HardwareOps::minus_infinity();
    if (sees(head.rule, i, j)) {
      const float product =
          add_products(shape.ops.scores, head.q + i * shape.inner, head.k + j, head.rule.seq_k, shape.inner, 0.0f);
      s = score_of(shape.ops, head.rule, i, j, product);
    }
    state.score[n] = s;
  }
}

/// P of the tile in place of its scores, and with it the rows' m and l.
FLASHPROOF_HD inline void set_weights(const PredictionShape& shape, const HeadTask& head, Span rows, Span keys,
                                      const GroupState& state, const Team& team) {
  for (int r = team.lane; r < int(rows.size()); r += team.lanes) {
    float* p = state.score + r * shape.tile_n;
    state.rescale[r] = softmax_step(shape.ops, p, keys.size(), state.maximum[r], state.sum[r]);
    drop_and_round(shape.ops, head.rule, rows.begin + r, keys, p);
  }
  team.wait();
  const MatrixUnit& unit = shape.ops.values;
  const int emin = format_of(unit_of_step(unit).a).emin;
  for (int n = team.lane; n < int(rows.size() * keys.size()); n += team.lanes)
    state.weight[n] = decoded_operand(state.score[index_at(unit, n)], emin);
}

FLASHPROOF_HD inline void add_values(const PredictionShape& shape, const HeadTask& head, Span rows, Span keys,
                                     const GroupState& state, const Team& team) {
  const int columns = int(shape.value_dim);
  for (int n = team.lane; n < int(rows.size()) * columns; n += team.lanes) {
    const int r = n / columns;
    shape.ops.rescale(state.accumulator + n, 1, state.rescale[r]);
    state.accumulator[n] =
        add_products(shape.ops.values, state.weight + r * shape.tile_n, head.v + keys.begin * columns + n % columns,
                     columns, keys.size(), state.accumulator[n]);
  }
}

FLASHPROOF_HD inline void finish_group(const PredictionShape& shape, const HeadTask& head, Span rows,
                                       const GroupState& state, const Team& team) {
  const HardwareOps& ops = shape.ops;
  const int columns = int(shape.value_dim);
  for (int n = team.lane; n < int(rows.size()) * columns; n += team.lanes) {
    const int r = n / columns;
    const float o = ops.finish(state.accumulator[n], ops.total(state.sum[r]), head.rule.value_factor);
    head.o[(rows.begin + r) * shape.heads * columns + n % columns] = encode(ops.output_format, ops.round_output(o));
  }
  for (int r = team.lane; r < int(rows.size()); r += team.lanes)
    head.lse[(rows.begin + r) * shape.heads] =
        encode(DType::fp32, log_sum_exp(ops, state.maximum[r], ops.total(state.sum[r])));
}

/// O and L of the rows, which lie in one tile of rows, as encoded bits.
FLASHPROOF_HD inline void predict_group(const PredictionShape& shape, const HeadTask& head, Span rows,
                                        const GroupState& state, const Team& team) {
  const int64 first = rows.begin / shape.tile_m * shape.tile_m;
  const Span seen = keys_of_rows(head.rule, tile_at(first, shape.tile_m, head.rule.seq_q));
  start_group(shape, head, state, team);
  for (int64 j = seen.begin / shape.tile_n * shape.tile_n; j < seen.end; j += shape.tile_n) {
    const Span keys = {j, j + shape.tile_n};
    set_scores(shape, head, rows, keys, state, team);
    team.wait();
    set_weights(shape, head, rows, keys, state, team);
    team.wait();
    add_values(shape, head, rows, keys, state, team);
  }
  team.wait();
  finish_group(shape, head, rows, state, team);
}

}  // namespace flashproof
