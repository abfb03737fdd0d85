"""Kubernetes from 1.20 on: a scheduler under its own name, one pod per instance."""
