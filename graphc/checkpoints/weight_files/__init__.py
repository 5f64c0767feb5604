"""Files with weights of other programs: safetensors and GGUF. They are read, never executed."""
