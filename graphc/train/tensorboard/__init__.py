"""Event files for TensorBoard, written without TensorFlow.

`SummaryWriter` (writer.py) turns each call into an event (one file for each kind of summary) and
hands it to an `EventFile`, whose thread writes it. `TensorBoard` (callback.py) logs a run of `fit`.
"""
