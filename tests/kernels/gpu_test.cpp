// The GPU's side of what host and device must agree on, and gpu:standard's table. Builds with CUDA only; what needs a
// device is skipped where there is none.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string_view>

#include "kernels/builtin.h"
#include "reference/arithmetic.h"
#include "tests/kernels/compare.h"
#include "tests/kernels/device_numbers.h"

namespace flashproof {
namespace {

constexpr DType every_dtype[] = {DType::fp32, DType::bf16, DType::fp16, DType::e4m3, DType::e5m2};

class Device : public testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    if (on_device::device_name(reason).empty()) GTEST_SKIP() << "no GPU: " << reason;
  }
};

/// Doubles of every kind: random bits, numbers about the formats' ranges, ties between neighbours of each format, and
/// specials.
std::vector<double> doubles_to_round() {
  std::mt19937_64 random(20260101);
  std::vector<double> x = {0.0,
                           -0.0,
                           std::numeric_limits<double>::infinity(),
                           -std::numeric_limits<double>::infinity(),
                           std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::denorm_min()};
  for (int n = 0; n < 100000; ++n) {
    const uint64_t word = random();
    x.push_back(std::bit_cast<double>(word));
    x.push_back(std::ldexp(double(int64_t(word >> 11)), int(word % 320) - 53 - 160));
  }
  for (DType dtype : every_dtype)
    for (int n = 0; n < 20000; ++n) {
      const uint32 code = uint32(random()) % (largest_bits(dtype) + 1);
      const double below = decode(dtype, code), tie = below + ulp(dtype, below) / 2;
      for (double y : {tie, std::nextafter(tie, 0.0), std::nextafter(tie, 1e300)}) x.insert(x.end(), {y, -y});
    }
  return x;
}

std::vector<uint32> codes_of_16_bits() {
  std::vector<uint32> codes(1 << 16);
  for (uint32 code = 0; code < codes.size(); ++code) codes[code] = code;
  return codes;
}

TEST_F(Device, EncodesLikeTheHost) {
  const std::vector<double> x = doubles_to_round();
  for (DType dtype : every_dtype) {
    const std::vector<uint32> codes = on_device::encode(dtype, x);
    for (size_t n = 0; n < x.size(); ++n) ASSERT_EQ(codes[n], encode(dtype, x[n])) << int(dtype) << " " << x[n];
  }
}

TEST_F(Device, DecodesLikeTheHost) {
  for (DType dtype : every_dtype) {
    std::vector<uint32> codes = codes_of_16_bits();
    if (format_of(dtype).bits == 8) codes.resize(1 << 8);
    if (dtype == DType::fp32)
      for (uint32& code : codes) code = code << 16 | (code * 40503u & 0xffffu);
    const std::vector<double> x = on_device::decode(dtype, codes);
    for (size_t n = 0; n < x.size(); ++n)
      ASSERT_EQ(std::bit_cast<uint64_t>(x[n]), std::bit_cast<uint64_t>(decode(dtype, codes[n])))
          << int(dtype) << " " << codes[n];
  }
}

TEST_F(Device, ConversionInstructionsRoundCorrectly) {
  std::vector<float> x;
  for (double y : doubles_to_round()) x.push_back(float(y));
  const std::vector<uint32> codes = codes_of_16_bits();
  for (DType dtype : {DType::bf16, DType::fp16, DType::e4m3}) {
    const std::vector<uint32> rounded = on_device::convert(dtype, x);
    for (size_t n = 0; n < x.size(); ++n) {
      if (std::isnan(x[n])) {
        ASSERT_TRUE(std::isnan(decode(dtype, rounded[n])));
      } else {
        ASSERT_EQ(rounded[n], encode(dtype, x[n])) << int(dtype) << " " << x[n];
      }
    }
  }
  for (DType dtype : {DType::bf16, DType::fp16, DType::e4m3, DType::e5m2}) {
    const std::vector<float> wide = on_device::widen(dtype, codes);
    for (uint32 code = 0; code < 1u << format_of(dtype).bits; ++code) {
      const double exact = decode(dtype, code);
      if (std::isnan(exact)) {
        ASSERT_TRUE(std::isnan(wide[code]));
      } else {
        ASSERT_EQ(std::bit_cast<uint32>(wide[code]), encode(DType::fp32, exact)) << int(dtype) << " " << code;
      }
    }
  }
}

