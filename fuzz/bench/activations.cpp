// See activations.h. The cases of the bounds are ordinary cases with data=file:PATH, run in workers; the heads' table
// runs reference/flash3.h here.
#include "fuzz/bench/activations.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "fuzz/bench/quartiles.h"
#include "fuzz/execute.h"
#include "oracle/value.h"
#include "reference/errors.h"
#include "reference/flash3.h"
#include "reference/safetensors.h"
#include "reference/threads.h"

namespace flashproof {
namespace {

/// for_each_item for a body that may throw: the first exception is thrown again here.
template <class MakeScratch, class Body>
void for_each_throwing(int64_t count, int threads, const MakeScratch& make_scratch, const Body& body) {
  std::mutex mutex;
  std::exception_ptr first;
  for_each_item_with(count, threads, make_scratch, [&](auto& scratch, int64_t item) {
    try {
      body(scratch, item);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
    }
  });
  if (first) std::rethrow_exception(first);
}

const SafeTensor& tensor_of(const SafeTensors& file, const std::string& path, const char* name) {
  const auto found = file.tensors.find(name);
  if (found == file.tensors.end() || found->second.shape.size() != 3 || !dtype_of_word(found->second.dtype))
    throw UsageError(path + ": no tensor " + name + " of shape [heads, tokens, head dim] in a format of ours");
  return found->second;
}

ActivationFile activation_file(const std::string& path) {
  const SafeTensors file = read_safetensors(path);
  const SafeTensor &q = tensor_of(file, path, "Q"), &k = tensor_of(file, path, "K"), &v = tensor_of(file, path, "V");
  if (k.shape != v.shape || q.shape[2] != k.shape[2] || k.shape[0] == 0 || q.shape[0] % k.shape[0] != 0)
    throw UsageError(path + ": the shapes of Q, K and V are not those of one layer");
  const auto text = [&](const char* key) {
    const auto found = file.metadata.find(key);
    return found == file.metadata.end() ? std::string() : found->second;
  };
  return {path,
          std::filesystem::path(path).stem().string(),
          q.shape[0],
          k.shape[0],
          q.shape[1],
          k.shape[1],
          q.shape[2],
          text("causal") == "true",
          text("scale").empty() ? 0 : std::strtof(text("scale").c_str(), nullptr)};
}

/// The file's whole layer.
Case case_of(const ActivationFile& file, DType dtype) {
  Case c;
  Problem& p = c.problem;
  p.dtype = dtype;
  p.heads = file.heads, p.kv_heads = file.kv_heads;
  p.q.slot = file.seq_q, p.k.slot = file.seq_k;
  p.head_dim = p.value_dim = file.head_dim;
  p.mask.causal = file.causal;
  if (file.scale != 0 && file.scale != scale_of(p)) p.scale = file.scale;
  c.recipe.family = Family::file;
  c.file.path = file.path;
  return c;
}

// ---- bounds

/// Divides the heads' numbers by t = max |x| / 448 of each group of `heads / kv_heads` heads; returns t by group.
std::vector<float> divide_by_range(SafeTensor& tensor, int64_t groups) {
  const DType dtype = *dtype_of_word(tensor.dtype);
  const int width = format_of(dtype).bits / 8;
  const int64_t count = int64_t(tensor.bytes.size()) / width, size = count / groups;
  Tensor stored(dtype, {count});
  stored.bytes = tensor.bytes;
  Tensor divided(DType::fp32, {count});
  std::vector<float> factors;
  for (int64_t group = 0; group < groups; ++group) {
    double largest = 0;
    for (int64_t n = group * size; n < (group + 1) * size; ++n) largest = std::max(largest, std::fabs(stored.at(n)));
    factors.push_back(largest == 0 ? 1.0f : float(largest / format_of(DType::e4m3).largest));
    for (int64_t n = group * size; n < (group + 1) * size; ++n)
      divided.set_bits(n, encode(DType::fp32, stored.at(n) / double(factors.back())));
  }
  tensor.dtype = safetensors_word(DType::fp32);
  tensor.bytes = divided.bytes;
  return factors;
}

/// The layer in e4m3 with descales; its numbers go to a file in `scratch`.
Case e4m3_case(const ActivationFile& file, const std::string& scratch) {
  Case c = case_of(file, DType::e4m3);
  c.problem.descale = true;
  c.file.path = scratch + "/" + file.name + ".safetensors";
  SafeTensors tensors = read_safetensors(file.path);
  const std::pair<const char*, Operand> operands[] = {
      {"Q", Operand::q_descale}, {"K", Operand::k_descale}, {"V", Operand::v_descale}};
  for (const auto& [name, operand] : operands) {
    const std::vector<float> factors = divide_by_range(tensors.tensors.at(name), file.kv_heads);
    for (int64_t group = 0; group < file.kv_heads; ++group)
      c.sets.push_back({operand, 0, 0, group, 0, __builtin_bit_cast(uint32_t, factors[group])});
  }
  write_safetensors(c.file.path, tensors);
  return c;
}

Case normal_case(Case c) {
  c.recipe = {.family = Family::normal, .seed = 1};
  c.file = {};
  c.sets.clear();
  c.problem.descale = false;
  return c;
}

/// "bf16", ...: what the text of a problem begins with.
std::string dtype_of(const Problem& problem) {
  const std::string text = print(problem);
  return text.substr(0, text.find(' '));
}

struct BoundJob {
  std::string kernel;
  const ActivationFile* file;
  Case c;
  bool normal;
  Judgement judgement;
  std::string skipped;
};

/// The case backward, or forward where the kernel has no backward for it; its reason where it takes neither.
void run_job(std::map<std::string, std::unique_ptr<Worker>>& workers, BoundJob& job) {
  const LoadedKernel& kernel = load_kernel(job.kernel);
  std::unique_ptr<Worker>& worker = workers[job.kernel];
  if (!worker) worker = std::make_unique<Worker>(job.kernel, Limits{.seconds = 600});
  for (const Direction direction : {Direction::backward, Direction::forward}) {
    job.c.problem.direction = direction;
    if (!supports(kernel, job.c.problem, "", job.skipped)) continue;
    job.skipped.clear();
    job.judgement = execute(*worker, kernel, Job{job.c, "", {"bound"}});
    return;
  }
}

BoundRow& row_of(std::vector<BoundRow>& rows, const BoundJob& job, OutputId output) {
  const std::string dtype = dtype_of(job.c.problem);
  for (BoundRow& row : rows)
    if (row.kernel == job.kernel && row.dtype == dtype && row.output == output) return row;
  BoundRow row;
  row.kernel = job.kernel, row.dtype = dtype, row.output = output;
  rows.push_back(row);
  return rows.back();
}

void add_to_table(const BoundJob& job, BoundTable& table) {
  const std::string what =
      job.kernel + " " + dtype_of(job.c.problem) + " " + job.file->name + (job.normal ? ", normal data: " : ": ");
  if (!job.skipped.empty()) table.skipped.push_back(what + job.skipped);
  for (const Verdict& verdict : job.judgement.verdicts) {
    if (verdict.status != Status::pass)
      table.not_passed.push_back(what + name_of(verdict.status) + " " + verdict.kind + " " + verdict.why);
    table.failed |= verdict.status == Status::fail;
    for (const OutputRatio& ratio : verdict.ratios) {
      BoundRow& row = row_of(table.rows, job, ratio.output);
      ++row.cases;
      if (job.normal)
        row.normal = std::max(row.normal, ratio.ratio);
      else if (row.file.empty() || ratio.ratio > row.activations)
        row.activations = ratio.ratio, row.file = job.file->name;
    }
  }
}

// ---- heads

template <class Number>
Matrix<Number> head_matrix(const Tensor& tensor, int64_t heads, int64_t head) {
  const int64_t columns = tensor.shape.back();
  Matrix<Number> matrix(tensor.size() / (heads * columns), columns);
  for (int64_t i = 0; i < matrix.rows; ++i)
    for (int64_t c = 0; c < columns; ++c) matrix.row(i)[c] = Number(tensor.at((i * heads + head) * columns + c));
  return matrix;
}

template <class Number>
Head<Number> head_of(const Inputs& in, int64_t h) {
  const Problem& p = in.problem;
  const int64_t kv_head = h / (p.heads / p.kv_heads);
  Head<Number> head;
  head.rule.mask = p.mask;
  head.rule.seq_q = in.packing.total_q();
  head.rule.seq_k = in.packing.total_k();
  head.rule.scale = Number(scale_of(p));
  head.q = head_matrix<Number>(in.q, p.heads, h);
  head.k = head_matrix<Number>(in.k, p.kv_heads, kv_head);
  head.v = head_matrix<Number>(in.v, p.kv_heads, kv_head);
  head.d_o = Matrix<Number>(head.q.rows, head.v.columns);
  head.k_t = transpose(head.k), head.v_t = transpose(head.v);
  return head;
}

/// Shares of all attention by key, from plain double.
std::vector<double> shares_of_keys(const Inputs& in, int64_t h) {
  const Head<double> head = head_of<double>(in, h);
  const ExactOps<double> ops;
  std::vector<double> shares(head.seq_k(), 0.0);
  const Span keys{0, head.seq_k()};
  for (int64_t i = 0; i < head.seq_q(); ++i) {
    Matrix<double> p = score_tile(ops, head, {i, i + 1}, keys);
    const double maximum = finite_reference(ops, ops.row_maximum(p.row(0), keys.size(), ops.minus_infinity()));
    for (double& x : p.data) x = ops.exp(x - maximum);
    const double sum = ops.row_sum(p.row(0), keys.size(), 0.0);
    for (int64_t j = 0; sum > 0 && j < keys.size(); ++j) shares[j] += p.row(0)[j] / sum / double(head.seq_q());
  }
  return shares;
}

RoundedOps operations(PRounding rounding) {
  RoundedOps ops;
  ops.p_format = rounding == PRounding::bf16 ? DType::bf16 : DType::e4m3;
  ops.p_scale_log2 = rounding == PRounding::e4m3_scaled ? 8 : 0;
  return ops;
}

HeadRow evaluate_head(const ActivationFile& file, const Inputs& in, const OutputValues& exact, int64_t h) {
  const std::vector<double> shares = shares_of_keys(in, h);
  const auto top = std::max_element(shares.begin(), shares.end());
  HeadRow row;
  row.file = file.name, row.head = h;
  row.column = *top, row.key = top - shares.begin();
  const Head<float> head = head_of<float>(in, h);
  const int64_t columns = head.value_dim();
  for (int n = 0; n < p_rounding_count; ++n) {
    const Matrix<float> o = flash3_forward(operations(PRounding(n)), head, {64, 64}, false).o;
    double all_errors = 0, all_sizes = 0;
    for (int64_t i = 0; i < o.rows; ++i) {
      double error = 0, size = 0;
      for (int64_t c = 0; c < columns; ++c) {
        const double value = exact.mid[(i * file.heads + h) * columns + c], difference = double(o.row(i)[c]) - value;
        error += difference * difference;
        size += value * value;
      }
      if (size > 0) row.worst[n] = std::max(row.worst[n], std::sqrt(error / size));
      all_errors += error;
      all_sizes += size;
    }
    row.rmse[n] = std::sqrt(all_errors / double(o.rows * columns));
    row.size = std::sqrt(all_sizes / double(o.rows * columns));
  }
  return row;
}

/// Ranks from 0; equal numbers share the mean of theirs.
std::vector<double> ranks(const std::vector<double>& x) {
  std::vector<double> result(x.size());
  for (size_t n = 0; n < x.size(); ++n) {
    const auto below = std::count_if(x.begin(), x.end(), [&](double other) { return other < x[n]; });
    result[n] = double(below) + double(std::count(x.begin(), x.end(), x[n]) - 1) / 2;
  }
  return result;
}

}  // namespace

std::vector<ActivationFile> activation_files(const std::string& directory) {
  std::error_code error;
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error))
    if (entry.path().extension() == ".safetensors") paths.push_back(entry.path().string());
  if (paths.empty())
    throw UnavailableError(directory + (error ? ": " + error.message() : " holds no file that ends in .safetensors"));
  std::sort(paths.begin(), paths.end());
  std::vector<ActivationFile> files;
  for (const std::string& path : paths) files.push_back(activation_file(path));
  return files;
}

