"""Files of `torch.export.save` (.pt2), read without PyTorch: nothing in them is executed.

`container` reads the zip file, `tensors` the weights, `graphs` the graphs, `sizes` the expressions
of sizes, `mutations` makes graphs functional, `reading` joins them.
"""
