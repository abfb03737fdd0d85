"""Engines by their names, for controllers in processes of their own."""

from pathlib import Path

from compass_abs.engines.protocol import Engine


def open_engine(kind: str, arguments: list[str]) -> Engine:
    """The engine of this name; takes what it needs of the arguments."""
    if kind == "slurm":
        from compass_abs.engines.slurm import SlurmEngine

        return SlurmEngine(Path(arguments.pop(0)), configuration=Path(arguments.pop(0)))
    if kind == "kubernetes":
        from compass_abs.engines.kubernetes import Client, KubernetesEngine, PodSettings

        root, kubeconfig, namespace = (arguments.pop(0) for _ in range(3))
        client = Client.connect(kubeconfig=Path(kubeconfig))
        return KubernetesEngine(Path(root), client, PodSettings(namespace=namespace, image="test"))
    if kind == "ray":
        from compass_abs.engines.ray import RayEngine

        return RayEngine(Path(arguments.pop(0)), address=arguments.pop(0))
    if kind == "local":
        from compass_abs.engines.local import LocalEngine

        root, nodes, gpus = arguments.pop(0), arguments.pop(0), arguments.pop(0)
        return LocalEngine(Path(root), nodes=int(nodes), gpus=int(gpus), real_gpus=())
    raise SystemExit(f"there is no engine {kind!r} here")
