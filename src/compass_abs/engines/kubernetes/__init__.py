"""Kubernetes from 1.20 on: a scheduler under its own name, one pod per instance."""

from compass_abs.engines.kubernetes.client import Client
from compass_abs.engines.kubernetes.engine import KubernetesEngine
from compass_abs.engines.kubernetes.manifest import PodSettings

__all__ = ["Client", "KubernetesEngine", "PodSettings"]
