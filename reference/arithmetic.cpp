// The text form of Arithmetic: tokens `key=value` in a fixed order when printed, in any order when read.
#include "reference/arithmetic.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <span>
#include <vector>

#include "reference/nearest_word.h"
#include "reference/text_form.h"

namespace flashproof {
namespace {

// Names by enumerator, the unknown ones first and never printed.
constexpr std::string_view order_names[] = {"", "ascending", "descending"};
constexpr std::string_view level_names[] = {"", "1", "2"};
constexpr std::string_view exponential_names[] = {"", "ex2", "exp2f", "expf", "__expf", "rounded"};
constexpr std::string_view argument_names[] = {"", "fma2", "sub2", "sub"};
constexpr std::string_view tangent_names[] = {"", "accurate", "approximate"};
constexpr std::string_view no_yes_names[] = {"", "no", "yes"};
constexpr std::string_view normalization_names[] = {"", "no", "yes", "each-tile"};
constexpr std::string_view dropout_names[] = {"", "weights", "output"};
constexpr std::string_view division_names[] = {"", "ieee", "approximate", "reciprocal"};
constexpr std::string_view owner_names[] = {"", "m16n8"};
constexpr std::string_view logarithm_names[] = {"", "polynomial"};
constexpr std::string_view chip_names[] = {"", "sm_80", "sm_89", "sm_90"};
constexpr std::string_view d_names[] = {"", "exact", "rounded"};
constexpr std::string_view format_names[] = {"fp32", "bf16", "fp16", "e4m3", "e5m2"};  // by DType

constexpr std::string_view keys[] = {"tile",     "order",      "scores",  "values", "levels",    "exp",
                                     "arg",      "scaled",     "tanh",    "s",      "prescaled", "p",
                                     "pscale",   "normalized", "dropout", "rowsum", "owner",     "splits",
                                     "division", "log",        "chip",    "ds",     "d"};

int index_of(std::span<const std::string_view> names, std::string_view value, std::string_view word) {
  const auto found = std::find(names.begin(), names.end(), value);
  if (!value.empty() && found != names.end()) return int(found - names.begin());
  std::string legal;
  for (std::string_view name : names)
    if (!name.empty()) legal += (legal.empty() ? "" : ", ") + std::string(name);
  refuse_word(word, "must be one of " + legal);
}

int read_bounded(std::string_view value, int least, int most, std::string_view word) {
  const int64_t number = read_integer(value, word);
  if (number < least || number > most)
    refuse_word(word, "must be from " + std::to_string(least) + " to " + std::to_string(most));
  return int(number);
}

constexpr int largest_count = std::numeric_limits<int>::max();  // a tile may be a whole side, below 2^31 long

std::string print_accumulation(const Accumulation& sum) {
  if (sum.kind == Accumulation::fp32) return "fp32";
  if (sum.kind == Accumulation::fp32_any) return "fp32-any";
  if (sum.kind == Accumulation::tensor_core_pair) return "tc-pair:" + std::to_string(sum.run);
  if (sum == Accumulation{.kind = Accumulation::tensor_core}) return "tc";
  return "tc:" + std::to_string(sum.products) + ":" + std::to_string(sum.align_bits) + ":" +
         std::to_string(sum.keep_bits);
}

Accumulation read_accumulation(std::string_view value, std::string_view word) {
  if (value == "fp32") return {.kind = Accumulation::fp32};
  if (value == "fp32-any") return {.kind = Accumulation::fp32_any};
  const std::vector<std::string_view> parts = split(value, ':');
  if (parts[0] == "tc-pair" && parts.size() == 2) {
    const int run = read_bounded(parts[1], 1, 16, word);
    if ((run & (run - 1)) != 0) refuse_word(word, "must have a run of 1, 2, 4, 8 or 16 products, as in tc-pair:2");
    return {.kind = Accumulation::tensor_core_pair, .run = run};
  }
  if (parts[0] != "tc" || (parts.size() != 1 && parts.size() != 4))
    refuse_word(word,
                "must be fp32, fp32-any, tc, tc:PRODUCTS:ALIGN_BITS:KEEP_BITS, as in tc:16:25:23, or tc-pair:RUN");
  if (parts.size() == 1) return {.kind = Accumulation::tensor_core};
  return {Accumulation::tensor_core, read_bounded(parts[1], 1, 1024, word), read_bounded(parts[2], 1, 52, word),
          read_bounded(parts[3], 1, 23, word)};
}

void read_tile(std::string_view value, std::string_view word, Arithmetic& result) {
  const std::vector<std::string_view> parts = split(value, 'x');
  if (parts.size() != 2) refuse_word(word, "must be ROWSxKEYS, as in tile=64x128");
  result.tile_m = read_bounded(parts[0], 1, largest_count, word);
  result.tile_n = read_bounded(parts[1], 1, largest_count, word);
}

void read_token(std::string_view word, Arithmetic& a) {
  const size_t equals = word.find('=');
  const std::string_view key = word.substr(0, equals);
  const std::string_view value = equals == std::string_view::npos ? std::string_view() : word.substr(equals + 1);
  if (key == "tile") return read_tile(value, word, a);
  if (key == "order") return void(a.order = TileOrder(index_of(order_names, value, word)));
  if (key == "scores") return void(a.scores = read_accumulation(value, word));
  if (key == "values") return void(a.values = read_accumulation(value, word));
  if (key == "levels") return void(a.two_level = Tristate(index_of(level_names, value, word)));
  if (key == "exp") return void(a.exponential = Exponential(index_of(exponential_names, value, word)));
  if (key == "arg") return void(a.argument = Argument(index_of(argument_names, value, word)));
  if (key == "scaled") return void(a.scaled = Tristate(index_of(no_yes_names, value, word)));
  if (key == "tanh") return void(a.tangent = Tangent(index_of(tangent_names, value, word)));
  if (key == "s") return void(a.score_format = index_of(std::span(format_names, 3), value, word));
  if (key == "prescaled") return void(a.prescaled = Tristate(index_of(no_yes_names, value, word)));
  if (key == "p") return void(a.p_format = index_of(format_names, value, word));
  if (key == "pscale") return void(a.p_scale_log2 = read_bounded(value, -64, 64, word));
  if (key == "normalized") return void(a.normalized = Normalization(index_of(normalization_names, value, word)));
  if (key == "dropout") return void(a.dropout = DropoutFactor(index_of(dropout_names, value, word)));
  if (key == "rowsum") return void(a.row_sum_lanes = read_bounded(value, 1, largest_count, word));
  if (key == "owner") return void(a.owner = RowSumOwner(index_of(owner_names, value, word)));
  if (key == "splits") return void(a.splits = read_bounded(value, 1, largest_count, word));
  if (key == "division") return void(a.division = Division(index_of(division_names, value, word)));
  if (key == "log") return void(a.logarithm = Logarithm(index_of(logarithm_names, value, word)));
  if (key == "chip") return void(a.chip = Chip(index_of(chip_names, value, word)));
  if (key == "ds") return void(a.ds_format = index_of(format_names, value, word));
  if (key == "d") return void(a.d_from_stored_o = Tristate(index_of(d_names, value, word)));
  refuse_word(word, "is no field of an arithmetic; did you mean `" +
                        nearest_word(std::string(key), {std::begin(keys), std::end(keys)}) +
                        "=`? Example: tile=64x64 order=ascending scores=fp32 exp=expf p=bf16");
}

}  // namespace

std::string print(const Arithmetic& a) {
  std::string text;
  const auto add = [&](bool known, std::string_view key, std::string_view value) {
    if (known) text += (text.empty() ? "" : " ") + std::string(key) + "=" + std::string(value);
  };
  const auto add_name = [&](std::string_view key, std::span<const std::string_view> names, int value) {
    add(value != 0, key, names[value]);
  };
  const auto add_format = [&](std::string_view key, int format) {
    add(format >= 0, key, format >= 0 ? format_names[format] : "");
  };
  const auto add_count = [&](std::string_view key, int count) { add(count != 0, key, std::to_string(count)); };
  add(a.tile_m != 0 && a.tile_n != 0, "tile", std::to_string(a.tile_m) + "x" + std::to_string(a.tile_n));
  add_name("order", order_names, int(a.order));
  add(a.scores.kind != Accumulation::unknown, "scores", print_accumulation(a.scores));
  add(a.values.kind != Accumulation::unknown, "values", print_accumulation(a.values));
  add_name("levels", level_names, int(a.two_level));
  add_name("exp", exponential_names, int(a.exponential));
  add_name("arg", argument_names, int(a.argument));
  add_name("scaled", no_yes_names, int(a.scaled));
  add_name("tanh", tangent_names, int(a.tangent));
  add_format("s", a.score_format);
  add_name("prescaled", no_yes_names, int(a.prescaled));
  add_format("p", a.p_format);
  add_count("pscale", a.p_scale_log2);
  add_name("normalized", normalization_names, int(a.normalized));
  add_name("dropout", dropout_names, int(a.dropout));
  add_count("rowsum", a.row_sum_lanes);
  add_name("owner", owner_names, int(a.owner));
  add_count("splits", a.splits);
  add_name("division", division_names, int(a.division));
  add_name("log", logarithm_names, int(a.logarithm));
  add_name("chip", chip_names, int(a.chip));
  add_format("ds", a.ds_format);
  add_name("d", d_names, int(a.d_from_stored_o));
  return text;
}

Arithmetic parse_arithmetic(std::string_view text) {
  Arithmetic result;
  for (std::string_view word : split_words(text)) read_token(word, result);
  return result;
}

}  // namespace flashproof
