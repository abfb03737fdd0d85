"""Kubelets of a test cluster: many nodes in one process, on a real API server; pods' commands run as processes here.

What a kubelet does that a scheduler can see: leases, GPUs given out and refused, the environment of containers, their
ends as exit codes, TERM and KILL on deletion, logs, a node that dies or is cut off. There is no isolation: no images,
no own file system or network.
"""
