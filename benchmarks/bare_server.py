"""A server that inserts one row at each request: what FastAPI and the database cost alone.

    python benchmarks/bare_server.py DATABASE

The row is as durable as a charge when the request is answered. Nothing else is done.
"""

from __future__ import annotations

import socket
import sys
import threading
from contextlib import nullcontext

import psycopg
import uvicorn
from fastapi import FastAPI
from ledger_jobs import bare_file, plain
from pydantic import BaseModel

URL = sys.argv[1]
app = FastAPI()
mine = threading.local()
# SQLite has no queue of its own: waiting threads would sleep, and overtake each other
turn = threading.Lock() if URL.startswith("sqlite") else nullcontext()


class Row(BaseModel):
    name: str
    value: float


@app.post("/insert")
def insert(row: Row) -> dict[str, str]:
    if not hasattr(mine, "database"):
        sqlite = URL.startswith("sqlite")
        mine.database = bare_file(URL) if sqlite else psycopg.connect(plain(URL), autocommit=True)
        mine.statement = f"INSERT INTO bare VALUES ({'?, ?' if sqlite else '%s, %s'})"
    with turn:
        mine.database.execute(mine.statement, (row.name, row.value))
    return {"name": row.name}


if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening:
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
        config = uvicorn.Config(app, http="h11", access_log=False, log_config=None)
        uvicorn.Server(config).run(sockets=[listening])
