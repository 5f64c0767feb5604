"""TensorFlow Lite's files as layers.

`flatbuffer` and `reading` read a file, without trust in it. `translation` writes its operators as
nodes of TensorFlow, most of them by `operators`, so that TensorFlow's rules build them; `rules` and
`recurrent` have the rules of what TensorFlow does not have, `lstm_integers` the rounding of
quantised LSTMs. Neither TensorFlow nor the runtime of TensorFlow Lite is needed.
"""
