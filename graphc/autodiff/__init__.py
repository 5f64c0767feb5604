"""Gradients by graph extension."""

from graphc.autodiff.jacobians import hessian as hessian
from graphc.autodiff.jacobians import jacobian as jacobian
from graphc.autodiff.reverse import gradients as gradients
