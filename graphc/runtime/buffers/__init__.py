"""Where variables reside: layouts, packing, and the rewrite from variables to buffers."""