BoundTable bound_table(const std::vector<ActivationFile>& files, const std::vector<std::string>& kernels,
                       const std::string& scratch, int threads, const std::function<void(int64_t, int64_t)>& progress) {
  std::vector<BoundJob> jobs;
  for (const DType dtype : {DType::bf16, DType::fp16, DType::e4m3})
    for (const ActivationFile& file : files) {
      const Case c = dtype == DType::e4m3 ? e4m3_case(file, scratch) : case_of(file, dtype);
      for (const std::string& kernel : kernels)
        for (const bool normal : {false, true})
          jobs.push_back({kernel, &file, normal ? normal_case(c) : c, normal, {}, {}});
    }
  std::mutex mutex;
  int64_t done = 0;
  const auto no_workers = [] { return std::map<std::string, std::unique_ptr<Worker>>(); };
  for_each_throwing(std::ssize(jobs), threads, no_workers, [&](auto& workers, int64_t n) {
    default_threads = 1;
    run_job(workers, jobs[n]);
    const std::lock_guard lock(mutex);
    progress(++done, std::ssize(jobs));
  });
  default_threads = 0;
  BoundTable table;
  for (const BoundJob& job : jobs) add_to_table(job, table);
  std::stable_sort(table.rows.begin(), table.rows.end(), [](const BoundRow& a, const BoundRow& b) {
    return std::tie(a.dtype, a.kernel, a.output) < std::tie(b.dtype, b.kernel, b.output);
  });
  return table;
}

