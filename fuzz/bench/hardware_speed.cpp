#include "fuzz/bench/hardware_speed.h"

#include "fuzz/steady_seconds.h"
#include "kernels/hardware/certify_data.h"
#include "kernels/hardware/tensor_core.h"

namespace flashproof {
namespace {

constexpr int64 rows = 64, columns = 128, inner = 128;

/// Operands of the tile, normal numbers: A by rows, B by rows of k.
struct TileData {
  std::vector<float> a, b, c;
};

TileData draw_tile(const MatrixUnit& unit) {
  TileData tile{std::vector<float>(rows * inner), std::vector<float>(inner * columns),
                std::vector<float>(rows * columns)};
  const auto draw = [](DType dtype, Operand operand, int64 line, int64 index) {
    return float(decode(dtype, draw_operand(dtype, OperandFamily::normal, {0, operand, int(line), int(index)}, 32)));
  };
  for (int64 n = 0; n < rows * inner; ++n) tile.a[n] = draw(unit.a, Operand::a, n / inner, n % inner);
  for (int64 n = 0; n < inner * columns; ++n) tile.b[n] = draw(unit.b, Operand::b, n / columns, n % columns);
  return tile;
}

/// Millions of multiply-adds a second; work does `count` of them, and is repeated for a twentieth of a second.
template <class Work>
double rate_of(int64 count, const Work& work) {
  const double start = thread_seconds();
  double elapsed = 0;
  int64 done = 0;
  while (elapsed < 0.05) {
    work();
    done += count;
    elapsed = thread_seconds() - start;
  }
  return double(done) / elapsed * 1e-6;
}

UnitSpeed time_unit(const char* instruction, const MatrixUnit& unit, int repetitions) {
  TileData t = draw_tile(unit);
  const int length = products_an_instruction(unit);
  std::vector<uint32> a(rows * inner), b(inner * columns);  // encoded; B by columns
  for (int64 n = 0; n < rows * inner; ++n) a[n] = encode(unit.a, t.a[n]);
  for (int64 n = 0; n < inner * columns; ++n) b[n] = encode(unit.b, t.b[n % inner * columns + n / inner]);
  std::vector<double> tile, one, scalar;
  for (int n = 0; n < repetitions; ++n) {
    tile.push_back(rate_of(rows * columns * inner, [&] {
      multiply_add_tile(unit, rows, columns, inner, t.a.data(), inner, 1, t.b.data(), columns, t.c.data(), columns);
    }));
    one.push_back(rate_of(16 * 8 * length, [&] {
      multiply_add_tile(unit, 16, 8, length, t.a.data(), inner, 1, t.b.data(), columns, t.c.data(), columns);
    }));
    scalar.push_back(rate_of(columns * inner, [&] {
      for (int64 j = 0; j < columns; ++j)
        for (int64 k = 0; k < inner; k += length) t.c[j] = fused_step(unit, &a[k], &b[j * inner + k], t.c[j]);
    }));
  }
  return {instruction, unit.products, quartiles(tile), quartiles(one), quartiles(scalar)};
}

}  // namespace

std::vector<UnitSpeed> time_hardware_models(int repetitions, const std::function<void(const std::string&)>& progress) {
  using enum Architecture;
  using enum MatrixInstruction;
  const std::pair<const char*, MatrixUnit> units[] = {
      {"sm_90 mma.sync bf16", matrix_unit(sm_90, mma_sync, DType::bf16, DType::bf16)},
      {"sm_90 mma.sync fp16", matrix_unit(sm_90, mma_sync, DType::fp16, DType::fp16)},
      {"sm_90 mma.sync e4m3", matrix_unit(sm_90, mma_sync, DType::e4m3, DType::e4m3)},
      {"sm_90 wgmma e4m3", matrix_unit(sm_90, wgmma, DType::e4m3, DType::e4m3)},
      {"sm_90 wgmma e5m2", matrix_unit(sm_90, wgmma, DType::e5m2, DType::e5m2)},
      {"sm_80 mma.sync bf16", matrix_unit(sm_80, mma_sync, DType::bf16, DType::bf16)},
      {"sm_89 mma.sync e4m3", matrix_unit(sm_89, mma_sync, DType::e4m3, DType::e4m3)}};
  std::vector<UnitSpeed> list;
  for (const auto& [name, unit] : units) {
    progress(name);
    list.push_back(time_unit(name, unit, repetitions));
  }
  return list;
}

}  // namespace flashproof
