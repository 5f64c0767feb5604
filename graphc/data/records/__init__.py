"""TFRecord files, and the `tf.train.Example` messages in them, without TensorFlow."""

from graphc.data.records.encoding import example as example
from graphc.data.records.encoding import sequence_example as sequence_example
from graphc.data.records.indexed import IndexedRecords as IndexedRecords
from graphc.data.records.parsing import parse_examples as parse_examples
from graphc.data.records.parsing import parse_sequence_examples as parse_sequence_examples
from graphc.data.records.reader import RecordIterator as RecordIterator
from graphc.data.records.reader import RecordReader as RecordReader
from graphc.data.records.reader import read_tfrecords as read_tfrecords
from graphc.data.records.single import parse_example as parse_example
from graphc.data.records.specs import FixedLen as FixedLen
from graphc.data.records.specs import RaggedArray as RaggedArray
from graphc.data.records.specs import Raw as Raw
from graphc.data.records.specs import VarLen as VarLen
from graphc.data.records.writer import TFRecordWriter as TFRecordWriter
