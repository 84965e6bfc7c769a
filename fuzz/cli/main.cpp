// The program `flashproof`.
#include <cstdio>

int main() {
  std::puts("flashproof " FLASHPROOF_VERSION);
  return 0;
}
