// What is said when the code of a plug-in ends or holds up this process.
//
// Kernels run in workers and are asked there what they support, but a plug-in is loaded in the engine, too. There its
// exit(0) would read as a pass, and its crash or hang would say nothing of whose it was.
#pragma once
#include <string>

namespace flashproof {

/// While this lives, the calling thread is in `function` of the plug-in `path` ("" for a kernel of ours: nothing is
/// watched). Should that exit, crash or stay for more than 60 s, the program says so and ends with code 69.
class PlugInCode {
 public:
  PlugInCode(const std::string& path, const char* function);
  ~PlugInCode();
  PlugInCode(const PlugInCode&) = delete;
  PlugInCode& operator=(const PlugInCode&) = delete;

 private:
  bool watched_;
};

}  // namespace flashproof
