"""Gradients by graph extension."""

from graphc.autodiff.gradients import gradients as gradients

__all__ = ["gradients"]
