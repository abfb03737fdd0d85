"""Ray: one detached actor per instance, for teams whose cluster is a Ray cluster."""

from compass_abs.engines.ray.engine import RayEngine

__all__ = ["RayEngine"]
