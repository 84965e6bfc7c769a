# Finds MPFR, correctly rounded floating-point numbers of any precision (https://www.mpfr.org). Target: MPFR::MPFR.
include(${CMAKE_CURRENT_LIST_DIR}/flashproof_find_library.cmake)
flashproof_find_library(MPFR mpfr GMP::GMP)
