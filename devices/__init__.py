"""Devices: their names, where nodes are placed on them, and how a program is spread over them."""

from graphc.devices.discovery import available as available
from graphc.devices.strategy import DataParallel as DataParallel
