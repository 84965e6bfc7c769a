// ALiBi, bias, sink, dropout, descales and the map from query heads to kv heads: ignored, of another head, or
// misapplied.
#include <cmath>
#include <limits>

#include "fuzz/explain/hypothesis.h"
#include "reference/philox.h"

namespace flashproof {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double log2_e = 0x1.71547652b82fep0;

using Applies = std::function<bool(const Problem&)>;
using RowEdit = std::function<void(const Inputs&, RowSketch&)>;
using InputEdit = std::function<void(Inputs&)>;

void add_row_edit(Hypotheses& list, const char* id, const char* category, const char* sentence, const Applies& applies,
                  const RowEdit& edit) {
  add_mistake(list, id, category, sentence, [=](const Observation& o) -> std::optional<Mistake> {
    if (!applies(o.in.problem)) return std::nullopt;
    Mistake mistake;
    mistake.scores = edit;
    return mistake;
  });
}

void add_input_edit(Hypotheses& list, const char* id, const char* category, const char* sentence,
                    const Applies& applies, const InputEdit& edit) {
  add_mistake(list, id, category, sentence, [=](const Observation& o) -> std::optional<Mistake> {
    if (!applies(o.in.problem)) return std::nullopt;
    Mistake mistake;
    mistake.inputs = edit;
    return mistake;
  });
}

int64_t group_of(const Problem& p) { return p.heads / p.kv_heads; }

/// Which (b, h) takes the place of (b, h) where a mistake reads a neighbour's.
struct OtherPlace {
  const char *id, *words;
  std::pair<int64_t, int64_t> (*place)(const Problem&, int64_t b, int64_t h);
  bool (*differs)(const Problem&);
};
constexpr OtherPlace other_places[] = {
    {"head-0", "head 0",
     [](const Problem&, int64_t b, int64_t) {
       return std::pair{b, int64_t(0)};
     },
     [](const Problem& p) { return p.heads > 1; }},
    {"next-head", "the next head",
     [](const Problem& p, int64_t b, int64_t h) {
       return std::pair{b, (h + 1) % p.heads};
     },
     [](const Problem& p) { return p.heads > 1; }},
    {"kv-head", "the head with the kv head's number",
     [](const Problem& p, int64_t b, int64_t h) {
       return std::pair{b, h / group_of(p)};
     },
     [](const Problem& p) { return group_of(p) > 1; }},
    {"head-in-group", "the head with the number inside the group",
     [](const Problem& p, int64_t b, int64_t h) {
       return std::pair{b, h % group_of(p)};
     },
     [](const Problem& p) { return p.kv_heads > 1; }},
    {"head-mod-kv-heads", "head h mod Hk",
     [](const Problem& p, int64_t b, int64_t h) {
       return std::pair{b, h % p.kv_heads};
     },
     [](const Problem& p) { return group_of(p) > 1; }},
    {"entry-0", "entry 0",
     [](const Problem&, int64_t, int64_t h) {
       return std::pair{int64_t(0), h};
     },
     [](const Problem& p) { return p.batch > 1; }},
};

// ---- ALiBi

bool has_alibi(const Problem& p) { return p.alibi != Alibi::none; }

void add_alibi(Hypotheses& list) {
  add_input_edit(list, "alibi-ignored", "SCOREMOD", "ALiBi is ignored", has_alibi,
                 [](Inputs& in) { in.problem.alibi = Alibi::none; });
  add_input_edit(list, "alibi-sign", "SCOREMOD", "ALiBi is added instead of subtracted", has_alibi, [](Inputs& in) {
    for (float& slope : in.slopes) slope = -slope;
  });
  add_input_edit(list, "alibi-base-2", "SCOREMOD", "ALiBi is not converted to base 2", has_alibi, [](Inputs& in) {
    for (float& slope : in.slopes) slope = float(slope / log2_e);
  });
  add_input_edit(list, "alibi-scaled", "SCOREMOD", "ALiBi is multiplied with the scale", has_alibi, [](Inputs& in) {
    for (float& slope : in.slopes) slope *= scale_of(in.problem);
  });
  for (const OtherPlace& other : other_places)
    add_input_edit(
        list, (std::string("alibi-of-") + other.id).c_str(), "SCOREMOD",
        (std::string("the ALiBi slope is that of ") + other.words).c_str(),
        [other](const Problem& p) { return has_alibi(p) && other.differs(p); },
        [other](Inputs& in) {
          const std::vector<float> slopes = in.slopes;
          for (int64_t b = 0; b < in.problem.batch; ++b)
            for (int64_t h = 0; h < in.problem.heads; ++h) {
              const auto [from_b, from_h] = other.place(in.problem, b, h);
              in.slopes[b * in.problem.heads + h] = slopes[from_b * in.problem.heads + from_h];
            }
        });
  struct Distance {
    const char *id, *sentence;
    double (*wrong)(const HeadIndex&, const Mask&, int64_t i, int64_t j);
  };
  const Distance distances[] = {
      {"alibi-without-offset", "ALiBi's distance is |i - j|, without the alignment offset",
       [](const HeadIndex&, const Mask&, int64_t i, int64_t j) { return double(std::abs(i - j)); }},
      {"alibi-with-offset", "ALiBi's distance is aligned bottom-right",
       [](const HeadIndex& at, const Mask&, int64_t i, int64_t j) {
         return double(std::abs(i + at.seq_k - at.seq_q - j));
       }},
      {"alibi-signed", "ALiBi's distance is signed: i + off - j",
       [](const HeadIndex& at, const Mask& m, int64_t i, int64_t j) {
         return double(i + alignment_offset(m, at.seq_q, at.seq_k) - j);
       }},
      {"alibi-of-key", "ALiBi's distance is counted from the last key",
       [](const HeadIndex& at, const Mask&, int64_t, int64_t j) { return double(at.seq_k - 1 - j); }},
      {"alibi-of-key-0", "ALiBi's distance is the key's number",
       [](const HeadIndex&, const Mask&, int64_t, int64_t j) { return -double(j); }},
      {"alibi-off-by-one", "ALiBi's distance is one too large",
       [](const HeadIndex& at, const Mask& m, int64_t i, int64_t j) {
         return double(std::abs(i + alignment_offset(m, at.seq_q, at.seq_k) - j) + 1);
       }}};
  for (const Distance& distance : distances)
    add_row_edit(
        list, distance.id, "SCOREMOD", distance.sentence, has_alibi, [distance](const Inputs& in, RowSketch& row) {
          const double slope = in.slopes[row.at.b * in.problem.heads + row.at.h];
          const Mask& mask = in.problem.mask;
          for (Pair& pair : row.pairs) {
            const double right = double(std::abs(row.i + alignment_offset(mask, row.at.seq_q, row.at.seq_k) - pair.j));
            pair.s += slope * (right - distance.wrong(row.at, mask, row.i, pair.j));
          }
        });
}

// ---- bias

bool has_bias(const Problem& p) { return p.bias.has_value(); }

/// The bias becomes `wrong` of (b, h, i, j); -infinity hides there.
void add_bias_rule(Hypotheses& list, const std::string& id, const std::string& sentence, const Applies& applies,
                   const std::function<double(const Inputs&, const RowSketch&, const Pair&)>& wrong) {
  add_row_edit(
      list, id.c_str(), "SCOREMOD", sentence.c_str(), [applies](const Problem& p) { return has_bias(p) && applies(p); },
      [wrong](const Inputs& in, RowSketch& row) {
        const HeadIndex& at = row.at;
        const double scale = score_scale<double>(in, at), cap = in.problem.softcap;
        Inputs none = in;
        none.problem.bias.reset();
        for (Pair& pair : row.pairs) {
          const double s0 = scale * pair.product;
          const double bias = wrong(in, row, pair);
          pair.s = shifted<double>(none, at, row.i, pair.j, cap == 0 ? s0 : cap * std::tanh(s0 / cap)) + bias;
          pair.visible = visible(in.problem.mask, at.seq_q, at.seq_k, row.i, pair.j) && bias != -infinity;
        }
      });
}

double bias_within(const Inputs& in, int64_t b, int64_t h, int64_t i, int64_t j) {
  const std::vector<int64_t>& shape = in.bias.shape;
  return bias_at(in, b, h, std::min(i, std::max<int64_t>(shape[2], 1) - 1),
                 std::min(j, std::max<int64_t>(shape[3], 1) - 1));
}

void add_bias(Hypotheses& list) {
  const Applies any = [](const Problem&) { return true; };
  const auto here = [](const Inputs& in, const RowSketch& row, const Pair& pair) {
    return bias_at(in, row.at.b, row.at.h, row.i, pair.j);
  };
  const auto factor = [=](double f) {
    return [=](const Inputs& in, const RowSketch& row, const Pair& pair) { return f * here(in, row, pair); };
  };
  add_bias_rule(list, "bias-ignored", "the bias is ignored", any,
                [](const Inputs&, const RowSketch&, const Pair&) { return 0.0; });
  add_bias_rule(list, "bias-twice", "the bias is added twice", any, factor(2));
  add_bias_rule(list, "bias-sign", "the bias is subtracted", any, factor(-1));
  add_bias_rule(list, "bias-base-2", "the bias is not converted to base 2", any, factor(1 / log2_e));
  add_bias_rule(list, "bias-log2e", "the bias is multiplied with log2 e", any, factor(log2_e));
  add_bias_rule(list, "bias-scaled", "the bias is multiplied with the scale", any,
                [=](const Inputs& in, const RowSketch& row, const Pair& pair) {
                  return score_scale<double>(in, row.at) * here(in, row, pair);
                });
  for (const OtherPlace& other : other_places)
    add_bias_rule(
        list, std::string("bias-of-") + other.id, std::string("the bias is that of ") + other.words,
        [other](const Problem& p) {
          const bool by_entry = std::string(other.id) == "entry-0";
          return other.differs(p) && (by_entry ? p.bias->batch : p.bias->head);
        },
        [other](const Inputs& in, const RowSketch& row, const Pair& pair) {
          const auto [b, h] = other.place(in.problem, row.at.b, row.at.h);
          return bias_at(in, b, h, row.i, pair.j);
        });
  const Applies by_row = [](const Problem& p) { return p.bias->query; };
  add_bias_rule(list, "bias-of-row-0", "the bias is that of row 0", by_row,
                [](const Inputs& in, const RowSketch& row, const Pair& pair) {
                  return bias_at(in, row.at.b, row.at.h, 0, pair.j);
                });
  add_bias_rule(list, "bias-of-next-row", "the bias is that of the next row", by_row,
                [](const Inputs& in, const RowSketch& row, const Pair& pair) {
                  return bias_within(in, row.at.b, row.at.h, row.i + 1, pair.j);
                });
  add_bias_rule(
      list, "bias-of-next-key", "the bias is that of the next key", [](const Problem& p) { return p.bias->key; },
      [](const Inputs& in, const RowSketch& row, const Pair& pair) {
        return bias_within(in, row.at.b, row.at.h, row.i, pair.j + 1);
      });
  add_bias_rule(list, "bias-transposed", "the bias is read with rows and keys exchanged", by_row,
                [](const Inputs& in, const RowSketch& row, const Pair& pair) {
                  return bias_within(in, row.at.b, row.at.h, pair.j, row.i);
                });
}

// ---- sink

bool has_sink(const Problem& p) { return p.sink; }

void add_sink_count(Hypotheses& list, const char* id, const char* sentence,
                    const std::function<double(const Observation&)>& count) {
  add_mistake(list, id, "SCOREMOD", sentence, [count](const Observation& o) -> std::optional<Mistake> {
    const double times = count(o);
    if (!o.in.problem.sink || times == 1) return std::nullopt;
    Mistake mistake;
    mistake.scores = [times](const Inputs&, RowSketch& row) { row.sink += std::log(times); };
    return mistake;
  });
}

void add_sink(Hypotheses& list) {
  add_row_edit(list, "sink-ignored", "SCOREMOD", "the sink is ignored", has_sink,
               [](const Inputs&, RowSketch& row) { row.sink = -infinity; });
  add_row_edit(list, "sink-scaled", "SCOREMOD", "the sink is multiplied with the scale", has_sink,
               [](const Inputs& in, RowSketch& row) { row.sink *= score_scale<double>(in, row.at); });
  add_row_edit(list, "sink-base-2", "SCOREMOD", "the sink is not converted to base 2", has_sink,
               [](const Inputs&, RowSketch& row) { row.sink /= log2_e; });
  add_row_edit(list, "sink-log2e", "SCOREMOD", "the sink is multiplied with log2 e", has_sink,
               [](const Inputs&, RowSketch& row) { row.sink *= log2_e; });
  add_sink_count(list, "sink-twice", "the sink counts twice", [](const Observation&) { return 2.0; });
  add_sink_count(list, "sink-each-part", "the sink counts once for each part of the keys",
                 [](const Observation& o) { return double(key_parts(o)); });
  add_sink_count(list, "sink-each-tile", "the sink counts once for each tile of keys", [](const Observation& o) {
    const int64_t tile = key_tiles(o).front();
    return double(std::max<int64_t>(1, (max_used_length(o.in.problem.k, o.in.problem.batch) + tile - 1) / tile));
  });
  for (const OtherPlace& other : other_places)
    add_input_edit(
        list, (std::string("sink-of-") + other.id).c_str(), "SCOREMOD",
        (std::string("the sink is that of ") + other.words).c_str(),
        [other](const Problem& p) { return p.sink && other.differs(p) && std::string(other.id) != "entry-0"; },
        [other](Inputs& in) {
          const std::vector<float> sinks = in.sinks;
          for (int64_t h = 0; h < in.problem.heads; ++h) in.sinks[h] = sinks[other.place(in.problem, 0, h).second];
        });
  for (const bool in_l : {true, false})
    add_mistake_in(in_both, list, in_l ? "sink-in-l-alone" : "sink-in-o-alone", "SCOREMOD",
                   in_l ? "the sink enters L but not O" : "the sink enters O but not L",
                   [in_l](const Observation& o) -> std::optional<Mistake> {
                     if (!o.in.problem.sink) return std::nullopt;
                     Mistake mistake;
                     mistake.result = [in_l](const Inputs& in, RowSketch& row) {
                       RowSketch without = row;
                       without.sink = -infinity;
                       soften(in, without);
                       if (in_l)
                         row.o = without.o;
                       else
                         row.l = row.stored = without.l;
                     };
                     return mistake;
                   });
}

// ---- dropout

bool has_dropout(const Problem& p) { return p.dropout.has_value(); }

/// Keeps by another rule: `keep` of (b, h, i, j).
void add_keep_rule(Hypotheses& list, const char* id, const char* sentence, const Applies& applies,
                   const std::function<bool(const Problem&, const RowSketch&, int64_t j)>& keep) {
  add_row_edit(
      list, id, "SCOREMOD", sentence, [applies](const Problem& p) { return has_dropout(p) && applies(p); },
      [keep](const Inputs& in, RowSketch& row) {
        const double kept = 1 / (1 - double(in.problem.dropout->rate));
        for (Pair& pair : row.pairs) pair.z = keep(in.problem, row, pair.j) ? kept : 0;
      });
}

void add_dropout(Hypotheses& list) {
  const Applies any = [](const Problem&) { return true; };
  add_row_edit(list, "dropout-ignored", "SCOREMOD", "dropout is ignored", has_dropout,
               [](const Inputs&, RowSketch& row) {
                 for (Pair& pair : row.pairs) pair.z = 1;
               });
  add_row_edit(list, "dropout-unscaled", "SCOREMOD", "what dropout keeps is not divided by 1 - rate", has_dropout,
               [](const Inputs&, RowSketch& row) {
                 for (Pair& pair : row.pairs) pair.z = pair.z != 0;
               });
  add_row_edit(list, "dropout-in-sum", "SCOREMOD", "dropped keys are missing in the row sum too", has_dropout,
               [](const Inputs&, RowSketch& row) {
                 for (Pair& pair : row.pairs) pair.denominator = pair.z != 0;
               });
  add_row_edit(list, "dropout-keeps-all", "SCOREMOD", "dropout drops nothing but divides by 1 - rate", has_dropout,
               [](const Inputs& in, RowSketch& row) {
                 for (Pair& pair : row.pairs) pair.z = 1 / (1 - double(in.problem.dropout->rate));
               });
  add_keep_rule(
      list, "dropout-inverted", "dropout drops what it should keep", any,
      [](const Problem& p, const RowSketch& row, int64_t j) { return !keeps(p, row.at.b, row.at.h, row.i, j); });
  add_keep_rule(
      list, "dropout-transposed", "dropout counts with rows and keys exchanged", any,
      [](const Problem& p, const RowSketch& row, int64_t j) { return keeps(p, row.at.b, row.at.h, j, row.i); });
  add_keep_rule(
      list, "dropout-batch-head-exchanged", "dropout counts with entries and heads exchanged",
      [](const Problem& p) { return p.batch > 1 || p.heads > 1; },
      [](const Problem& p, const RowSketch& row, int64_t j) { return keeps(p, row.at.h, row.at.b, row.i, j); });
  add_keep_rule(list, "dropout-aligned", "dropout counts rows from the alignment offset", any,
                [](const Problem& p, const RowSketch& row, int64_t j) {
                  return keeps(p, row.at.b, row.at.h, std::max<int64_t>(0, row.i + row.at.seq_k - row.at.seq_q), j);
                });
  add_keep_rule(
      list, "dropout-packed-rows", "dropout counts rows in the packed tensor, not in the sequence",
      [](const Problem& p) { return p.batch > 1; },
      [](const Problem& p, const RowSketch& row, int64_t j) {
        return keeps(p, row.at.b, row.at.h, row.at.q_begin + row.i, j);
      });
  for (const OtherPlace& other : other_places)
    add_keep_rule(list, (std::string("dropout-of-") + other.id).c_str(),
                  (std::string("dropout keeps what it keeps in ") + other.words).c_str(), other.differs,
                  [other](const Problem& p, const RowSketch& row, int64_t j) {
                    const auto [b, h] = other.place(p, row.at.b, row.at.h);
                    return keeps(p, b, h, row.i, j);
                  });
  add_keep_rule(
      list, "dropout-seed-32-bits", "dropout uses the low 32 bits of the seed alone",
      [](const Problem& p) { return p.dropout->seed >> 32 != 0; },
      [](const Problem& p, const RowSketch& row, int64_t j) {
        Problem low = p;
        low.dropout->seed &= 0xffffffffu;
        return keeps(low, row.at.b, row.at.h, row.i, j);
      });
}

// ---- heads and descales

void add_heads(Hypotheses& list) {
  struct Map {
    const char *id, *sentence;
    int64_t (*kv_head)(const HeadIndex&);
  };
  const Map maps[] = {
      {"kv-head-mod", "query head h reads kv head h mod Hk", [](const HeadIndex& at) { return at.h % at.kv_heads; }},
      {"kv-head-0", "every query head reads kv head 0", [](const HeadIndex&) { return int64_t(0); }},
      {"kv-head-clipped", "query head h reads kv head h, or the last",
       [](const HeadIndex& at) { return std::min(at.h, at.kv_heads - 1); }},
      {"kv-head-last", "every query head reads the last kv head", [](const HeadIndex& at) { return at.kv_heads - 1; }},
      {"kv-head-next", "query heads read the next kv head",
       [](const HeadIndex& at) { return (at.kv_head + 1) % at.kv_heads; }}};
  for (const Map& map : maps)
    add_mistake(list, map.id, "GQA", map.sentence, [map](const Observation& o) -> std::optional<Mistake> {
      if (o.in.problem.kv_heads < 2) return std::nullopt;
      Mistake mistake;
      mistake.kv_head = [map](const Inputs&, const HeadIndex& at) { return map.kv_head(at); };
      return mistake;
    });
}

void add_descales(Hypotheses& list) {
  struct Descale {
    const char *name, *words;
    std::vector<float> Inputs::*factors;
  };
  const Descale descales[] = {
      {"q", "t_q", &Inputs::q_descale}, {"k", "t_k", &Inputs::k_descale}, {"v", "t_v", &Inputs::v_descale}};
  const Applies any = [](const Problem& p) { return p.descale; };
  for (const Descale& d : descales) {
    const auto factors = d.factors;
    const std::string prefix = std::string("descale-") + d.name;
    add_input_edit(list, (prefix + "-ignored").c_str(), "FP8",
                   (std::string("the descale ") + d.words + " is missing").c_str(), any,
                   [factors](Inputs& in) { (in.*factors).assign((in.*factors).size(), 1); });
    add_input_edit(list, (prefix + "-twice").c_str(), "FP8",
                   (std::string("the descale ") + d.words + " is applied twice").c_str(), any, [factors](Inputs& in) {
                     for (float& t : in.*factors) t *= t;
                   });
    add_input_edit(list, (prefix + "-of-first").c_str(), "FP8",
                   (std::string("the descale ") + d.words + " is that of the first entry and kv head").c_str(), any,
                   [factors](Inputs& in) { (in.*factors).assign((in.*factors).size(), (in.*factors)[0]); });
    add_input_edit(list, (prefix + "-of-head-0").c_str(), "FP8",
                   (std::string("the descale ") + d.words + " is that of kv head 0").c_str(), any,
                   [factors](Inputs& in) {
                     const int64_t heads = in.problem.kv_heads;
                     for (size_t n = 0; n < (in.*factors).size(); ++n)
                       (in.*factors)[n] = (in.*factors)[n / heads * heads];
                   });
  }
  add_mistake(list, "descales-interleaved", "FP8", "the descales are those of kv head h mod Hk",
              [](const Observation& o) -> std::optional<Mistake> {
                if (!o.in.problem.descale || group_of(o.in.problem) == 1) return std::nullopt;
                const auto other = [](const HeadIndex& at) {
                  HeadIndex place = at;
                  place.kv_head = at.h % at.kv_heads;
                  return place;
                };
                Mistake mistake;
                mistake.scores = [other](const Inputs& in, RowSketch& row) {
                  const double ratio = score_scale<double>(in, other(row.at)) / score_scale<double>(in, row.at);
                  for (Pair& pair : row.pairs) pair.product *= ratio;
                  score_again(in, row);
                };
                mistake.result = [other](const Inputs& in, RowSketch& row) {
                  for (double& x : row.o) x *= value_scale<double>(in, other(row.at)) / value_scale<double>(in, row.at);
                };
                return mistake;
              });
  add_input_edit(list, "descales-ignored", "FP8", "all descales are ignored", any, [&](Inputs& in) {
    for (std::vector<float>* t : {&in.q_descale, &in.k_descale, &in.v_descale}) t->assign(t->size(), 1);
  });
  add_input_edit(list, "descale-v-of-k", "FP8", "t_k stands in the place of t_v", any,
                 [](Inputs& in) { in.v_descale = in.k_descale; });
}

}  // namespace

void add_modifier_hypotheses(Hypotheses& list) {
  add_alibi(list);
  add_bias(list);
  add_sink(list);
  add_dropout(list);
  add_heads(list);
  add_descales(list);
}

}  // namespace flashproof
