# Finds MPFI, interval arithmetic over MPFR (https://gitlab.inria.fr/mpfi/mpfi). Target: MPFI::MPFI.
include(${CMAKE_CURRENT_LIST_DIR}/flashproof_find_library.cmake)
flashproof_find_library(MPFI mpfi MPFR::MPFR)
