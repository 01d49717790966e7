"""Budgets to look at and to charge over HTTP: an API, and pages beside it.

``app.create_app`` makes the server; it needs the extra ``web``. ``remote`` is the other side, and
needs the extra ``remote`` alone.
"""
