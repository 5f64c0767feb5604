"""Input pipelines."""

import typing

from graphc.data.batches import Batches as Batches
from graphc.data.batches import BatchesIterator as BatchesIterator
from graphc.data.bucketing import Bucketing as Bucketing
from graphc.data.iterator import PipelineIterator as PipelineIterator
from graphc.data.pipeline import Pipeline as Pipeline
from graphc.data.prefetching import Prefetch as Prefetch
from graphc.data.prefetching import prefetch as prefetch
from graphc.data.readers import from_arrays as from_arrays
from graphc.data.readers import from_csv as from_csv
from graphc.data.readers import from_generator as from_generator
from graphc.data.readers import from_images as from_images
from graphc.data.readers import from_iterable as from_iterable
from graphc.data.readers import from_records as from_records
from graphc.data.readers import from_text as from_text
from graphc.data.records import FixedLen as FixedLen
from graphc.data.records import IndexedRecords as IndexedRecords
from graphc.data.records import RaggedArray as RaggedArray
from graphc.data.records import Raw as Raw
from graphc.data.records import RecordIterator as RecordIterator
from graphc.data.records import RecordReader as RecordReader
from graphc.data.records import TFRecordWriter as TFRecordWriter
from graphc.data.records import VarLen as VarLen
from graphc.data.records import example as example
from graphc.data.records import parse_example as parse_example
from graphc.data.records import parse_examples as parse_examples
from graphc.data.records import parse_sequence_examples as parse_sequence_examples
from graphc.data.records import read_tfrecords as read_tfrecords
from graphc.data.records import sequence_example as sequence_example
from graphc.ir.namespaces import namespace as _namespace

if not typing.TYPE_CHECKING:  # type checkers read the imports
    __all__, __dir__, __getattr__ = _namespace("graphc.data", globals())
