# Run by the build (cmake -P): writes OUTPUT, the C++ source of fuzz/certificates.h's shipped_certificates(), from the
# files DIRECTORY/*.json.
cmake_minimum_required(VERSION 3.25)
file(GLOB paths ${DIRECTORY}/*.json)
list(SORT paths)
set(table)
foreach(path ${paths})
  file(READ ${path} text)
  string(APPEND table "    R\"certificate(${text})certificate\",\n")
endforeach()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [[#include "fuzz/certificates.h"

namespace flashproof {

std::vector<std::string> shipped_certificates() {
  return {
@table@  };
}

}  // namespace flashproof
]])
