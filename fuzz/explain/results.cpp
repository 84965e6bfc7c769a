// LSE and GRAD: what is stored as L, what the backward reads of O and L, and the backward's own formulas.
#include <cmath>
#include <limits>

#include "fuzz/explain/hypothesis.h"

namespace flashproof {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double ln_2 = 0x1.62e42fefa39efp-1;

/// The largest score that counts in a row.
double largest_score(const RowSketch& row) {
  double top = row.sink;
  for (const Pair& pair : row.pairs)
    if (pair.visible) top = std::max(top, pair.s);
  return top;
}

/// L becomes `wrong`; `read`: the backward takes it for L, else it knows what was stored.
void add_stored_l(Hypotheses& list, const char* id, const char* sentence,
                  const std::function<double(const Inputs&, const RowSketch&)>& wrong) {
  for (const bool read : {false, true})
    add_mistake_in(in_forward, list, std::string(id) + (read ? ".read" : ""), "LSE",
                   std::string(sentence) + (read ? ", and the backward takes it for L" : ""),
                   [=](const Observation& o) -> std::optional<Mistake> {
                     if (read && !has_backward(o.in.problem)) return std::nullopt;
                     Mistake mistake;
                     mistake.result = [=](const Inputs& in, RowSketch& row) {
                       if (row.l == -infinity) return;
                       row.stored = wrong(in, row);
                       if (read) row.l = row.stored;
                     };
                     return mistake;
                   });
}

void add_l(Hypotheses& list) {
  add_stored_l(list, "l-base-2", "L is stored in base 2",
               [](const Inputs&, const RowSketch& row) { return row.l / ln_2; });
  add_stored_l(list, "l-times-ln-2", "L is multiplied with ln 2",
               [](const Inputs&, const RowSketch& row) { return row.l * ln_2; });
  add_stored_l(list, "l-without-maximum", "L is ln of the row sum, without the maximum",
               [](const Inputs&, const RowSketch& row) { return row.l - largest_score(row); });
  add_stored_l(list, "l-is-maximum", "L is the row's maximum, without ln of the sum",
               [](const Inputs&, const RowSketch& row) { return largest_score(row); });
  add_stored_l(list, "l-maximum-base-2", "L adds a maximum in base 2 to a natural ln of the sum",
               [](const Inputs&, const RowSketch& row) {
                 const double top = largest_score(row);
                 return top / ln_2 + (row.l - top);
               });
  add_stored_l(list, "l-sum-base-2", "L adds log2 of the sum to a natural maximum",
               [](const Inputs&, const RowSketch& row) {
                 const double top = largest_score(row);
                 return top + (row.l - top) / ln_2;
               });
  add_stored_l(list, "l-maximum-unscaled", "L adds the maximum before scaling to ln of the sum",
               [](const Inputs& in, const RowSketch& row) {
                 const double top = largest_score(row);
                 return top / score_scale<double>(in, row.at) + (row.l - top);
               });
  add_stored_l(list, "l-is-sum", "the row sum is stored in the place of L",
               [](const Inputs&, const RowSketch& row) { return std::exp(row.l - largest_score(row)); });
  add_stored_l(list, "l-negative", "L has the other sign", [](const Inputs&, const RowSketch& row) { return -row.l; });
  add_stored_l(list, "l-zero", "L is 0", [](const Inputs&, const RowSketch&) { return 0.0; });
}

/// Row (b, h, i) of O or L is taken from another place.
using Source = std::function<int64_t(const Inputs&, const HeadIndex&, int64_t i)>;  ///< flat row
void add_read_from(Hypotheses& list, const std::string& id, const std::string& words,
                   const std::function<bool(const Problem&)>& applies, const Source& source) {
  for (const bool of_l : {true, false})
    add_mistake_in(in_backward, list, std::string("backward-reads-") + (of_l ? "l-" : "o-") + id, of_l ? "LSE" : "GRAD",
                   std::string("the backward reads ") + (of_l ? "L" : "O (or D)") + " of " + words,
                   [=](const Observation& o) -> std::optional<Mistake> {
                     if (!applies(o.in.problem)) return std::nullopt;
                     Mistake mistake;
                     mistake.stored = [=](const Inputs& in, std::vector<double>& out, std::vector<double>& l) {
                       std::vector<double>& values = of_l ? l : out;
                       const std::vector<double> right = values;
                       const int64_t width = of_l ? 1 : in.problem.value_dim;
                       for (int64_t b = 0; b < in.problem.batch; ++b)
                         for (int64_t h = 0; h < in.problem.heads; ++h) {
                           const HeadIndex at = head_index(in, b, h);
                           for (int64_t i = 0; i < at.seq_q; ++i)
                             for (int64_t c = 0; c < width; ++c)
                               values[at.query_row(i) * width + c] = right[source(in, at, i) * width + c];
                         }
                     };
                     return mistake;
                   });
}

void add_reads(Hypotheses& list) {
  const auto clipped = [](const Inputs& in, int64_t row, int64_t h) {
    return std::min(row, in.packing.total_q() - 1) * in.problem.heads + h;
  };
  add_read_from(
      list, "entry-0", "entry 0 for every entry", [](const Problem& p) { return p.batch > 1; },
      [=](const Inputs& in, const HeadIndex& at, int64_t i) { return clipped(in, i, at.h); });
  add_read_from(
      list, "head-0", "head 0 for every head", [](const Problem& p) { return p.heads > 1; },
      [](const Inputs&, const HeadIndex& at, int64_t i) { return (at.q_begin + i) * at.heads; });
  add_read_from(
      list, "kv-head", "the head with the kv head's number", [](const Problem& p) { return p.heads > p.kv_heads; },
      [](const Inputs&, const HeadIndex& at, int64_t i) { return (at.q_begin + i) * at.heads + at.kv_head; });
  add_read_from(
      list, "next-row", "the next row", [](const Problem&) { return true; },
      [=](const Inputs& in, const HeadIndex& at, int64_t i) { return clipped(in, at.q_begin + i + 1, at.h); });
  add_read_from(
      list, "row-before", "the row before", [](const Problem&) { return true; },
      [](const Inputs&, const HeadIndex& at, int64_t i) {
        return std::max<int64_t>(0, at.q_begin + i - 1) * at.heads + at.h;
      });
  add_read_from(
      list, "row-0", "row 0 for every row", [](const Problem&) { return true; },
      [](const Inputs&, const HeadIndex& at, int64_t) { return at.q_begin * at.heads + at.h; });
}

void add_formulas(Hypotheses& list) {
  struct Formula {
    const char *id, *sentence;
    unsigned fault;
    bool (*applies)(const Problem&);
  };
  const auto any = [](const Problem&) { return true; };
  const auto capped = [](const Problem& p) { return p.softcap != 0; };
  const auto grouped = [](const Problem& p) { return p.heads > p.kv_heads; };
  const auto dropped = [](const Problem& p) { return p.dropout.has_value(); };
  const Formula formulas[] = {
      {"d-missing", "D is missing in dS", fault_no_d, any},
      {"softcap-slope-missing", "dS lacks the softcap's factor 1 - (s1 / cap)^2", fault_no_slope, capped},
      {"dq-unscaled", "dQ is not multiplied with the scale", fault_dq_unscaled, any},
      {"dk-unscaled", "dK is not multiplied with the scale", fault_dk_unscaled, any},
      {"dk-dv-last-head", "dK and dV are those of the group's last query head, not the group's sum",
       fault_dk_last_head | fault_dv_last_head, grouped},
      {"dk-last-head", "dK is that of the group's last query head, not the group's sum", fault_dk_last_head, grouped},
      {"dv-last-head", "dV is that of the group's last query head, not the group's sum", fault_dv_last_head, grouped},
      {"dk-dv-first-head", "dK and dV are those of the group's first query head, not the group's sum",
       fault_dk_first_head | fault_dv_first_head, grouped},
      {"dk-first-head", "dK is that of the group's first query head, not the group's sum", fault_dk_first_head,
       grouped},
      {"dv-first-head", "dV is that of the group's first query head, not the group's sum", fault_dv_first_head,
       grouped},
      {"dv-without-dropout", "dV ignores dropout", fault_dv_kept_all, dropped},
      {"ds-without-dropout", "dS ignores dropout in P dP", fault_g_kept_all, dropped},
      {"dv-dropout-unscaled", "dV's kept weights are not divided by 1 - rate", fault_dv_dropped_unscaled, dropped},
      {"ds-dropped-d", "dS is 0 where P is dropped, without - P D", fault_d_dropped, dropped},
      {"ds-of-dropped-p", "dS takes P after dropout, with dP as it is: z P (dP - D)", fault_ds_of_dropped_p, dropped},
      {"dp-without-t-v", "dP is not multiplied with V's descale", fault_g_without_t_v,
       [](const Problem& p) { return p.descale; }},
      {"dbias-first-heads", "dbias is summed over the groups' first query heads alone", fault_bias_first_heads,
       [](const Problem& p) { return p.bias.has_value() && p.heads > p.kv_heads; }},
      {"dsink-sign", "dsink has the other sign", fault_sink_sign, [](const Problem& p) { return p.sink; }},
      {"dbias-not-summed", "dbias is that of the last row that reaches it, not the sum", fault_bias_one_row,
       [](const Problem& p) { return p.bias.has_value(); }}};
  for (const Formula& formula : formulas)
    add_mistake_in(in_backward, list, formula.id, "GRAD", formula.sentence,
                   [formula](const Observation& o) -> std::optional<Mistake> {
                     if (!formula.applies(o.in.problem)) return std::nullopt;
                     Mistake mistake;
                     mistake.gradient = formula.fault;
                     return mistake;
                   });
}

}  // namespace

void add_result_hypotheses(Hypotheses& list) { add_l(list); }

void add_gradient_hypotheses(Hypotheses& list) {
  add_reads(list);
  add_formulas(list);
}

}  // namespace flashproof