/// Every family, operand and dtype, at positions small and large.
std::vector<on_device::ElementQuery> elements_of_every_kind() {
  std::mt19937_64 random(7);
  std::vector<on_device::ElementQuery> queries;
  for (int family = 0; family < family_count; ++family) {
    if (Family(family) == Family::file) continue;  // read from a file, on the host
    for (int operand = 0; operand <= int(Operand::v_descale); ++operand)
      for (DType dtype : every_dtype)
        for (int n = 0; n < 200; ++n) {
          const int64_t head_dim = 1 + int64_t(random() % 256), seq_k = 1 + int64_t(random() % 5000);
          const float scale = n % 3 == 0 ? 0.3f : n % 3 == 1 ? float(1 / std::sqrt(double(head_dim))) : -2.0f;
          queries.push_back({{Family(family), default_parameter, default_parameter, random()},
                             Operand(operand),
                             {dtype, seq_k, head_dim, head_dim, scale},
                             {int64_t(random() % 4), int64_t(random() % seq_k), int64_t(random() % 16),
                              int64_t(random() % head_dim)}});
        }
  }
  return queries;
}

TEST_F(Device, MakesTheSameDataAsTheHost) {
  const std::vector<on_device::ElementQuery> queries = elements_of_every_kind();
  const std::vector<uint32> bits = on_device::element(queries);
  for (size_t n = 0; n < queries.size(); ++n) {
    const auto& [recipe, operand, context, at] = queries[n];
    ASSERT_EQ(bits[n], element(recipe, operand, context, at.b, at.position, at.head, at.channel))
        << "family " << int(recipe.family) << " operand " << int(operand) << " dtype " << int(context.dtype);
  }
}

// ---- gpu:standard

const flashproof_kernel& standard() {
  const BuiltinKernels kernels = builtin_kernel_table();
  for (int n = 0; n < kernels.count; ++n)
    if (std::string_view(kernels.first[n].name) == "gpu:standard") return *kernels.first[n].kernel();
  throw std::runtime_error("the table has no gpu:standard");
}

flashproof_problem plain_problem() {
  flashproof_problem p = {};
  p.struct_size = sizeof p;
  p.dtype = p.out_dtype = FLASHPROOF_BF16;
  p.batch = 2, p.heads = 8, p.kv_heads = 2, p.head_dim = p.value_dim = 64;
  p.max_seq_q = 100, p.max_seq_k = 130, p.total_q = 200, p.total_k = 260;
  p.scale = 0.125f;
  p.window_left = p.window_right = -1;
  return p;
}

/// The reason of a rejection; "" if it is taken.
std::string rejection(const flashproof_problem& p, const char* config = "") {
  char message[256] = "";
  const flashproof_status status = standard().supports(&p, config, message, sizeof message);
  EXPECT_EQ(status == FLASHPROOF_OK, message[0] == 0);
  return message;
}

std::string rejection_with(void (*change)(flashproof_problem&)) {
  flashproof_problem p = plain_problem();
  change(p);
  return rejection(p);
}

TEST(GpuStandard, TakesWhatItDeclares) {
  using P = flashproof_problem;
  EXPECT_EQ(rejection(plain_problem()), "");
  EXPECT_EQ(rejection_with([](P& p) { p.backward = 1; }), "");
  EXPECT_EQ(rejection_with([](P& p) { p.dtype = p.out_dtype = FLASHPROOF_FP16; }), "");
  EXPECT_EQ(rejection_with([](P& p) { p.dtype = p.out_dtype = FLASHPROOF_FP32; }), "");
  EXPECT_EQ(rejection_with([](P& p) { p.dtype = FLASHPROOF_E4M3, p.descale = 1; }), "");
  EXPECT_EQ(rejection_with([](P& p) { p.dtype = FLASHPROOF_E5M2, p.backward = 1; }), "");
  EXPECT_EQ(rejection_with([](P& p) { p.causal = p.top_left = 1, p.window_left = 0; }), "");
  EXPECT_EQ(rejection_with([](P& p) { p.packed_q = p.used_k = 1, p.value_dim = 1; }), "");
  EXPECT_EQ(rejection_with([](P& p) { p.page_size = 16, p.softcap = 30, p.alibi = 2; }), "");
  EXPECT_EQ(rejection_with([](P& p) { p.bias = p.sink = p.backward = 1, p.dropout_rate = 0.5f; }), "");
  EXPECT_EQ(rejection_with([](P& p) { p.max_seq_q = p.max_seq_k = p.total_q = p.total_k = 0; }), "");
}

