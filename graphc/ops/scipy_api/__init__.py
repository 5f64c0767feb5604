"""Functions with the names and meanings of `scipy.special`, `scipy.signal` and `scipy.fft`."""
