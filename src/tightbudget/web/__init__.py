"""A ledger served over HTTP: a JSON API, and pages beside it.

``app.create_app`` makes the server, which needs the extra ``web``. Its clients are in
``tightbudget.client``, which needs the extra ``remote`` alone.
"""
