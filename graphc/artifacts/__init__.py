"""Artifacts: files that contain saved models and training steps."""

from graphc.artifacts.entry_point import EntryPoint as EntryPoint
from graphc.artifacts.limits import Limits as Limits
from graphc.artifacts.loading import Model as Model
from graphc.artifacts.loading import load as load
from graphc.artifacts.saving import save as save
from graphc.artifacts.signature import Signature as Signature
from graphc.artifacts.state import ModelState as ModelState
from graphc.artifacts.vocabulary import Vocabulary as Vocabulary
