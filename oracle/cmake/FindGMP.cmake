# Finds GMP, integers of any size (https://gmplib.org). Target: GMP::GMP.
include(${CMAKE_CURRENT_LIST_DIR}/flashproof_find_library.cmake)
flashproof_find_library(GMP gmp)
