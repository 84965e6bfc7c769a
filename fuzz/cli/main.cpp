// The program `flashproof`.
#include <cstdio>

#include "fuzz/build_info.h"

int main() {
  const flashproof::BuildInfo& info = flashproof::build_info();
  std::printf("flashproof %s (commit %s, %s, CUDA %s, %s)\n", info.version, info.commit, info.compiler, info.cuda,
              info.flags);
  return 0;
}
