// The problem's text form and what is legal; the grammar stands in reference/README.md.
#include "reference/problem.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "reference/errors.h"
#include "reference/nearest_word.h"
#include "reference/philox.h"
#include "reference/text_form.h"

namespace flashproof {

namespace {

constexpr std::string_view dtype_names[dtype_count] = {"fp32", "bf16", "fp16", "e4m3", "e5m2"};
constexpr const char* example = "bf16 b2 h8/2 q1 k4096 d128 causal window=128,0";

}  // namespace

float scale_of(const Problem& p) {
  if (p.scale) return *p.scale;
  // The double quotient is within 2^-52, so its fp32 is 1/sqrt(d) rounded or a neighbour of that. A midpoint m of two
  // neighbours has 25 bits: m m is exact, and the fused d m^2 - 1 has the exact sign of m - 1/sqrt(d).
  const double d = double(p.head_dim);
  float scale = float(1.0 / std::sqrt(d));
  const auto midpoint_excess = [&](float other) {
    const double midpoint = (double(scale) + double(other)) / 2;
    return std::fma(midpoint * midpoint, d, -1.0);
  };
  const float above = std::nextafter(scale, 2.0f), below = std::nextafter(scale, 0.0f);
  if (midpoint_excess(above) < 0) return above;
  if (midpoint_excess(below) > 0) return below;
  return scale;
}

DType output_dtype(const Problem& p) {
  return p.dtype == DType::e4m3 || p.dtype == DType::e5m2 ? DType::bf16 : p.dtype;
}

bool has_backward(const Problem& p) { return p.direction != Direction::forward; }

int64_t slot_length(const Lengths& side, int64_t b) { return side.packed.empty() ? side.slot : side.packed[b]; }

int64_t used_length(const Lengths& side, int64_t b) { return side.used.empty() ? slot_length(side, b) : side.used[b]; }

int64_t max_used_length(const Lengths& side, int64_t batch) {
  int64_t longest = 0;
  for (int64_t b = 0; b < batch; ++b) longest = std::max(longest, used_length(side, b));
  return longest;
}

// ---- What is legal

namespace {

/// Kernels index with int32, and data recipes keep 28 bits for heads and batch entries.
constexpr int64_t longest_extent = (int64_t(1) << 31) - 1, most_heads = (int64_t(1) << 28) - 1;
constexpr int64_t most_elements = int64_t(1) << 40;

void require(bool legal, const std::string& what) {
  if (!legal) throw UsageError("illegal problem: " + what);
}

void require_between(const char* field, int64_t value, int64_t least, int64_t most) {
  require(least <= value && value <= most, std::string(field) + " = " + std::to_string(value) + ", must be " +
                                               std::to_string(least) + " to " + std::to_string(most));
}

void validate_lengths(const char* side, const Lengths& lengths, int64_t batch) {
  const std::string name = side;
  if (lengths.packed.empty()) require_between(side, lengths.slot, 0, longest_extent);
  for (const auto* list : {&lengths.packed, &lengths.used}) {
    require(list->empty() || int64_t(list->size()) == batch,
            (list == &lengths.packed ? "seq" : "used") + name + " has " + std::to_string(list->size()) +
                " entries, must have one a batch entry, " + std::to_string(batch));
  }
  int64_t total = 0;
  for (int64_t b = 0; b < batch && !(lengths.packed.empty() && lengths.used.empty()); ++b) {
    require_between(("seq" + name).c_str(), slot_length(lengths, b), 0, longest_extent);
    require_between(("used" + name).c_str(), used_length(lengths, b), 0, slot_length(lengths, b));
    require((total += slot_length(lengths, b)) <= longest_extent || lengths.packed.empty(),
            "the sum of seq" + name + " must be at most " + std::to_string(longest_extent));
  }
}

/// The product of the extents of one tensor in memory stays countable.
void validate_elements(const char* tensor, std::initializer_list<int64_t> extents) {
  int64_t product = 1;
  for (const int64_t extent : extents) {
    require(!__builtin_mul_overflow(product, std::max<int64_t>(extent, 1), &product) && product <= most_elements,
            std::string(tensor) + " would have more than 2^40 elements; make a size smaller");
  }
}

int64_t slots_in_all(const Lengths& side, int64_t batch) {
  int64_t total = 0;
  for (const int64_t length : side.packed) total += length;
  return side.packed.empty() ? side.slot * batch : total;
}

void validate_sizes(const Problem& p) {
  require_between("batch", p.batch, 1, most_heads);
  require_between("heads", p.heads, 1, most_heads);
  require_between("kv_heads", p.kv_heads, 1, p.heads);
  require(p.heads % p.kv_heads == 0, "kv heads must divide heads, and " + std::to_string(p.kv_heads) +
                                         " does not divide " + std::to_string(p.heads));
  require_between("head_dim", p.head_dim, 1, longest_extent);
  require_between("value_dim", p.value_dim, 1, longest_extent);
  validate_lengths("q", p.q, p.batch);
  validate_lengths("k", p.k, p.batch);
  require_between("gap", p.layout.row_gap, 0, longest_extent);
  if (p.paging) require_between("page size", p.paging->size, 1, longest_extent);

  const int64_t row = std::max(p.head_dim, p.value_dim) + p.layout.row_gap;
  const int64_t page = p.paging ? p.paging->size : 1;  // each entry rounds up to whole pages
  validate_elements("q", {slots_in_all(p.q, p.batch), p.heads, row});
  validate_elements("k", {slots_in_all(p.k, p.batch) + p.batch * (page - 1), p.kv_heads, row});
  if (p.bias) {
    validate_elements(
        "bias", {p.bias->batch ? p.batch : 1, p.bias->head ? p.heads : 1,
                 p.bias->query ? max_used_length(p.q, p.batch) : 1, p.bias->key ? max_used_length(p.k, p.batch) : 1});
  }
}

void validate_modifiers(const Problem& p) {
  require(!p.scale || std::isfinite(*p.scale), "scale must be finite");
  require(std::isfinite(p.softcap) && p.softcap >= 0, "softcap must be finite and above 0 (0 is off)");
  for (const int64_t side : {p.mask.window_left, p.mask.window_right}) {
    require(side == open_window || (0 <= side && side <= longest_extent),
            "window sides count keys, at least 0, or are `open`; got " + std::to_string(side));
  }
  require(!p.dropout || (0 <= p.dropout->rate && p.dropout->rate < 1), "dropout rate must be at least 0 and below 1");
  require(!p.descale || output_dtype(p) != p.dtype, "descale needs an fp8 dtype (e4m3, e5m2)");
}

}  // namespace

void validate(const Problem& p) {
  validate_sizes(p);
  validate_modifiers(p);
  const bool packed = !p.q.packed.empty() || !p.k.packed.empty();
  require(!(packed && p.layout.heads_first), "layout=bhsd is for dense lengths, and seqq or seqk are packed");
  require(!(p.paging && !p.k.packed.empty()), "pages need dense keys (k, usedk), and seqk is packed");
  require(!(p.paging && p.layout.heads_first), "pages are [pages, page size, Hk, d]: layout=bhsd does not apply");
}

// ---- Printing

namespace {

std::string print_list(const std::vector<int64_t>& list) {
  std::string text;
  for (const int64_t entry : list) text += (text.empty() ? "[" : ",") + std::to_string(entry);
  return text + "]";
}

std::string print_lengths(const std::string& side, const Lengths& lengths) {
  return lengths.packed.empty() ? " " + side + std::to_string(lengths.slot)
                                : " seq" + side + "=" + print_list(lengths.packed);
}

std::string print_window_side(int64_t side) { return side == open_window ? "open" : std::to_string(side); }

std::string print_mask(const Mask& mask) {
  std::string text;
  if (mask.causal) text += " causal";
  if (mask.top_left) text += " align=top-left";
  if (mask.window_left != open_window || mask.window_right != open_window) {
    text += " window=" + print_window_side(mask.window_left) + "," + print_window_side(mask.window_right);
  }
  return text;
}

std::string print_modifiers(const Problem& p) {
  std::string text;
  if (p.scale) text += " scale=" + print_float(*p.scale);
  if (p.softcap != 0) text += " softcap=" + print_float(p.softcap);
  if (p.alibi != Alibi::none) text += p.alibi == Alibi::per_head ? " alibi" : " alibi=bh";
  if (p.bias) {
    text += " bias=";
    text += p.bias->batch ? "b" : "1";
    text += p.bias->head ? "h" : "1";
    text += p.bias->query ? "q" : "1";
    text += p.bias->key ? "k" : "1";
    if (p.bias->fp32) text += ":fp32";
  }
  if (p.sink) text += " sink";
  if (p.dropout) text += " dropout=" + print_float(p.dropout->rate) + "@" + std::to_string(p.dropout->seed);
  if (p.descale) text += " descale";
  return text;
}

}  // namespace

std::string print(const Problem& p) {
  std::string text(dtype_names[int(p.dtype)]);
  if (p.batch != 1) text += " b" + std::to_string(p.batch);
  if (p.heads != 1 || p.kv_heads != 1) text += " h" + std::to_string(p.heads);
  if (p.kv_heads != p.heads) text += "/" + std::to_string(p.kv_heads);
  text += print_lengths("q", p.q) + print_lengths("k", p.k) + " d" + std::to_string(p.head_dim);
  if (p.value_dim != p.head_dim) text += "/" + std::to_string(p.value_dim);
  if (!p.q.used.empty()) text += " usedq=" + print_list(p.q.used);
  if (!p.k.used.empty()) text += " usedk=" + print_list(p.k.used);
  text += print_mask(p.mask) + print_modifiers(p);
  if (p.paging) text += " pages=shuffle(" + std::to_string(p.paging->seed) + "," + std::to_string(p.paging->size) + ")";
  if (p.layout.heads_first) text += " layout=bhsd";
  if (p.layout.row_gap != 0) text += " gap=" + std::to_string(p.layout.row_gap);
  if (p.direction == Direction::backward) text += " bwd";
  if (p.direction == Direction::backward_exact) text += " bwd=exact";
  return text;
}

// ---- Reading

namespace {

/// A word of the text, cut at '=' (`window=128,0`) or after its letter (`h8/2`).
struct Word {
  std::string_view whole, key, value;
  bool has_value;
};

/// The problem so far. Lists drawn by a recipe wait until the batch is known.
struct Draft {
  Problem problem;
  std::vector<std::function<void(Problem&)>> lists;
  size_t listed_entries = 0;  ///< of a list written out, to infer the batch
};

std::string expected(std::string_view form) { return "expected the form `" + std::string(form) + "`"; }

/// `8/2` into two numbers, `8` into the same one twice.
void read_pair(const Word& word, int64_t& first, int64_t& second) {
  const auto parts = split(word.value, '/');
  if (parts.size() > 2) refuse_word(word.whole, "expected one or two numbers, as in `h8/2`");
  first = read_integer(parts[0], word.whole);
  second = read_integer(parts.back(), word.whole);
}

/// A list prints written out, some 10 bytes an entry: a longer one is no text that anybody handles.
constexpr int64_t longest_drawn_list = 1 << 20;

/// Entry n of uniform(seed,lo,hi), by Philox with counter (n, side): the same list in every release.
void draw_list(std::vector<int64_t>& list, int64_t batch, uint64_t seed, int64_t low, int64_t high, uint32_t side) {
  for (int64_t n = 0; n < batch; ++n) {
    const Philox words = philox4x32_10({uint32(n), side, 0, 0}, uint32(seed), uint32(seed >> 32));
    list.push_back(low + int64_t((uint64_t(words.word[0]) * uint64_t(high - low + 1)) >> 32));
  }
}

/// `[5,0,17]` or `uniform(seed,lo,hi)` into the list that `member` finds in a problem.
template <typename Member>
void read_list(Draft& draft, const Word& word, uint32_t side, Member member) {
  if (!word.value.starts_with("uniform(")) {
    std::vector<int64_t>& list = member(draft.problem);
    for (const auto entry : read_enclosed(word.value, "[", ']', word.whole)) {
      list.push_back(read_integer(entry, word.whole));
    }
    if (list.empty()) refuse_word(word.whole, "the list is empty; it needs one length a batch entry");
    draft.listed_entries = list.size();
    return;
  }
  const auto arguments = read_enclosed(word.value, "uniform(", ')', word.whole);
  if (arguments.size() != 3) refuse_word(word.whole, expected("uniform(seed,lo,hi)"));
  const uint64_t seed = read_unsigned(arguments[0], word.whole);
  const int64_t low = read_integer(arguments[1], word.whole), high = read_integer(arguments[2], word.whole);
  if (low < 0 || high < low || high > longest_extent) refuse_word(word.whole, "needs 0 <= lo <= hi < 2^31");
  draft.lists.push_back([=](Problem& p) {
    if (p.batch > longest_drawn_list) refuse_word(word.whole, "draws at most 2^20 lengths; the batch has more entries");
    draw_list(member(p), p.batch, seed, low, high, side);
  });
}

int64_t read_window_side(std::string_view text, const Word& word) {
  if (text == "open") return open_window;
  const int64_t side = read_integer(text, word.whole);
  if (side < 0) refuse_word(word.whole, "a window side counts keys, at least 0; write `open` for no limit");
  return side;
}

void read_window(Draft& draft, const Word& word) {
  const auto sides = split(word.value, ',');
  if (sides.size() != 2) refuse_word(word.whole, expected("window=left,right"));
  draft.problem.mask.window_left = read_window_side(sides[0], word);
  draft.problem.mask.window_right = read_window_side(sides[1], word);
}

void read_bias(Draft& draft, const Word& word) {
  std::string_view shape = word.value;
  Bias bias;
  if (shape.ends_with(":fp32")) bias.fp32 = true, shape.remove_suffix(5);
  bool* axes[] = {&bias.batch, &bias.head, &bias.query, &bias.key};
  for (size_t n = 0; n < 4; ++n) {
    if (shape.size() != 4 || (shape[n] != '1' && shape[n] != "bhqk"[n])) {
      refuse_word(word.whole, "a bias has four axes, each its letter or 1: `bias=bhqk`, `bias=1h1k:fp32`");
    }
    *axes[n] = shape[n] != '1';
  }
  draft.problem.bias = bias;
}

void read_dropout(Draft& draft, const Word& word) {
  const auto parts = split(word.value, '@');
  if (parts.size() != 2) refuse_word(word.whole, expected("dropout=rate@seed"));
  draft.problem.dropout = Dropout{read_float(parts[0], word.whole), read_unsigned(parts[1], word.whole)};
}

void read_pages(Draft& draft, const Word& word) {
  const auto arguments = read_enclosed(word.value, "shuffle(", ')', word.whole);
  if (arguments.size() != 2) refuse_word(word.whole, expected("pages=shuffle(seed,size)"));
  draft.problem.paging = Paging{read_unsigned(arguments[0], word.whole), read_integer(arguments[1], word.whole)};
}

/// The one of `values` that stands after the '=', or "" when the word has none and "" is allowed.
size_t read_choice(const Word& word, std::initializer_list<std::string_view> values) {
  const std::string_view value = word.has_value ? word.value : "";
  const auto found = std::find(values.begin(), values.end(), value);
  if (found == values.end() || (word.has_value && value.empty())) {
    std::string forms;
    for (const auto choice : values) {
      forms += (forms.empty() ? "`" : " or `") + std::string(word.key) + (choice.empty() ? "" : "=") +
               std::string(choice) + "`";
    }
    refuse_word(word.whole, "expected " + forms);
  }
  return size_t(found - values.begin());
}

struct Reader {
  std::string_view key, form;
  void (*read)(Draft&, const Word&);
};

constexpr Reader readers[] = {
    {"b", "b2", [](Draft& d, const Word& w) { d.problem.batch = read_integer(w.value, w.whole); }},
    {"h", "h8/2", [](Draft& d, const Word& w) { read_pair(w, d.problem.heads, d.problem.kv_heads); }},
    {"q", "q128", [](Draft& d, const Word& w) { d.problem.q.slot = read_integer(w.value, w.whole); }},
    {"k", "k128", [](Draft& d, const Word& w) { d.problem.k.slot = read_integer(w.value, w.whole); }},
    {"d", "d128/64", [](Draft& d, const Word& w) { read_pair(w, d.problem.head_dim, d.problem.value_dim); }},
    {"seqq", "seqq=[3,0,17]",
     [](Draft& d, const Word& w) {
       read_list(
           d, w, 0, [](Problem & p) -> auto& { return p.q.packed; });
     }},
    {"seqk", "seqk=[3,0,17]",
     [](Draft& d, const Word& w) {
       read_list(
           d, w, 1, [](Problem & p) -> auto& { return p.k.packed; });
     }},
    {"usedq", "usedq=[3,0,17]",
     [](Draft& d, const Word& w) {
       read_list(
           d, w, 2, [](Problem & p) -> auto& { return p.q.used; });
     }},
    {"usedk", "usedk=[3,0,17]",
     [](Draft& d, const Word& w) {
       read_list(
           d, w, 3, [](Problem & p) -> auto& { return p.k.used; });
     }},
    {"causal", "causal", [](Draft& d, const Word& w) { read_choice(w, {""}), d.problem.mask.causal = true; }},
    {"align", "align=top-left",
     [](Draft& d, const Word& w) {
       d.problem.mask.top_left = read_choice(w, {"bottom-right", "top-left"}) == 1;
     }},
    {"window", "window=128,0", read_window},
    {"scale", "scale=0.125", [](Draft& d, const Word& w) { d.problem.scale = read_float(w.value, w.whole); }},
    {"softcap", "softcap=30", [](Draft& d, const Word& w) { d.problem.softcap = read_float(w.value, w.whole); }},
    {"alibi", "alibi=bh",
     [](Draft& d, const Word& w) {
       d.problem.alibi = Alibi(1 + read_choice(w, {"", "bh"}));
     }},
    {"bias", "bias=bhqk", read_bias},
    {"sink", "sink", [](Draft& d, const Word& w) { read_choice(w, {""}), d.problem.sink = true; }},
    {"dropout", "dropout=0.25@1234", read_dropout},
    {"descale", "descale", [](Draft& d, const Word& w) { read_choice(w, {""}), d.problem.descale = true; }},
    {"pages", "pages=shuffle(7,16)", read_pages},
    {"layout", "layout=bhsd",
     [](Draft& d, const Word& w) {
       d.problem.layout.heads_first = read_choice(w, {"bshd", "bhsd"}) == 1;
     }},
    {"gap", "gap=8", [](Draft& d, const Word& w) { d.problem.layout.row_gap = read_integer(w.value, w.whole); }},
    {"bwd", "bwd=exact",
     [](Draft& d, const Word& w) {
       d.problem.direction = Direction(1 + read_choice(w, {"", "exact"}));
     }},
};

Word cut(std::string_view whole) {
  const size_t equals = whole.find('=');
  if (equals != std::string_view::npos) return {whole, whole.substr(0, equals), whole.substr(equals + 1), true};
  const bool letter_and_number = whole.size() > 1 && (whole[1] == '-' || ('0' <= whole[1] && whole[1] <= '9'));
  if (letter_and_number) return {whole, whole.substr(0, 1), whole.substr(1), true};
  return {whole, whole, {}, false};
}

const Reader* reader_of(std::string_view key) {
  const auto found =
      std::find_if(std::begin(readers), std::end(readers), [&](const Reader& r) { return r.key == key; });
  return found == std::end(readers) ? nullptr : found;
}

[[noreturn]] void refuse_unknown(const Word& word) {
  std::vector<std::string> candidates(std::begin(dtype_names), std::end(dtype_names));
  for (const Reader& reader : readers) candidates.emplace_back(reader.key);
  const std::string key = nearest_word(std::string(word.has_value ? word.key : word.whole), candidates);
  const Reader* reader = reader_of(key);
  refuse_word(word.whole, "unknown word; did you mean `" + (reader ? std::string(reader->form) : key) +
                              "`? A whole problem: `" + example + "`");
}

void read_word(Draft& draft, std::string_view whole, std::vector<std::string_view>& seen) {
  Word word = cut(whole);
  const auto dtype = std::find(std::begin(dtype_names), std::end(dtype_names), whole);
  const Reader* reader = reader_of(word.key);
  if (dtype != std::end(dtype_names))
    word.key = "dtype";
  else if (!reader)
    refuse_unknown(word);
  if (std::find(seen.begin(), seen.end(), word.key) != seen.end()) {
    refuse_word(whole, "`" + std::string(word.key) + "` is given twice");
  }
  seen.push_back(word.key);
  if (dtype != std::end(dtype_names))
    draft.problem.dtype = DType(dtype - std::begin(dtype_names));
  else if (word.key.size() > 1 || (word.has_value && whole[1] != '='))
    reader->read(draft, word);
  else
    refuse_word(whole, expected(reader->form));
}

}  // namespace

Problem parse_problem(std::string_view text) {
  Draft draft;
  std::vector<std::string_view> seen;
  for (const auto word : split_words(text)) read_word(draft, word, seen);
  const auto given = [&](std::string_view key) { return std::find(seen.begin(), seen.end(), key) != seen.end(); };
  for (const auto side : {"q", "k"}) {
    if (given(side) && given(std::string("seq") + side)) {
      throw UsageError("illegal problem: `" + std::string(side) + "` (dense) and `seq" + side +
                       "` (packed) exclude each other");
    }
  }
  Problem& p = draft.problem;
  if (!given("b") && draft.listed_entries > 0) p.batch = int64_t(draft.listed_entries);
  require_between("batch", p.batch, 1, most_heads);
  for (const auto& draw : draft.lists) draw(p);
  validate(p);
  return p;
}

}  // namespace flashproof
