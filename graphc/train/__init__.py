"""Training loops."""

import typing

from graphc.checkpoints.checkpointer import Checkpointer as Checkpointer
from graphc.checkpoints.checkpointer import Restored as Restored
from graphc.checkpoints.orbax import restore_orbax as restore_orbax
from graphc.checkpoints.orbax import save_orbax as save_orbax
from graphc.checkpoints.restoring import restore as restore
from graphc.checkpoints.selection import RestoreReport as RestoreReport
from graphc.ir.namespaces import namespace as _namespace
from graphc.optim import MovingAverages as MovingAverages
from graphc.optim import apply_gradients as apply_gradients
from graphc.optim import moving_averages as moving_averages
from graphc.train.callbacks.base import Callback as Callback
from graphc.train.callbacks.best import BestCheckpoint as BestCheckpoint
from graphc.train.callbacks.csv_log import CsvLogger as CsvLogger
from graphc.train.callbacks.early_stopping import EarlyStopping as EarlyStopping
from graphc.train.callbacks.histograms import Histograms as Histograms
from graphc.train.callbacks.json_lines import JsonLinesLogger as JsonLinesLogger
from graphc.train.callbacks.learning_rate import LearningRateLogger as LearningRateLogger
from graphc.train.callbacks.nans import StopOnNaN as StopOnNaN
from graphc.train.callbacks.plateau import ReduceOnPlateau as ReduceOnPlateau
from graphc.train.callbacks.progress import Progress as Progress
from graphc.train.callbacks.time_limit import TimeLimit as TimeLimit
from graphc.train.evaluation import Validation as Validation
from graphc.train.evaluation import evaluate as evaluate
from graphc.train.evaluation import predict as predict
from graphc.train.fitting import fit as fit
from graphc.train.history import History as History
from graphc.train.job import Job as Job
from graphc.train.run import Run as Run
from graphc.train.tensorboard.callback import TensorBoard as TensorBoard
from graphc.train.tensorboard.writer import SummaryWriter as SummaryWriter
from graphc.train.tensorflow.checkpoint import read_tf_checkpoint as read_tf_checkpoint

if not typing.TYPE_CHECKING:  # type checkers read the imports
    __all__, __dir__, __getattr__ = _namespace("graphc.train", globals())
