# Leaves out the half of llama.cpp that the Python package does not use.
set(LLAMA_BUILD_COMMON OFF)