TEST(GpuStandard, RejectsTheRestWithAReason) {
  using P = flashproof_problem;
  EXPECT_NE(rejection_with([](P& p) { p.dtype = 99; }), "");
  EXPECT_NE(rejection_with([](P& p) { p.out_dtype = FLASHPROOF_FP32; }), "");
  EXPECT_NE(rejection_with([](P& p) { p.dtype = p.out_dtype = FLASHPROOF_E4M3; }), "");
  EXPECT_NE(rejection_with([](P& p) { p.kv_heads = 3; }), "");
  EXPECT_NE(rejection_with([](P& p) { p.kv_heads = 0; }), "");
  EXPECT_NE(rejection_with([](P& p) { p.page_size = -1; }), "");
  EXPECT_NE(rejection_with([](P& p) { p.softcap = -1; }), "");
  EXPECT_NE(rejection_with([](P& p) { p.softcap = std::numeric_limits<float>::infinity(); }), "");
  EXPECT_NE(rejection_with([](P& p) { p.alibi = 3; }), "");
  EXPECT_NE(rejection_with([](P& p) { p.descale = 1; }), "");
  EXPECT_NE(rejection_with([](P& p) { p.dropout_rate = 1; }), "");
  EXPECT_NE(rejection_with([](P& p) { p.window_left = -2; }), "");
  EXPECT_NE(rejection_with([](P& p) { p.scale = std::numeric_limits<float>::quiet_NaN(); }), "");
  EXPECT_NE(rejection_with([](P& p) { p.max_seq_q = -1; }), "");
  EXPECT_NE(rejection_with([](P& p) { p.max_seq_q = p.max_seq_k = p.total_q = p.total_k = int64_t(1) << 40; }), "");
  // Few packed tokens, but a bias may have room for the longest slot of each entry.
  EXPECT_NE(rejection_with([](P& p) { p.batch = 40000, p.max_seq_q = p.max_seq_k = 1700, p.bias = p.backward = 1; }),
            "");
  EXPECT_EQ(rejection_with([](P& p) { p.batch = 40000, p.max_seq_q = p.max_seq_k = 1700; }), "");
  EXPECT_NE(rejection_with([](P& p) { p.struct_size = 8; }), "");
  EXPECT_NE(rejection(plain_problem(), "tile_m=64"), "");
}

TEST(GpuStandard, DeclaresAllOfItsArithmetic) {
  for (const DType dtype : every_dtype) {
    flashproof_problem p = plain_problem();
    p.dtype = int(dtype);
    const bool fp8 = format_of(dtype).bits == 8;
    if (!fp8) p.out_dtype = p.dtype;
    const Arithmetic arithmetic = parse_arithmetic(standard().arithmetic(&p, ""));
    EXPECT_EQ(arithmetic.p_format, int(fp8 ? DType::e4m3 : dtype));
    EXPECT_EQ(arithmetic.p_scale_log2, fp8 ? 8 : 0);
    EXPECT_EQ(arithmetic.ds_format, int(fp8 ? DType::bf16 : dtype));
    for (const char* word : {"tile=", "order=", "scores=", "values=", "levels=", "exp=", "arg=", "tanh=", "s=",
                             "prescaled=", "normalized=", "dropout=", "rowsum=", "splits=", "division=", "d="})
      EXPECT_NE((" " + print(arithmetic)).find(std::string(" ") + word), std::string::npos) << word;
  }
}

/// An array in device memory.
struct DeviceFloats {
  float* data = nullptr;
  explicit DeviceFloats(const std::vector<float>& x) {
    EXPECT_EQ(cudaMalloc(&data, x.size() * sizeof(float)), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data, x.data(), x.size() * sizeof(float), cudaMemcpyHostToDevice), cudaSuccess);
  }
  ~DeviceFloats() { cudaFree(data); }
  float first() const {
    float x = 0;
    EXPECT_EQ(cudaMemcpy(&x, data, sizeof x, cudaMemcpyDeviceToHost), cudaSuccess);
    return x;
  }
};

flashproof_tensor tensor_of(const DeviceFloats& floats, int64_t tokens) {
  return {floats.data, FLASHPROOF_FP32, FLASHPROOF_CUDA, 4, {1, tokens, 1, 1}, {tokens, 1, 1, 1}};
}

