"""Lets this machine's loopback reach a port inside a network namespace: forward.py NAMESPACE ADDRESS PORT LOCAL_PORT

Nothing but this one port gets in, and nothing gets out.
"""

import asyncio
import ctypes
import os
import socket
import sys

CLONE_NEWNET = 0x40000000


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Passes everything on until one side ends."""
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


async def main(namespace: str, address: str, port: int, local_port: int) -> None:
    """Listens outside, then moves inside: a socket stays where it was made."""
    listener = socket.create_server(("127.0.0.1", local_port), backlog=128)
    handle = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(handle, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), f"can't enter the network namespace {namespace}")

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_reader, inner_writer = await asyncio.open_connection(address, port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(pump(reader, inner_writer), pump(inner_reader, writer))

    server = await asyncio.start_server(accepted, sock=listener)
    await server.serve_forever()


asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
