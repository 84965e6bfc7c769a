// A number whose operators count, operations that write down what is moved, and the run of an algorithm over them; see
// cost.h.
#include <algorithm>

#include "reference/cost_parts.h"
#include "reference/flash1.h"
#include "reference/flash3.h"
#include "reference/flash_decoding.h"
#include "reference/standard.h"

namespace flashproof {
namespace {

/// The count of the run in progress: an operator has no other place for it.
thread_local Operations tally;

/// A number of the run. Its value serves to find rows without keys alone.
struct Counted {
  double value = 0;
  Counted() = default;
  explicit Counted(double x) : value(x) {}
  bool operator==(const Counted&) const = default;
};
Counted operator+(const Counted& a, const Counted& b) { return ++tally.additions, Counted(a.value + b.value); }
Counted operator-(const Counted& a, const Counted& b) { return ++tally.additions, Counted(a.value - b.value); }
Counted operator*(const Counted& a, const Counted& b) { return ++tally.multiplications, Counted(a.value * b.value); }
Counted operator/(const Counted& a, const Counted& b) { return ++tally.divisions, Counted(a.value / b.value); }
bool operator>(const Counted& a, const Counted& b) { return ++tally.comparisons, a.value > b.value; }

struct CountingOps : ExactOps<Counted> {
  const Problem* problem;
  Cost* cost;

  static Counted minus_infinity() { return Counted(-std::numeric_limits<double>::infinity()); }
  /// All inputs are zeros, and so are all products.
  void multiply_add(Array, View<Counted> c, View<const Counted>, View<const Counted> b) const {
    tally.multiply_adds += c.rows * c.columns * b.rows;
  }
  Counted exp(const Counted& x) const { return ++tally.exponentials, Counted(std::exp(x.value)); }
  Counted log(const Counted& x) const { return ++tally.logarithms, Counted(std::log(x.value)); }
  /// Scores without a softcap have none.
  Counted tanh_ratio(const Counted& s, const Counted&) const { return s; }

  void load(Array a, const char* source, Span rows, int64 columns) const {
    (*cost)[a].loaded += rows.size() * columns;
    add_move(cost->moves, {a, false, source, rows.size() * columns});
    put_on_chip(a, rows.size() * columns * element_bytes(*problem, a));
  }
  void store(Array a, const char* source, Span rows, int64 columns) const {
    (*cost)[a].stored += rows.size() * columns;
    add_move(cost->moves, {a, true, source, rows.size() * columns});
    if (is_extra(a)) (*cost)[a].extent = std::max((*cost)[a].extent, rows.end * columns);
  }
  void hold(Array a, int64 rows, int64 columns) const {
    const bool narrow = a == Array::p || a == Array::ds;
    put_on_chip(a, rows * columns * (narrow ? format_of(problem->dtype).bits / 8 : 4));
  }
  void put_on_chip(Array a, int64 bytes) const { (*cost)[a].tile_bytes = std::max((*cost)[a].tile_bytes, bytes); }
};

Head<Counted> head_of_zeros(const Problem& p, int64 seq_q, int64 seq_k) {
  Head<Counted> head;
  head.rule.mask = p.mask;
  head.rule.seq_q = seq_q;
  head.rule.seq_k = seq_k;
  head.rule.scale = head.rule.value_factor = Counted(1);
  head.q = Matrix<Counted>(seq_q, p.head_dim);
  head.k = Matrix<Counted>(seq_k, p.head_dim);
  head.v = Matrix<Counted>(seq_k, p.value_dim);
  head.d_o = Matrix<Counted>(seq_q, p.value_dim);
  head.k_t = transpose(head.k);
  head.v_t = transpose(head.v);
  return head;
}

void run_forward(const CountingOps& ops, const Head<Counted>& head, std::string_view algorithm,
                 const Schedule& schedule) {
  if (algorithm == "standard")
    standard_forward(ops, head);
  else if (algorithm == "rabe_staats")
    rabe_staats_forward(ops, head, schedule.tile);
  else if (algorithm == "flash1")
    flash1_forward(ops, head, schedule.tile);
  else if (algorithm == "flash2")
    flash2_forward(ops, head, schedule.tile);
  else if (algorithm == "flash3")
    flash3_forward(ops, head, schedule.tile, format_of(ops.problem->dtype).bits == 8);
  else
    flash_decoding_forward(ops, head, schedule.tile, schedule.parts);
}

void run_backward(const CountingOps& ops, const Head<Counted>& head, std::string_view algorithm, TileSize tile) {
  const int64 seq_q = head.seq_q(), seq_k = head.seq_k();
  const HeadOutputs<Counted> stored(seq_q, head.value_dim());
  HeadGradients<Counted> out{{seq_q, head.q.columns}, {seq_k, head.q.columns}, {seq_k, head.value_dim()}, {}};
  if (algorithm == "standard")
    standard_backward_stored(ops, head, Matrix<Counted>(seq_q, seq_k), out);
  else if (algorithm == "flash1")
    flash1_backward(ops, head, tile, stored.o, stored.l, out);
  else
    flash2_backward(ops, head, tile, stored.o, stored.l, out);
  finish_gradient(ops, out.dq, head.rule.scale);
  finish_gradient(ops, out.dk, head.rule.scale);
  finish_gradient(ops, out.dv, head.rule.value_factor);
}

Cost cost_of_head(const Problem& p, int64 seq_q, int64 seq_k, std::string_view algorithm, Pass pass,
                  const Schedule& schedule) {
  Cost cost;
  CountingOps ops;
  ops.problem = &p;
  ops.cost = &cost;
  const Head<Counted> head = head_of_zeros(p, seq_q, seq_k);
  tally = Operations();
  if (pass == Pass::forward)
    run_forward(ops, head, algorithm, schedule);
  else
    run_backward(ops, head, algorithm, schedule.tile);
  cost.operations = tally;
  if (algorithm == "standard" || algorithm == "rabe_staats")
    for (ArrayCost& array : cost.arrays) array.tile_bytes = 0;
  return cost;
}

}  // namespace

Cost cost_by_running(const Problem& p, std::string_view algorithm, Pass pass, const Schedule& schedule) {
  refuse_uncosted(p, algorithm, pass, schedule);
  Cost total;
  for (const auto& [lengths, entries] : entries_by_length(p))
    add_times(total, cost_of_head(p, lengths.first, lengths.second, algorithm, pass, schedule), entries * p.heads);
  return total;
}

}  // namespace flashproof