TEST_F(Device, StandardComputesTheEightKeyExample) {
  flashproof_problem p = plain_problem();
  p.dtype = p.out_dtype = FLASHPROOF_FP32;
  p.batch = p.heads = p.kv_heads = p.head_dim = p.value_dim = 1;
  p.max_seq_q = p.total_q = 1, p.max_seq_k = p.total_k = 8;
  p.scale = 1;
  const DeviceFloats q({1}), k({2, 1, 0.5, 3, -1, 2.5, 0, 4}), v({10, 20, 30, 40, 50, 60, 70, 80}), o({0}), lse({0});
  const DeviceFloats workspace(std::vector<float>(standard().workspace_size(&p, "") / sizeof(float)));
  flashproof_call call = {};
  call.struct_size = sizeof call;
  call.problem = &p;
  call.q = tensor_of(q, 1), call.k = tensor_of(k, 8), call.v = tensor_of(v, 8), call.o = tensor_of(o, 1);
  call.lse = tensor_of(lse, 1);
  call.workspace = workspace.data, call.workspace_size = standard().workspace_size(&p, "");
  char message[256] = "";
  ASSERT_EQ(standard().forward(&call, "", nullptr, message, sizeof message), FLASHPROOF_OK) << message;
  // Exact: 61.689444..., 4.6050713...; fp32 with expf (2 ulp) and sums of 8 errs by less than 2^-20.
  EXPECT_NEAR(o.first(), 61.68944444042202, 61.7 * 0x1p-20);
  EXPECT_NEAR(lse.first(), 4.605071376669580, 4.7 * 0x1p-20);
  call.workspace_size = 0;
  EXPECT_EQ(standard().forward(&call, "", nullptr, message, sizeof message), FLASHPROOF_ERROR);
  EXPECT_NE(std::string(message).find("workspace"), std::string::npos);
}

/// The call of a SmallCall with all its arrays in device memory.
class DeviceCall {
 public:
  explicit DeviceCall(const test::SmallCall& small) : host_(small.call), call_(small.call) {
    for (const auto tensor : tensors)
      if (flashproof_tensor& t = call_.*tensor; t.data != nullptr)
        t.data = on_device(t.data, bytes_of(t)), t.memory = FLASHPROOF_CUDA;
    for (const auto list : {&flashproof_call::cu_seqlens_q, &flashproof_call::cu_seqlens_k, &flashproof_call::seqused_q,
                            &flashproof_call::seqused_k, &flashproof_call::page_table})
      if (flashproof_integers& n = call_.*list; n.host != nullptr)
        n.data = static_cast<const int32_t*>(on_device(n.host, size_t(n.length) * sizeof(int32_t)));
    call_.workspace_size = standard().workspace_size(call_.problem, "");
    const std::vector<uint8_t> poison(call_.workspace_size, 0xff);
    call_.workspace = on_device(poison.data(), poison.size());
  }
  DeviceCall(const DeviceCall&) = delete;
  ~DeviceCall() {
    for (void* each : allocated_) cudaFree(each);
  }

  /// Carries out forward or backward and copies all tensors back; "" or what went wrong.
  std::string run(Direction direction) {
    char message[256] = "";
    const auto function = direction == Direction::forward ? standard().forward : standard().backward;
    if (function(&call_, "", nullptr, message, sizeof message) != FLASHPROOF_OK) return message;
    if (const cudaError_t error = cudaDeviceSynchronize(); error != cudaSuccess) return cudaGetErrorString(error);
    for (const auto tensor : tensors) {
      const flashproof_tensor &from = call_.*tensor, &to = host_.*tensor;
      if (to.data == nullptr) continue;
      EXPECT_EQ(cudaMemcpy(to.data, from.data, bytes_of(to), cudaMemcpyDeviceToHost), cudaSuccess);
    }
    return "";
  }

 private:
  using Call = flashproof_call;
  static constexpr flashproof_tensor Call::*tensors[] = {
      &Call::q,     &Call::k,         &Call::v,         &Call::o,         &Call::lse,   &Call::d_o,
      &Call::dq,    &Call::dk,        &Call::dv,        &Call::bias,      &Call::dbias, &Call::sink,
      &Call::dsink, &Call::q_descale, &Call::k_descale, &Call::v_descale, &Call::slopes};

  /// From the first logical element to the last.
  static size_t bytes_of(const flashproof_tensor& t) {
    int64_t elements = 1;
    for (int axis = 0; axis < t.rank; ++axis) {
      if (t.shape[axis] == 0) return 0;
      elements += (t.shape[axis] - 1) * t.stride[axis];
    }
    return size_t(elements) * size_t(format_of(DType(t.dtype)).bits / 8);
  }
  void* on_device(const void* data, size_t bytes) {
    void* copy = nullptr;
    EXPECT_EQ(cudaMalloc(&copy, std::max<size_t>(bytes, 1)), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(copy, data, bytes, cudaMemcpyHostToDevice), cudaSuccess);
    allocated_.push_back(copy);
    return copy;
  }

  flashproof_call host_, call_;
  std::vector<void*> allocated_;
};

std::string run_standard(test::SmallCall& small, Direction direction) { return DeviceCall(small).run(direction); }

