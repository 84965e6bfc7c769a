// ex2.approx.ftz.f32 of Hopper, bit for bit: 2^x by a quadratic on each of 64 segments, in integers.
//
//   F = x as fixed point with 23 fraction bits: |x| truncated; for x < 0 its ones' complement, -|x| if x is an integer.
//   E = floor(F), j = its fraction; s = the upper 6 bits of j (the segment), t = the lower 17.
//   V = 2^13 c0[s] + 6114 + c1[s] t + c2[s] T(t);   2^x ~= 2^E (V >> 15) 2^-23, truncated, with a 24-bit significand.
//   T(t) ~= t^2 / 2^19: of the partial products of t t only those in columns 2^19 and up are summed.
//
// An interpolator of the kind that Oberman and Siu describe (ARITH-17, 2005). The integers were recovered from the 2^23
// results on [-1, 0) of an H200: (c1, c2) are the only ones that fit their segment, 6114 the only constant that fits
// all. An H200 agrees on all 2^32 inputs. Over all inputs with a normal result |result / 2^x - 1| <= 2^-22.727 for x <=
// 0 (the most at 0xbf7b000c), 2^-22.709 for x > 0 (at 0x3d8005d0); monotone; integers are exact. Exceptional inputs:
// |x| < 2^-23 gives 1; results below 2^-126 give +0, from 2^128 +infinity; NaN gives 0x7fffffff.
#pragma once
#include "reference/formats.h"

namespace flashproof {

struct Ex2Segment {
  uint32 c0, c1, c2;
};

FLASHPROOF_HD inline Ex2Segment ex2_segment(uint32 s) {
  static constexpr Ex2Segment table[64] = {
      {33554435, 22713, 494}, {33919818, 22960, 501}, {34289182, 23210, 506}, {34662565, 23463, 511},
      {35040018, 23718, 518}, {35421577, 23977, 521}, {35807292, 24238, 527}, {36197209, 24502, 532},
      {36591372, 24768, 541}, {36989825, 25038, 546}, {37392616, 25311, 551}, {37799797, 25586, 559},
      {38211409, 25865, 564}, {38627504, 26147, 568}, {39048131, 26431, 577}, {39473337, 26719, 583},
      {39903173, 27010, 589}, {40337690, 27304, 596}, {40776937, 27602, 600}, {41220970, 27902, 609},
      {41669836, 28206, 615}, {42123592, 28513, 622}, {42582286, 28824, 627}, {43045977, 29138, 633},
      {43514717, 29455, 641}, {43988561, 29776, 647}, {44467565, 30100, 655}, {44951786, 30428, 661},
      {45441278, 30759, 670}, {45936101, 31094, 677}, {46436314, 31432, 686}, {46941971, 31775, 691},
      {47453135, 32121, 699}, {47969867, 32471, 705}, {48492225, 32824, 715}, {49020269, 33182, 721},
      {49554065, 33543, 730}, {50093674, 33908, 739}, {50639159, 34277, 748}, {51190582, 34651, 753},
      {51748011, 35028, 763}, {52311510, 35409, 773}, {52881146, 35795, 779}, {53456983, 36185, 787},
      {54039091, 36579, 796}, {54627538, 36977, 806}, {55222393, 37380, 813}, {55823725, 37787, 822},
      {56431607, 38198, 833}, {57046106, 38614, 842}, {57667297, 39035, 849}, {58295254, 39460, 858},
      {58930048, 39889, 870}, {59571754, 40324, 877}, {60220447, 40763, 887}, {60876205, 41207, 896},
      {61539104, 41655, 909}, {62209220, 42109, 917}, {62886634, 42568, 925}, {63571424, 43031, 938},
      {64263672, 43500, 946}, {64963458, 43973, 959}, {65670863, 44452, 969}, {66385972, 44936, 980},
  };
  return table[s];
}

/// T(t): the partial products of t t in columns 2^19 and up, over 2^19; t < 2^17.
FLASHPROOF_HD constexpr uint32 truncated_square(uint32 t) {
  // Bits 9 and up, all but the square of bit 9: h^2 2^18. Bit i < 9 meets the bits k >= 18 - i in columns i + k + 1.
  const uint32 h = t >> 9;
  uint32 sum = (h * h - (h & 1)) >> 1;
  for (int i = 2; i < 9; ++i) sum += (0 - (t >> i & 1)) & t >> (18 - i);
  return sum;
}

/// 2^x as ex2.approx.ftz.f32 computes it on sm_90.
FLASHPROOF_HD inline float ex2_approx(float x) {
  const uint32 bits = __builtin_bit_cast(uint32, x), magnitude = bits & 0x7fffffffu;
  const bool negative = bits >> 31 != 0;
  if (magnitude > 0x7f800000u) return __builtin_bit_cast(float, 0x7fffffffu);
  if (magnitude >= 0x43800000u) return negative ? 0.0f : __builtin_bit_cast(float, 0x7f800000u);  // |x| >= 256
  if (magnitude < 0x34000000u) return 1.0f;                                                       // |x| < 2^-23
  const int exponent = int(magnitude >> 23) - 127;
  const uint32 significand = (magnitude & 0x7fffffu) | 0x800000u;
  const uint32 fixed = exponent >= 0 ? significand << exponent : significand >> -exponent;
  const bool integer = exponent >= 0 ? (fixed & 0x7fffffu) == 0 : false;
  const int f = !negative ? int(fixed) : integer ? -int(fixed) : ~int(fixed);
  const int e = f >> 23;
  if (e < -126) return 0.0f;
  if (e > 127) return __builtin_bit_cast(float, 0x7f800000u);
  const uint32 j = uint32(f) & 0x7fffffu, t = j & 0x1ffffu;
  const Ex2Segment c = ex2_segment(j >> 17);
  const uint64 v = uint64(c.c0) * 8192 + 6114 + uint64(c.c1) * t + uint64(c.c2) * truncated_square(t);
  return __builtin_bit_cast(float, (uint32(e + 127) << 23) + uint32(v >> 15) - 0x800000u);
}

}  // namespace flashproof