const char* name_of(PRounding rounding) {
  constexpr const char* names[] = {"bf16", "e4m3, P times 2^8", "e4m3"};
  return names[int(rounding)];
}

std::vector<HeadRow> head_table(const std::vector<ActivationFile>& files, int threads,
                                const std::function<void(int64_t, int64_t)>& progress) {
  std::vector<HeadRow> rows;
  int64_t all = 0, done = 0;
  for (const ActivationFile& file : files) all += file.heads;
  std::mutex mutex;
  for (const ActivationFile& file : files) {
    const Inputs in = make_inputs(case_of(file, DType::bf16));
    const OutputValues exact = value_double(in, {}, threads)[OutputId::o];
    const size_t first = rows.size();
    rows.resize(first + file.heads);
    for_each_item(file.heads, threads, [&](int64_t h) {
      rows[first + h] = evaluate_head(file, in, exact, h);
      const std::lock_guard lock(mutex);
      progress(++done, all);
    });
  }
  std::stable_sort(rows.begin(), rows.end(), [](const HeadRow& a, const HeadRow& b) { return a.column > b.column; });
  return rows;
}

ScaleWorth scale_worth(const std::vector<HeadRow>& rows) {
  std::vector<double> ratios;
  for (const HeadRow& row : rows)
    ratios.push_back(row.rmse[int(PRounding::e4m3)] / row.rmse[int(PRounding::e4m3_scaled)]);
  const auto middle = ratios.begin() + int64_t((ratios.size() + 3) / 4);
  return {quartiles({ratios.begin(), middle}).median, quartiles({middle, ratios.end()}).median};
}

double rank_correlation(const std::vector<HeadRow>& rows, PRounding rounding) {
  std::vector<double> columns, errors;
  for (const HeadRow& row : rows) {
    columns.push_back(row.column);
    errors.push_back(row.rmse[int(rounding)] / row.size);
  }
  const std::vector<double> a = ranks(columns), b = ranks(errors);
  const double mean = double(rows.size() - 1) / 2;
  double ab = 0, aa = 0, bb = 0;
  for (size_t n = 0; n < rows.size(); ++n) {
    ab += (a[n] - mean) * (b[n] - mean);
    aa += (a[n] - mean) * (a[n] - mean);
    bb += (b[n] - mean) * (b[n] - mean);
  }
  return ab / std::sqrt(aa * bb);
}

}  // namespace flashproof