/// Sequences within one tile, or over several.
Inputs draw_standard_inputs(DType dtype) {
  return test::draw_inputs(test::draw_laid_out_problem(dtype, test::coin() ? 12 : 150));
}

/// Everything between the logical elements is NaN here, so that reading any of it shows.
TEST_F(Device, StandardAgreesWithExactAttention) {
  EXPECT_TRUE(rc::check("in fp32", [] {
    const Inputs in = draw_standard_inputs(DType::fp32);
    RC_LOG() << print(in.problem);
    RC_ASSERT(test::compare_with_exact(in, 1e-4, run_standard) == "");
  }));
  EXPECT_TRUE(rc::check("in 16 bits", [] {
    const DType dtype = test::coin() ? DType::bf16 : DType::fp16;
    const Inputs in = draw_standard_inputs(dtype);
    RC_LOG() << print(in.problem);
    RC_ASSERT(test::compare_with_exact(in, dtype == DType::bf16 ? 0.06 : 0.008, run_standard) == "");
  }));
}

/// O and L against exact attention; gradients, whose D carries the error of P in e4m3, against cpu:standard's from the
/// same O and L.
TEST_F(Device, StandardAgreesIn8Bits) {
  EXPECT_TRUE(rc::check([] {
    const Inputs in = draw_standard_inputs(test::coin() ? DType::e4m3 : DType::e5m2);
    RC_LOG() << print(in.problem);
    Inputs forward = in;
    forward.problem.direction = Direction::forward;
    RC_ASSERT(test::compare_with_exact(forward, 0.06, run_standard) == "");
    test::SmallCall small(in);
    RC_ASSERT(run_standard(small, Direction::forward) == "");
    small.add_gradients();
    RC_ASSERT(run_standard(small, Direction::backward) == "");
    const test::Gradients gpu = test::gradients_of(small, in);
    RC_ASSERT(cpu_standard_kernel()->backward(&small.call, "", nullptr, nullptr, 0) == FLASHPROOF_OK);
    RC_ASSERT(test::difference(gpu, test::gradients_of(small, in), 0.02) == "");
  }));
}

/// Row 4 of head 0 has a NaN in q, key 2 of head 1 one in its v; half of the weights are dropped.
TEST_F(Device, StandardPassesNanOnAndNoFurther) {
  Inputs in = make_inputs(parse_case("bf16 h2 q6 k6 d4 dropout=0.5@3 data=normal"));
  in.v.set_bits((2 * 2 + 1) * 4 + 3, nan_bits(DType::bf16));
  in.q.set_bits((4 * 2 + 0) * 4 + 0, nan_bits(DType::bf16));
  test::SmallCall small(in);
  ASSERT_EQ(run_standard(small, Direction::forward), "");
  const std::vector<double> o = small.gather_queries(small.call.o, 4), l = small.gather_lse();
  for (size_t i = 0; i < 6; ++i)
    for (size_t h = 0; h < 2; ++h) {
      EXPECT_EQ(std::isnan(l[i * 2 + h]), i == 4 && h == 0);
      for (size_t c = 0; c < 4; ++c)
        EXPECT_EQ(std::isnan(o[(i * 2 + h) * 4 + c]), (h == 1 && c == 3) || (i == 4 && h == 0)) << i << h << c;
    }
}

/// Key 1 is hidden by a bias of -inf, row 0 sees nothing: NaN in what they hold reaches nothing, gradients of 0
/// included.
TEST_F(Device, StandardBearsNanInWhatIsHidden) {
  const Inputs clean = [] {
    Inputs in = make_inputs(parse_case("bf16 q70 k5 d4 bias=11qk:fp32 sink bwd data=normal"));
    for (int64_t i = 0; i < 70; ++i)
      for (int64_t j = 0; j < 5; ++j)
        if (i == 0 || j == 1) in.bias.set_bits(i * 5 + j, encode(DType::fp32, -INFINITY));
    return in;
  }();
  Inputs spoiled = clean;
  for (int64_t c = 0; c < 4; ++c) {
    for (Tensor* rows : {&spoiled.q, &spoiled.d_o}) rows->set_bits(c, nan_bits(DType::bf16));
    for (Tensor* keys : {&spoiled.k, &spoiled.v}) keys->set_bits(4 + c, nan_bits(DType::bf16));
  }
  EXPECT_EQ(test::compare_with_exact(clean, 0.06, run_standard), "");
  EXPECT_EQ(test::compare_with_exact(spoiled, 0.06, run_standard), "");
}

}  // namespace
}  // namespace flashproof
