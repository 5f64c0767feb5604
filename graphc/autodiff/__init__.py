"""Gradients by graph extension."""

from graphc.autodiff.reverse import gradients as gradients
