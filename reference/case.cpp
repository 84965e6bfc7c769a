// The case's text form: the problem's words, then `data= first= seed=`, index maps and element edits.
#include "reference/case.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "reference/errors.h"
#include "reference/nearest_word.h"
#include "reference/text_form.h"

namespace flashproof {

namespace {

constexpr std::array<const char*, family_count> family_names = {
    "normal",       "outliers", "uniform", "integers",     "one_hot_v",  "equal_scores", "negative",
    "creeping_max", "late_max", "sinks",   "near_ties",    "cancelling", "subnormal",    "saturating",
    "constant_v",   "readout",  "exact",   "exact_powers", "file"};

constexpr std::array<std::string_view, 10> operand_names = {"q",     "k",    "v",         "do",        "bias",
                                                            "slope", "sink", "q_descale", "k_descale", "v_descale"};

struct MapName {
  std::string_view key;
  std::vector<int64_t> IndexMaps::*list;
};
constexpr MapName map_names[] = {{"batches", &IndexMaps::batches},
                                 {"rows", &IndexMaps::rows},
                                 {"keys", &IndexMaps::keys},
                                 {"heads", &IndexMaps::heads},
                                 {"kv_heads", &IndexMaps::kv_heads},
                                 {"channels", &IndexMaps::channels},
                                 {"value_channels", &IndexMaps::value_channels}};

constexpr int64_t longest_map = int64_t(1) << 24;  ///< positions in one index map; refuses `keys=0-99999999999`

}  // namespace

const char* name_of(Family family) { return family_names[size_t(family)]; }

// ---- What is legal

namespace {

void require(bool legal, const std::string& what) {
  if (!legal) throw UsageError("illegal case: " + what);
}

void validate_maps(const Problem& p, const IndexMaps& maps) {
  const int64_t rows = max_used_length(p.q, p.batch), keys = max_used_length(p.k, p.batch);
  const std::array<int64_t, 7> extents = {p.batch, rows, keys, p.heads, p.kv_heads, p.head_dim, p.value_dim};
  for (size_t n = 0; n < extents.size(); ++n) {
    const std::vector<int64_t>& list = maps.*map_names[n].list;
    const std::string name(map_names[n].key);
    require(list.empty() || int64_t(list.size()) == extents[n], name + " lists " + std::to_string(list.size()) +
                                                                    " positions, and the problem has " +
                                                                    std::to_string(extents[n]));
    for (const int64_t source : list) {
      require(0 <= source && source < (int64_t(1) << 28),
              name + " = " + std::to_string(source) + " is not in 0 to 2^28 - 1");
    }
  }
}

/// Extents of (b, position, head, channel) of an operand; all 0 where the problem has no such operand.
std::array<int64_t, 4> extents_of(const Problem& p, Operand operand, int64_t b) {
  const int64_t batch = p.batch;
  const int64_t rows = used_length(p.q, b), keys = used_length(p.k, b);
  switch (operand) {
    case Operand::q:
      return {batch, rows, p.heads, p.head_dim};
    case Operand::k:
      return {batch, keys, p.kv_heads, p.head_dim};
    case Operand::v:
      return {batch, keys, p.kv_heads, p.value_dim};
    case Operand::d_o:
      return {batch, rows, p.heads, p.value_dim};
    case Operand::bias:
      if (!p.bias) return {};
      return {p.bias->batch ? batch : 1, p.bias->query ? max_used_length(p.q, batch) : 1, p.bias->head ? p.heads : 1,
              p.bias->key ? max_used_length(p.k, batch) : 1};
    case Operand::slope:
      if (p.alibi == Alibi::none) return {};
      return {p.alibi == Alibi::per_batch_and_head ? batch : 1, 1, p.heads, 1};
    case Operand::sink:
      return p.sink ? std::array<int64_t, 4>{1, 1, p.heads, 1} : std::array<int64_t, 4>{};
    default:
      return p.descale ? std::array<int64_t, 4>{batch, 1, p.kv_heads, 1} : std::array<int64_t, 4>{};
  }
}

std::string print(const SetElement& set) {
  char bits[16];
  const auto end = std::to_chars(bits, bits + sizeof bits, set.bits, 16).ptr;
  return std::string(operand_names[size_t(set.operand)]) + "[" + std::to_string(set.b) + "," +
         std::to_string(set.position) + "," + std::to_string(set.head) + "," + std::to_string(set.channel) + "]:0x" +
         std::string(bits, end);
}

void validate_set(const Problem& p, const SetElement& set) {
  require(0 <= set.b && set.b < p.batch,
          "set=" + print(set) + ": the problem has " + std::to_string(p.batch) + " entries");
  const auto extents = extents_of(p, set.operand, set.b);
  const std::array<int64_t, 4> place = {set.b, set.position, set.head, set.channel};
  for (size_t n = 0; n < 4; ++n) {
    require(0 <= place[n] && place[n] < extents[n],
            "set=" + print(set) + ": " +
                (extents[n] == 0 ? "the problem has no such element"
                                 : "index " + std::to_string(n) + " must be below " + std::to_string(extents[n])));
  }
  const bool input = set.operand <= Operand::d_o || (set.operand == Operand::bias && !p.bias->fp32);
  const DType dtype = input ? p.dtype : DType::fp32;
  require(uint64_t(set.bits) >> format_of(dtype).bits == 0,
          "set=" + print(set) + ": the format has " + std::to_string(format_of(dtype).bits) + " bits");
}

void validate_data(const Recipe& recipe, const FileData& file) {
  const auto legal = [](double x) { return x == default_parameter || (0 <= x && x <= 0x1p100); };
  const std::string name = name_of(recipe.family);
  require(legal(recipe.a) && legal(recipe.b), "data=" + name + ": parameters are numbers from 0 to 2^100");
  const int count = default_parameters(recipe.family).count;
  require((count > 0 || recipe.a == default_parameter) && (count > 1 || recipe.b == default_parameter),
          "data=" + name + " takes " + std::to_string(count) + " parameters");
  require(recipe.family != Family::integers || parameter_a(recipe) <= 0x1p20, "data=integers: a is at most 2^20");
  require(recipe.family != Family::cancelling || parameter_a(recipe) > 0, "data=cancelling: a must be above 0");
  require((recipe.family == Family::file) == !file.path.empty(),
          "data=file needs a path, as in `data=file:PATH#LAYER`");
  require(recipe.family == Family::file || file == FileData{}, "`first` is for data=file");
  for (const int64_t first : {file.first_row, file.first_key, file.first_head}) {
    require(0 <= first && first < (int64_t(1) << 28), "first=row,key,head: each from 0 to 2^28 - 1");
  }
}

}  // namespace

void validate(const Case& c) {
  validate(c.problem);
  validate_data(c.recipe, c.file);
  validate_maps(c.problem, c.maps);
  for (const SetElement& set : c.sets) validate_set(c.problem, set);
}

// ---- Printing

namespace {

/// `0-3,17`: runs that count up by one are joined.
std::string print_positions(const std::vector<int64_t>& list) {
  std::string text;
  for (size_t n = 0; n < list.size();) {
    size_t end = n + 1;
    while (end < list.size() && list[end] == list[end - 1] + 1) ++end;
    text += (n == 0 ? "" : ",") + std::to_string(list[n]);
    if (end - n > 1) text += "-" + std::to_string(list[end - 1]);
    n = end;
  }
  return text;
}

std::string escape(std::string_view path) {
  std::string text;
  for (const char letter : path) {
    const bool plain = static_cast<unsigned char>(letter) > ' ' && letter != '%' && letter != '#' && letter != 127;
    if (plain)
      text += letter;
    else
      text += {'%', "0123456789abcdef"[static_cast<unsigned char>(letter) >> 4], "0123456789abcdef"[letter & 15]};
  }
  return text;
}

std::string print_data(const Recipe& recipe, const FileData& file) {
  std::string text = name_of(recipe.family);
  const auto parameter = [](double x) { return x == default_parameter ? std::string("_") : print_double(x); };
  if (recipe.b != default_parameter)
    text += "(" + parameter(recipe.a) + "," + parameter(recipe.b) + ")";
  else if (recipe.a != default_parameter)
    text += "(" + parameter(recipe.a) + ")";
  if (recipe.family == Family::file) text += ":" + escape(file.path);
  if (!file.layer.empty()) text += "#" + escape(file.layer);
  if (file.first_row != 0 || file.first_key != 0 || file.first_head != 0) {
    text += " first=" + std::to_string(file.first_row) + "," + std::to_string(file.first_key) + "," +
            std::to_string(file.first_head);
  }
  return text;
}

}  // namespace

std::string print(const Case& c) {
  std::string text =
      print(c.problem) + " data=" + print_data(c.recipe, c.file) + " seed=" + std::to_string(c.recipe.seed);
  for (const MapName& map : map_names) {
    const std::vector<int64_t>& list = c.maps.*map.list;
    if (!list.empty()) text += " " + std::string(map.key) + "=" + print_positions(list);
  }
  for (const SetElement& set : c.sets) text += " set=" + print(set);
  return text;
}

// ---- Reading

namespace {

std::vector<int64_t> read_positions(std::string_view text, std::string_view word) {
  std::vector<int64_t> list;
  for (const auto run : split(text, ',')) {
    const auto ends = split(run, '-');
    const int64_t first = int64_t(read_unsigned(ends[0], word)), last = int64_t(read_unsigned(ends.back(), word));
    if (ends.size() > 2 || last < first) refuse_word(word, "expected positions, as in `keys=0-3,17`");
    if (last - first >= longest_map - int64_t(list.size())) refuse_word(word, "lists more than 2^24 positions");
    for (int64_t n = first; n <= last; ++n) list.push_back(n);
  }
  return list;
}

std::string unescape(std::string_view text, std::string_view word) {
  std::string path;
  for (size_t n = 0; n < text.size(); ++n) {
    if (text[n] != '%') {
      path += text[n];
      continue;
    }
    if (n + 2 >= text.size()) refuse_word(word, "`%` starts two hexadecimal digits (`%25` is the sign itself)");
    path += char(read_unsigned("0x" + std::string(text.substr(n + 1, 2)), word));
    n += 2;
  }
  return path;
}

void read_file(Case& c, std::string_view value, std::string_view word) {
  const size_t hash = value.find('#');
  c.recipe.family = Family::file;
  c.file.path = unescape(value.substr(0, hash), word);
  if (hash != std::string_view::npos) c.file.layer = unescape(value.substr(hash + 1), word);
}

void read_data(Case& c, std::string_view value, std::string_view word) {
  if (value.starts_with("file:")) return read_file(c, value.substr(5), word);
  const std::string_view name = value.substr(0, value.find('('));
  const auto found = std::find(family_names.begin(), family_names.end(), name);
  if (found == family_names.end() || name == "file") {
    const std::string nearest = nearest_word(std::string(name), {family_names.begin(), family_names.end()});
    refuse_word(word, "unknown data family; did you mean `data=" + (nearest == "file" ? "file:PATH" : nearest) + "`?");
  }
  c.recipe.family = Family(found - family_names.begin());
  if (name.size() == value.size()) return;
  const auto arguments = read_enclosed(value.substr(name.size()), "(", ')', word);
  const int count = default_parameters(c.recipe.family).count;
  if (arguments.empty() || int(arguments.size()) > count) {
    refuse_word(word, "takes " + std::to_string(count) + " parameters, as in `data=normal(2,1)`");
  }
  double* parameters[] = {&c.recipe.a, &c.recipe.b};
  for (size_t n = 0; n < arguments.size(); ++n) {
    if (arguments[n] == "_") continue;
    *parameters[n] = read_double(arguments[n], word);
    if (!(*parameters[n] >= 0)) refuse_word(word, "parameters are at least 0, or `_` for the default");
  }
}

void read_first(Case& c, std::string_view value, std::string_view word) {
  const auto parts = split(value, ',');
  if (parts.size() != 3) refuse_word(word, "expected `first=row,key,head`");
  c.file.first_row = read_integer(parts[0], word);
  c.file.first_key = read_integer(parts[1], word);
  c.file.first_head = read_integer(parts[2], word);
}

/// `k[0,2,0,5]:0x3f80`
SetElement read_set(std::string_view value, std::string_view word) {
  const size_t bracket = std::min(value.find('['), value.size()), colon = std::min(value.find(':'), value.size());
  const auto operand = std::find(operand_names.begin(), operand_names.end(), value.substr(0, bracket));
  if (operand == operand_names.end()) {
    refuse_word(word,
                "unknown tensor; did you mean `" +
                    nearest_word(std::string(value.substr(0, bracket)), {operand_names.begin(), operand_names.end()}) +
                    "`?");
  }
  if (colon < bracket || colon == value.size()) refuse_word(word, "expected `set=k[b,position,head,channel]:0xBITS`");
  const auto place = read_enclosed(value.substr(bracket, colon - bracket), "[", ']', word);
  if (place.size() != 4) refuse_word(word, "expected four indices, `[b,position,head,channel]`");
  SetElement set{Operand(operand - operand_names.begin())};
  int64_t* indices[] = {&set.b, &set.position, &set.head, &set.channel};
  for (size_t n = 0; n < 4; ++n) *indices[n] = read_integer(place[n], word);
  const uint64_t bits = read_unsigned(value.substr(colon + 1), word);
  if (bits >> 32 != 0) refuse_word(word, "the bit pattern has more than 32 bits");
  set.bits = uint32_t(bits);
  return set;
}

/// Reads a word of the case; false where it is not one, and may be the problem's.
bool read_case_word(Case& c, std::string_view word, std::vector<std::string_view>& seen) {
  const size_t equals = word.find('=');
  if (equals == std::string_view::npos) return false;
  const std::string_view key = word.substr(0, equals), value = word.substr(equals + 1);
  const auto map =
      std::find_if(std::begin(map_names), std::end(map_names), [&](const MapName& m) { return m.key == key; });
  if (key == "set") {
    c.sets.push_back(read_set(value, word));
    return true;
  }
  if (key != "data" && key != "first" && key != "seed" && map == std::end(map_names)) return false;
  if (std::find(seen.begin(), seen.end(), key) != seen.end())
    refuse_word(word, "`" + std::string(key) + "` is given twice");
  seen.push_back(key);
  if (key == "data")
    read_data(c, value, word);
  else if (key == "first")
    read_first(c, value, word);
  else if (key == "seed")
    c.recipe.seed = read_unsigned(value, word);
  else
    c.maps.*map->list = read_positions(value, word);
  return true;
}

}  // namespace

Case parse_case(std::string_view text) {
  Case c;
  std::vector<std::string_view> seen;
  std::string problem;
  for (const auto word : split_words(text)) {
    if (!read_case_word(c, word, seen)) problem += std::string(word) + " ";
  }
  c.problem = parse_problem(problem);
  validate(c);
  return c;
}

std::string case_id(const Case& c) {
  // FNV-1a, 64 bits: offset basis and prime of Fowler, Noll and Vo.
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char letter : print(c)) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3u;
  std::string digits(16, '0');
  for (int n = 15; n >= 0; --n, hash >>= 4) digits[size_t(n)] = "0123456789abcdef"[hash & 15];
  return digits;
}

}  // namespace flashproof
