# Every library that Flashproof builds on, why it is there, and the Debian package that brings it.

# Finds a package or stops with the name of the Debian package that has it.
#   flashproof_find(PACKAGE DEBIAN_PACKAGE [arguments of find_package])
macro(flashproof_find package debian_package)
  find_package(${package} ${ARGN} QUIET)
  if(NOT ${package}_FOUND)
    message(FATAL_ERROR "Flashproof needs ${package}, which was not found. On Debian 12: apt-get install "
                        "${debian_package}. Installed elsewhere? Name its prefix in CMAKE_PREFIX_PATH.")
  endif()
endmacro()

find_package(Threads REQUIRED)                               # the oracle uses every core
flashproof_find(GMP libgmp-dev)                              # integers below MPFR
flashproof_find(MPFR libmpfr-dev)                            # correctly rounded exp and log at any precision
flashproof_find(MPFI libmpfi-dev)                            # intervals over MPFR: the oracle's last strength
set(Boost_USE_STATIC_LIBS ${FLASHPROOF_STATIC})
# Multiprecision, headers only: C++ numbers over MPFR and MPFI; Context: fibers, the threads of the simulated
# multiprocessor
flashproof_find(Boost libboost-context1.81-dev 1.81 COMPONENTS context)
flashproof_find(fmt libfmt-dev)                              # text output
flashproof_find(nlohmann_json nlohmann-json3-dev)            # campaigns, findings and --json
flashproof_find(CLI11 libcli11-dev)                          # the command line
flashproof_find(rapidcheck librapidcheck-dev)                # generators of the fuzzer and of property tests
if(BUILD_TESTING)
  flashproof_find(GTest libgtest-dev)                        # unit tests
endif()

# Debian has no static fmt; its headers hold all of it.
add_library(flashproof_fmt INTERFACE)
target_link_libraries(flashproof_fmt INTERFACE $<IF:$<BOOL:${FLASHPROOF_STATIC}>,fmt::fmt-header-only,fmt::fmt>)
