"""One function for each operator of TensorFlow, a file for each family; `table` lists all."""
