// Finds a kernel by name, asks it what it can do, and says why when it cannot.
#include "fuzz/kernel_library.h"

#include <dlfcn.h>

#include <array>
#include <bit>
#include <cmath>
#include <filesystem>
#include <map>
#include <mutex>

#include "fuzz/build_info.h"
#include "fuzz/certificates.h"
#include "fuzz/device_memory.h"
#include "fuzz/plug_in_code.h"
#include "fuzz/runner.h"
#include "kernels/builtin.h"
#include "reference/arithmetic.h"
#include "reference/errors.h"
#include "reference/nearest_word.h"
#include "reference/sha256.h"

namespace flashproof {
namespace {

constexpr const char* feature_names[] = {"backward",      "causal",
                                         "window",        "top-left alignment",
                                         "grouped heads", "packed",
                                         "seqused",       "paged",
                                         "value dim",     "softcap",
                                         "alibi",         "bias",
                                         "sink",          "dropout",
                                         "descale",       "row strides",
                                         "scale",         "causal or window with Sk < Sq"};
static_assert(std::size(feature_names) == std::bit_width(unsigned(FLASHPROOF_FEATURE_NEGATIVE_OFFSET)));
constexpr const char* dtype_names[dtype_count] = {"fp32", "bf16", "fp16", "e4m3", "e5m2"};

/// The first convention outside its enumeration; "" if there is none.
std::string unknown_convention(const flashproof_conventions& c) {
  const struct {
    const char* name;
    int32_t value, last;
  } conventions[] = {{"empty_o", c.empty_o, FLASHPROOF_EMPTY_O_UNDEFINED},
                     {"empty_lse", c.empty_lse, FLASHPROOF_EMPTY_LSE_UNDEFINED},
                     {"lse_base", c.lse_base, FLASHPROOF_LSE_NONE},
                     {"tail", c.tail, FLASHPROOF_TAIL_UNDEFINED},
                     {"dropout", c.dropout, FLASHPROOF_DROPOUT_NONE},
                     {"saturates", c.saturates, 1},
                     {"bears_hidden_nan", c.bears_hidden_nan, 1},
                     {"deterministic", c.deterministic, FLASHPROOF_DETERMINISTIC_ROWS}};
  for (const auto& [name, value, last] : conventions)
    if (value < 0 || value > last)
      return std::string("its convention ") + name + " is " + std::to_string(value) + ", not of 0 to " +
             std::to_string(last);
  return "";
}

bool is_table_name(const std::string& name) {
  constexpr const char* allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  return !name.empty() && name.find_first_not_of(allowed) == std::string::npos;
}

/// The reason why the table cannot be used; "" if it can.
std::string fault_of(const flashproof_kernel* table) {
  if (table == nullptr)
    return "it does not know this program's ABI " + std::to_string(FLASHPROOF_ABI) +
           ": rebuild it with this version's header";
  if (table->struct_size != sizeof(flashproof_kernel))
    return "its table has " + std::to_string(table->struct_size) + " bytes, not " +
           std::to_string(sizeof(flashproof_kernel)) + ": rebuild it with this version's flashproof_kernel.h";
  if (table->abi != FLASHPROOF_ABI)
    return "it is of ABI " + std::to_string(table->abi) + ", this program of " + std::to_string(FLASHPROOF_ABI);
  if (table->supports == nullptr) return "its table lacks the function `supports`";
  if (table->forward == nullptr) return "its table lacks the function `forward`";
  if (table->name == nullptr || table->version == nullptr) return "its table lacks a name or version";
  if (table->memory != FLASHPROOF_HOST && table->memory != FLASHPROOF_CUDA)
    return "its memory is " + std::to_string(table->memory) + ", neither host nor CUDA";
  if (!is_table_name(table->name))
    return std::string("its name is '") + table->name + "', which is not made of letters, digits, '-' and '_'";
  return unknown_convention(table->conventions);
}

LoadedKernel load_plug_in(const std::string& path) {
  const auto fail = [&](const std::string& reason) { throw UnavailableError("plug-in " + path + ": " + reason); };
  if (!std::filesystem::exists(path)) fail("no such file");
  const std::string hash = sha256_of_file(path);
  const PlugInCode loading(path, "loading it");
  void* library = dlopen(std::filesystem::absolute(path).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fail(dlerror());
  const auto entry = reinterpret_cast<flashproof_kernel_entry_function>(dlsym(library, FLASHPROOF_KERNEL_SYMBOL));
  if (entry == nullptr) fail("it does not export " FLASHPROOF_KERNEL_SYMBOL " (in C++: declare it extern \"C\")");
  const flashproof_kernel* table = entry(FLASHPROOF_ABI);
  if (const std::string fault = fault_of(table); !fault.empty()) fail(fault);
  return {path, path, hash, table};
}

LoadedKernel load_builtin(const std::string& name) {
  const BuiltinKernels kernels = builtin_kernel_table();
  for (int i = 0; i < kernels.count; ++i)
    if (kernels.first[i].name == name)
      return {name, "", std::string(build_info().version) + " " + build_info().commit, kernels.first[i].kernel()};
  std::vector<std::string> names = builtin_kernels();
  for (const char* gpu_kernel : gpu_kernel_names) {
    if (name == gpu_kernel)
      throw UnavailableError("the kernel '" + name +
                             "' needs an NVIDIA GPU, and this program was built without CUDA; " +
                             "build it where nvcc (12.0 or later) is on PATH");
    names.push_back(gpu_kernel);
  }
  throw UsageError("there is no kernel '" + name + "'; did you mean '" + nearest_word(name, names) +
                   "'? A plug-in is named by its path, e.g. ./my_kernel.so; `flashproof list kernels` shows the rest");
}

int64_t longest_slot(const Lengths& lengths, int64_t batch) {
  int64_t longest = 0;
  for (int64_t b = 0; b < batch; ++b) longest = std::max(longest, slot_length(lengths, b));
  return longest;
}

int64_t total_slots(const Lengths& lengths, int64_t batch) {
  int64_t total = 0;
  for (int64_t b = 0; b < batch; ++b) total += slot_length(lengths, b);
  return total;
}

bool has_negative_offset(const Problem& p) {
  const bool masked = p.mask.causal || p.mask.window_left != open_window || p.mask.window_right != open_window;
  for (int64_t b = 0; masked && !p.mask.top_left && b < p.batch; ++b)
    if (used_length(p.k, b) < used_length(p.q, b)) return true;
  return false;
}

/// The limits that the kernel's table states; "" when the problem keeps them.
std::string beyond_the_table(const flashproof_kernel& table, const Problem& p) {
  std::string missing;
  const uint64_t lacking = needed_features(p) & ~table.features;
  for (size_t bit = 0; bit < std::size(feature_names); ++bit)
    if (lacking >> bit & 1) missing += (missing.empty() ? "" : ", ") + std::string(feature_names[bit]);
  if (!missing.empty()) return "the kernel does not declare: " + missing;
  if (has_backward(p) && table.backward == nullptr) return "the kernel has no backward";
  if (table.dtypes != 0 && (table.dtypes >> int(p.dtype) & 1) == 0)
    return std::string("the kernel does not take ") + dtype_names[int(p.dtype)];
  const int64_t multiple = std::max<int64_t>(table.head_dim_multiple, 1);
  for (int64_t dim : {p.head_dim, p.value_dim}) {
    if (table.max_head_dim > 0 && dim > table.max_head_dim)
      return "head dim " + std::to_string(dim) + " is above the kernel's " + std::to_string(table.max_head_dim);
    if (dim % multiple != 0)
      return "head dim " + std::to_string(dim) + " is not a multiple of the kernel's " + std::to_string(multiple);
  }
  return "";
}

/// A plug-in's answer, from a process of its own: there it can end no campaign. Answers are kept, as a case asks the
/// same several times over; one process a plug-in serves all threads.
RunResult ask_apart(const LoadedKernel& kernel, Question question, const Problem& problem, const std::string& config) {
  constexpr size_t most_answers = 1024;
  static std::mutex mutex;
  static std::map<std::string, Worker> workers;
  static std::map<std::string, RunResult> answers;
  const std::string key = kernel.path + '\n' + name_of(question) + config + '\n' + print(problem);
  const std::lock_guard lock(mutex);
  if (const auto known = answers.find(key); known != answers.end()) return known->second;
  const RunResult answer =
      workers.try_emplace(kernel.path, kernel.path, Limits{}).first->second.ask(question, problem, config);
  if (answers.size() >= most_answers) answers.clear();
  return answers[key] = answer;
}

/// Throws BadDescription where there is no answer.
RunResult ask(const LoadedKernel& kernel, Question question, const Problem& problem, const std::string& config) {
  if (kernel.path.empty()) return ask_here(kernel, question, problem, config);
  RunResult answer = ask_apart(kernel, question, problem, config);
  if (answer.status == RunStatus::ok || answer.status == RunStatus::rejected) return answer;
  const std::string function = name_of(question);
  throw BadDescription(
      (answer.status == RunStatus::timeout ? "timeout-in-" : "crash-in-") + function.substr(0, function.size() - 2),
      "kernel " + kernel.name + ": its " + function + " " + answer.message);
}

}  // namespace

std::vector<std::string> builtin_kernels() {
  std::vector<std::string> names;
  const BuiltinKernels kernels = builtin_kernel_table();
  for (int i = 0; i < kernels.count; ++i) names.push_back(kernels.first[i].name);
  return names;
}

const LoadedKernel& load_kernel(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, LoadedKernel> loaded;  // a map's elements never move
  const std::lock_guard lock(mutex);
  const auto found = loaded.find(name);
  if (found != loaded.end()) return found->second;
  const bool plug_in = name.find('/') != std::string::npos || name.ends_with(".so");
  return loaded.emplace(name, plug_in ? load_plug_in(name) : load_builtin(name)).first->second;
}

bool device_available(const LoadedKernel& kernel, std::string& reason) {
  return kernel.table->memory != FLASHPROOF_CUDA || cuda_available(reason);
}

void require_device(const LoadedKernel& kernel) {
  std::string reason;
  if (!device_available(kernel, reason))
    throw UnavailableError("kernel " + kernel.name + " cannot run here: " + reason);
}

flashproof_problem abi_problem(const Problem& p) {
  flashproof_problem abi = {};
  abi.struct_size = sizeof abi;
  abi.dtype = int(p.dtype);
  abi.out_dtype = int(output_dtype(p));
  abi.batch = p.batch, abi.heads = p.heads, abi.kv_heads = p.kv_heads;
  abi.head_dim = p.head_dim, abi.value_dim = p.value_dim;
  abi.max_seq_q = longest_slot(p.q, p.batch), abi.max_seq_k = longest_slot(p.k, p.batch);
  abi.total_q = total_slots(p.q, p.batch), abi.total_k = total_slots(p.k, p.batch);
  abi.packed_q = !p.q.packed.empty(), abi.packed_k = !p.k.packed.empty();
  abi.used_q = !p.q.used.empty(), abi.used_k = !p.k.used.empty();
  abi.page_size = p.paging ? p.paging->size : 0;
  abi.scale = scale_of(p);
  abi.causal = p.mask.causal, abi.top_left = p.mask.top_left;
  abi.window_left = p.mask.window_left, abi.window_right = p.mask.window_right;
  abi.softcap = p.softcap;
  abi.alibi = int(p.alibi);
  abi.bias = p.bias.has_value(), abi.sink = p.sink, abi.descale = p.descale;
  if (p.dropout) abi.dropout_rate = p.dropout->rate, abi.dropout_seed = p.dropout->seed;
  abi.backward = has_backward(p);
  return abi;
}

uint64_t needed_features(const Problem& p) {
  const bool window = p.mask.window_left != open_window || p.mask.window_right != open_window;
  const bool aligned = p.mask.causal || window || p.alibi != Alibi::none;
  const float default_scale = float(1 / std::sqrt(double(p.head_dim)));
  uint64_t needed = 0;
  const auto need = [&](bool condition, uint64_t feature) { needed |= condition ? feature : 0; };
  need(has_backward(p), FLASHPROOF_FEATURE_BACKWARD);
  need(p.mask.causal, FLASHPROOF_FEATURE_CAUSAL);
  need(window, FLASHPROOF_FEATURE_WINDOW);
  need(p.mask.top_left && aligned, FLASHPROOF_FEATURE_TOP_LEFT);
  need(p.heads != p.kv_heads, FLASHPROOF_FEATURE_GQA);
  need(!p.q.packed.empty() || !p.k.packed.empty(), FLASHPROOF_FEATURE_PACKED);
  need(!p.q.used.empty() || !p.k.used.empty(), FLASHPROOF_FEATURE_SEQUSED);
  need(p.paging.has_value(), FLASHPROOF_FEATURE_PAGED);
  need(p.value_dim != p.head_dim, FLASHPROOF_FEATURE_VALUE_DIM);
  need(p.softcap != 0, FLASHPROOF_FEATURE_SOFTCAP);
  need(p.alibi != Alibi::none, FLASHPROOF_FEATURE_ALIBI);
  need(p.bias.has_value(), FLASHPROOF_FEATURE_BIAS);
  need(p.sink, FLASHPROOF_FEATURE_SINK);
  need(p.dropout.has_value(), FLASHPROOF_FEATURE_DROPOUT);
  need(p.descale, FLASHPROOF_FEATURE_DESCALE);
  need(p.layout.heads_first || p.layout.row_gap != 0, FLASHPROOF_FEATURE_STRIDES);
  need(scale_of(p) != default_scale, FLASHPROOF_FEATURE_SCALE);
  need(has_negative_offset(p), FLASHPROOF_FEATURE_NEGATIVE_OFFSET);
  return needed;
}

const char* name_of(Question question) { return question == Question::supports ? "supports()" : "arithmetic()"; }

RunResult ask_here(const LoadedKernel& kernel, Question question, const Problem& problem, const std::string& config) {
  const flashproof_problem abi = abi_problem(problem);
  RunResult answer;
  if (question == Question::arithmetic) {
    const char* text = kernel.table->arithmetic ? kernel.table->arithmetic(&abi, config.c_str()) : nullptr;
    answer.message = text ? text : "";
    return answer;
  }
  std::array<char, 512> message{};
  if (kernel.table->supports(&abi, config.c_str(), message.data(), message.size() - 1) == FLASHPROOF_OK) return answer;
  answer.status = RunStatus::rejected;
  answer.message = message[0] != 0 ? message.data() : "rejected without a reason";
  return answer;
}

bool supports(const LoadedKernel& kernel, const Problem& problem, const std::string& config, std::string& reason) {
  reason = beyond_the_table(*kernel.table, problem);
  if (!reason.empty()) return false;
  const RunResult answer = ask(kernel, Question::supports, problem, config);
  if (answer.status == RunStatus::ok) return true;
  reason = answer.message;
  return false;
}

Subject subject_of(const LoadedKernel& kernel, const Problem& problem, const std::string& config) {
  const std::string arithmetic = ask(kernel, Question::arithmetic, problem, config).message;
  try {
    parse_arithmetic(arithmetic);
  } catch (const UsageError& error) {
    throw BadDescription("arithmetic", "kernel " + kernel.name + ": its arithmetic() answers `" + arithmetic +
                                           "`, which cannot be read: " + error.what());
  }
  Subject subject = {kernel.name, config, kernel.table->features, kernel.table->conventions, arithmetic};
  subject.gpu = gpu_standing(kernel, problem, config);
  return subject;
}

}  // namespace flashproof
